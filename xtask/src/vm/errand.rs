//! Guests for something else than the live tests: a program of ours, a disk with what it needs, and its output.
use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

pub(crate) use super::supply::Peers;
use super::{
    cache::InUse,
    cpio::{self, Data, Entry},
    image::{EMPTY, with_folders},
    machine::{Accelerator, Machine, tail},
    series::Series,
    static_build::{self, Measuring},
    supply::{Kernel, Supply, Tools},
    verdict::{Ended, has_tripped},
};
use crate::{lock, workspace};

/// Lines of a guest's console that are shown when it has died.
const TAIL: usize = 20;

/// What guests are made of.
pub(crate) struct Depot {
    _in_use: InUse,
    /// Keeps others of this checkout out of the folder.
    _lock: File,
    peers: Peers,
    tools: Tools,
    kernel: Kernel,
    programs: Measuring,
    folder: PathBuf,
}

/// How a guest came to its end.
pub(crate) enum End {
    /// It did what it was to do, or restarted itself for another reason.
    Itself,
    /// Its time was over.
    Time,
    /// It was silent, and what the kernel said last.
    Died(String),
    /// QEMU failed, or its emulation has tripped: that says nothing of what ran in it.
    Emulator(String),
}

/// One guest.
pub(crate) struct Errand<'a> {
    /// Of its folder.
    pub(crate) name: String,
    /// Arguments of its first process.
    pub(crate) orders: &'static str,
    /// In MiB.
    pub(crate) memory: u32,
    pub(crate) deadline: Duration,
    /// Longest time without a line of output.
    pub(crate) silence: Duration,
    /// A disk, which is not written to, and its serial number.
    pub(crate) disk: (&'a Path, &'static str),
    /// Further files of its first file system, by path.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
}

impl Depot {
    /// Finds or fetches QEMU, a kernel and what Brink is compared with, and builds our programs.
    ///
    /// # Errors
    /// When one of them cannot be had.
    pub(crate) fn open(series: Series) -> anyhow::Result<Self> {
        let mut supply = Supply::open()?;
        let tools = supply.tools()?;
        let kernel = supply.kernel(series)?;
        let peers = supply.peers()?;
        let in_use = supply.into_use()?;
        let metadata = workspace::metadata()?;
        let folder = metadata.target_directory.join("vm/peers");
        Ok(Self {
            _lock: lock::folder(&folder, "compares in guests of this checkout")?,
            programs: static_build::build_measuring(&metadata)?,
            folder,
            _in_use: in_use,
            peers,
            tools,
            kernel,
        })
    }

    /// The tools that Brink is compared with.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Our programs.
    pub(crate) fn programs(&self) -> &Measuring {
        &self.programs
    }

    /// Where everything that is made for these guests lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Boots a guest and tells its output line by line, to its end.
    ///
    /// # Errors
    /// When QEMU cannot be started, or a file not be written.
    pub(crate) fn run(&self, errand: &Errand<'_>, tell: impl FnMut(&str)) -> anyhow::Result<End> {
        let initramfs = self.folder.join(format!("{}.cpio", errand.name));
        self.write(&initramfs, errand)?;
        let machine = Machine {
            tools: &self.tools,
            kernel: &self.kernel,
            initramfs: &initramfs,
            accelerator: Accelerator::Emulation,
            memory: errand.memory,
            orders: errand.orders.to_owned(),
            words: "",
            environment: vec![("PATH", "/bin".to_owned())],
            folder: self.folder.join(&errand.name),
            deadline: errand.deadline,
            silence: Some(errand.silence),
            counted: true,
            disks: vec![(errand.disk.0.to_owned(), errand.disk.1)],
        };
        let Ended { status, elapsed } = machine.run(tell)?;
        let said = || tail(&machine.console(), TAIL);
        let is_tripped = || {
            let console = fs::read(machine.console()).unwrap_or_default();
            has_tripped(&String::from_utf8_lossy(&console))
        };
        Ok(match status {
            Some(status) if !status.success() => End::Emulator(format!("QEMU: {status}")),
            None if elapsed >= errand.deadline => End::Time,
            _ if is_tripped() => End::Emulator("emulation has tripped (`Oops: int3`)".to_owned()),
            Some(_) => End::Itself,
            None => End::Died(format!("silent for {:.0?}\n{}", errand.silence, said())),
        })
    }

    fn write(&self, image: &Path, errand: &Errand<'_>) -> anyhow::Result<()> {
        let program =
            |path: &str, from: &Path| Entry::new(path, 0o755, Data::CopyOf(from.to_owned()));
        let mut wanted = vec![
            program("init", &self.programs.guest),
            program("bin/brink-hog", &self.programs.hog),
            program("bin/busybox", &self.tools.busybox),
            Entry::new("bin/sh", 0o777, Data::Link("busybox".to_owned())),
            Entry::new("tmp", 0o1777, Data::Folder),
        ];
        let files = errand.files.iter();
        wanted
            .extend(files.map(|(path, bytes)| Entry::new(path, 0o644, Data::Bytes(bytes.clone()))));
        wanted.extend(EMPTY.map(Entry::folder));
        let context = || format!("writing {}", image.display());
        let mut out = BufWriter::new(File::create(image).with_context(context)?);
        cpio::write(&mut out, &with_folders(wanted))?;
        out.flush().with_context(context)
    }
}
