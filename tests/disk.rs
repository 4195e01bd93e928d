//! A small filesystem of a test's own, mounted where nobody but the test and what it starts sees it.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// A filesystem that goes with the test, its image too.
#[derive(Debug)]
pub struct OwnDisk {
    place: PathBuf,
    /// Gone with the last who has it open.
    _image: Option<tempfile::NamedTempFile>,
    /// Whoever asks it is let go when this is closed.
    _server: Option<File>,
}

impl OwnDisk {
    /// Gives the calling thread a name space of mounts, once for all disks it makes.
    ///
    /// # Errors
    /// Why it cannot have one.
    pub fn own_mounts() -> Result<(), String> {
        #[expect(
            deprecated,
            reason = "safe with these flags: no file descriptor is concerned"
        )]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)
            .map_err(|errno| format!("no name space for mounts: {errno}"))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)
            .map_err(|errno| format!("mounts cannot be made private: {errno}"))
    }

    /// A filesystem without a device, by its name and options; in the thread's own name space.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn mount(kind: &str, place: &Path, options: &str) -> Result<Self, String> {
        Self::served(kind, place, options, None)
    }

    fn served(
        kind: &str,
        place: &Path,
        options: &str,
        server: Option<File>,
    ) -> Result<Self, String> {
        fs::create_dir_all(place).map_err(|error| error.to_string())?;
        let options = CString::new(options).map_err(|error| error.to_string())?;
        let options = Some(options.as_c_str()).filter(|options| !options.is_empty());
        rustix::mount::mount(kind, place, kind, MountFlags::empty(), options)
            .map_err(|errno| format!("no {kind} can be mounted: {errno}"))?;
        Ok(Self {
            place: place.to_path_buf(),
            _image: None,
            _server: server,
        })
    }

    /// An ext4 of so many MiB in a file, made with these further arguments of mkfs.ext4.
    ///
    /// # Errors
    /// Why it cannot be made or mounted.
    pub fn ext4(place: &Path, mib: u64, arguments: &[&str]) -> Result<Self, String> {
        let arguments = [&["-F"], arguments].concat();
        Self::in_file("ext4", place, mib, &arguments, "loop")
    }

    /// An ext4 that counts what each project uses.
    ///
    /// # Errors
    /// Why it cannot be made or mounted.
    pub fn ext4_counting_projects(place: &Path) -> Result<Self, String> {
        let arguments = ["-F", "-O", "quota,project", "-E", "quotatype=prjquota"];
        Self::in_file("ext4", place, 32, &arguments, "loop,prjquota")
    }

    /// An XFS that counts what each project uses.
    ///
    /// # Errors
    /// Why it cannot be made or mounted.
    pub fn xfs_counting_projects(place: &Path) -> Result<Self, String> {
        // mkfs.xfs makes none below 300 MiB; the file takes the log's 64 MiB, and what is written.
        Self::in_file("xfs", place, 320, &[], "loop,prjquota")
    }

    fn in_file(
        kind: &str,
        place: &Path,
        mib: u64,
        arguments: &[&str],
        options: &str,
    ) -> Result<Self, String> {
        fs::create_dir_all(place).map_err(|error| error.to_string())?;
        let image = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        let sized = File::options().write(true).open(image.path());
        sized
            .and_then(|file| file.set_len(mib << 20))
            .map_err(|error| error.to_string())?;
        run(Command::new(format!("mkfs.{kind}"))
            .arg("-q")
            .args(arguments)
            .arg(image.path()))?;
        run(Command::new("mount")
            .args(["-t", kind, "-o", options])
            .args([image.path(), place]))?;
        Ok(Self {
            place: place.to_path_buf(),
            _image: Some(image),
            _server: None,
        })
    }

    /// Gives a folder a project, and to what is made in it from now on.
    ///
    /// # Errors
    /// Why it cannot be given one.
    pub fn give_project(folder: &Path, id: u32) -> Result<(), String> {
        let id = id.to_string();
        run(Command::new("chattr")
            .args(["-p", id.as_str(), "+P"])
            .arg(folder))
    }

    /// An overlay over folders that are made in this one: `merged`, where it is mounted, and `upper`, where all lies that is written
    /// to it.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn overlay(on: &Path) -> Result<Self, String> {
        for name in ["lower", "upper", "work"] {
            fs::create_dir(on.join(name)).map_err(|error| error.to_string())?;
        }
        let options = format!(
            "lowerdir={on}/lower,upperdir={on}/upper,workdir={on}/work",
            on = on.display()
        );
        Self::mount("overlay", &on.join("merged"), &options)
    }

    /// A filesystem that never answers: one of FUSE that nobody serves.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn hung(place: &Path) -> Result<Self, String> {
        let server = File::options().read(true).write(true).open("/dev/fuse");
        let server = server.map_err(|error| format!("/dev/fuse: {error}"))?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        Self::served("fuse", place, &options, Some(server))
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.place
    }
}

impl Drop for OwnDisk {
    fn drop(&mut self) {
        // With the name space it would go anyway; only the folder below it could not be removed.
        let _ = rustix::mount::unmount(&self.place, UnmountFlags::DETACH);
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("needs {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} fails: {}", said.trim()))
}
