//! One virtual machine, from its start to its end or its deadline, with its output told as it comes.
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    supply::{Kernel, Tools},
    verdict::Ended,
};

/// How often the guest is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Size of the disk for what comes back, in bytes; it takes no more than is written.
const DISK: u64 = 64 << 20;
/// Size of the disk that the guest may write on, in bytes; it too takes no more than is written.
const SCRATCH: u64 = 2 << 30;
/// Processors of a guest.
const CPUS: u32 = 2;
/// How the kernel is told to behave: an oops ends it, a panic restarts it (and that ends the emulator).
const KERNEL: &str =
    "console=ttyS0 quiet panic=-1 oops=panic psi=1 mitigations=off tsc=reliable rdinit=/init";

/// Who runs the guest's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// QEMU itself. In one thread: with more, kernels trip over code that another processor patches.
    Emulation,
    /// The processor.
    Kvm,
}

/// A guest that can be started.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) tools: &'a Tools,
    pub(super) kernel: &'a Kernel,
    /// The first file system.
    pub(super) initramfs: &'a Path,
    pub(super) accelerator: Accelerator,
    /// Memory in MiB.
    pub(super) memory: u32,
    /// More words for the kernel.
    pub(super) words: &'static str,
    /// Arguments of the guest's first process.
    pub(super) orders: String,
    /// Its variables.
    pub(super) environment: Vec<(&'static str, String)>,
    /// Where console, output and disk are kept.
    pub(super) folder: PathBuf,
    pub(super) deadline: Duration,
    /// Longest time without a line of output; none if it may be silent.
    pub(super) silence: Option<Duration>,
    /// Whether its clocks go by the instructions it has run, a nanosecond each, and not by the host's: then nothing that
    /// else runs on the host shows in its times, and it does not wait while it has nothing to do.
    pub(super) counted: bool,
    /// Disks beside the one for what comes back: an image, which is never written to, and its serial number.
    pub(super) disks: Vec<(PathBuf, &'static str)>,
}

impl Machine<'_> {
    /// What the kernel said.
    pub(super) fn console(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// What the guest's programs said.
    pub(super) fn output(&self) -> PathBuf {
        self.folder.join("output.log")
    }

    /// What QEMU itself said.
    pub(super) fn complaints(&self) -> PathBuf {
        self.folder.join("qemu.log")
    }

    /// The disk with the files that come back.
    pub(super) fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// The disk for the guest's own use: what is in memory alone has no page cache.
    fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// Boots it and waits for its end, telling each line of its output; at the deadline it is killed.
    ///
    /// # Errors
    /// When QEMU cannot be started, or its files not be written.
    pub(super) fn run(&self, tell: impl FnMut(&str)) -> anyhow::Result<Ended> {
        self.prepare()
            .with_context(|| format!("preparing {}", self.folder.display()))?;
        let complaints = File::create(self.complaints()).context("a file for QEMU's messages")?;
        let root = &self.tools.root;
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let libraries = libraries.map(|folder| root.join(folder).display().to_string());
        let mut qemu = Command::new(root.join("usr/bin/qemu-system-x86_64"));
        qemu.args(self.arguments())
            .env("LD_LIBRARY_PATH", libraries.join(":"))
            .env(
                "QEMU_MODULE_DIR",
                root.join("usr/lib/x86_64-linux-gnu/qemu"),
            )
            .stdin(Stdio::null())
            .stdout(
                complaints
                    .try_clone()
                    .context("a file for QEMU's messages")?,
            )
            .stderr(complaints);
        let began = Instant::now();
        let child = qemu.spawn().with_context(|| format!("starting {qemu:?}"))?;
        self.follow(Running(child), began, tell)
    }

    fn prepare(&self) -> io::Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir_all(&self.folder)?;
        File::create(self.output())?;
        File::create(self.scratch())?.set_len(SCRATCH)?;
        File::create(self.disk())?.set_len(DISK)
    }

    fn follow(
        &self,
        mut qemu: Running,
        began: Instant,
        tell: impl FnMut(&str),
    ) -> anyhow::Result<Ended> {
        let mut lines = Lines::of(&self.output(), tell)?;
        let mut heard = began;
        loop {
            let status = qemu.0.try_wait().context("waiting for QEMU")?;
            if lines.tell_new()? {
                heard = Instant::now();
            }
            let is_silent = self.silence.is_some_and(|most| heard.elapsed() >= most);
            if status.is_some() || is_silent || began.elapsed() >= self.deadline {
                let elapsed = began.elapsed();
                return Ok(Ended { status, elapsed });
            }
            thread::sleep(TICK);
        }
    }

    fn arguments(&self) -> Vec<OsString> {
        let (accelerator, processor) = match self.accelerator {
            // A page is filled by as many instructions as it has words, and not bytes: where instructions are what
            // time goes by, that is how long a processor takes.
            Accelerator::Emulation if self.counted => {
                ("tcg,thread=single", "max,-la57,-erms,-fsrm")
            }
            // Five-level page tables cost emulation more than they tell us.
            Accelerator::Emulation => ("tcg,thread=single", "max,-la57"),
            Accelerator::Kvm => ("kvm", "host"),
        };
        let path = |before: &str, path: PathBuf| {
            let mut argument = OsString::from(before);
            argument.push(path);
            argument
        };
        let plain = |text: &str| OsString::from(text);
        let mut arguments = Vec::new();
        for folder in ["usr/share/seabios", "usr/share/qemu"] {
            arguments.extend([plain("-L"), path("", self.tools.root.join(folder))]);
        }
        for (option, value) in [
            ("-machine", plain("q35")),
            ("-accel", plain(accelerator)),
            ("-cpu", plain(processor)),
            ("-smp", CPUS.to_string().into()),
            ("-m", self.memory.to_string().into()),
            ("-display", plain("none")),
            ("-monitor", plain("none")),
            ("-nic", plain("none")),
            ("-chardev", path("file,id=console,path=", self.console())),
            ("-serial", plain("chardev:console")),
            (
                "-chardev",
                path("file,id=output,append=on,path=", self.output()),
            ),
            ("-serial", plain("chardev:output")),
            (
                "-drive",
                path("if=none,id=disk,format=raw,file=", self.disk()),
            ),
            ("-device", plain("nvme,drive=disk,serial=out")),
            (
                "-drive",
                path("if=none,id=scratch,format=raw,file=", self.scratch()),
            ),
            ("-device", plain("nvme,drive=scratch,serial=scratch")),
            ("-kernel", path("", self.kernel.image.clone())),
            ("-initrd", path("", self.initramfs.to_owned())),
            ("-append", self.command_line().into()),
        ] {
            arguments.extend([plain(option), value]);
        }
        for (image, serial) in &self.disks {
            let before = format!("if=none,id={serial},format=raw,snapshot=on,file=");
            arguments.extend([plain("-drive"), path(&before, image.clone())]);
            let device = format!("nvme,drive={serial},serial={serial}");
            arguments.extend([plain("-device"), device.into()]);
        }
        if self.counted {
            arguments.extend([plain("-icount"), plain("shift=0,sleep=off")]);
            arguments.extend([plain("-rtc"), plain("clock=vm")]);
        }
        arguments.extend([plain("-nodefaults"), plain("-no-reboot")]);
        arguments
    }

    /// What the kernel does not know and has a value becomes a variable of its first process; what follows the
    /// dashes its arguments.
    fn command_line(&self) -> String {
        let variables = self.environment.iter();
        let variables: Vec<String> = variables
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let (words, orders) = (self.words, &self.orders);
        format!("{KERNEL} {words} {} -- {orders}", variables.join(" "))
    }
}

/// A child that does not outlive us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of a file that grows.
struct Lines<T> {
    file: File,
    begun: Vec<u8>,
    tell: T,
}

impl<T: FnMut(&str)> Lines<T> {
    fn of(path: &Path, tell: T) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        Ok(Self {
            file,
            begun: Vec::new(),
            tell,
        })
    }

    /// Whether there was anything new.
    fn tell_new(&mut self) -> anyhow::Result<bool> {
        let read = self
            .file
            .read_to_end(&mut self.begun)
            .context("reading a guest's output")?;
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            // A serial line ends its lines as a typewriter does.
            (self.tell)(String::from_utf8_lossy(&line).trim_end());
        }
        Ok(read > 0)
    }
}

/// The last lines of a file, set in, so that none of them can be taken for one of ours.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    /// More than the lines that are asked for, in bytes.
    const END: u64 = 64 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let begin = file.metadata()?.len().saturating_sub(END);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_else(|error| format!("not readable: {error}").into_bytes());
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().map(str::trim_end).collect();
    let last = &all[all.len().saturating_sub(lines)..];
    let shown: Vec<String> = last.iter().map(|line| format!("    {line}\n")).collect();
    shown.concat()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::vm::series::Series;

    #[test]
    fn a_growing_file_is_told_line_by_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut told = Vec::new();
        let mut lines = Lines::of(file.path(), |line: &str| told.push(line.to_owned())).unwrap();
        for piece in ["one\r\ntw", "o\r\n", "", "three"] {
            file.write_all(piece.as_bytes()).unwrap();
            lines.tell_new().unwrap();
        }
        assert_eq!(told, ["one", "two"]);
        assert_eq!(tail(file.path(), 2), "    two\n    three\n");
        assert!(tail(Path::new("/nowhere"), 2).contains("not readable"));
    }

    fn tools(root: &Path) -> Tools {
        Tools {
            root: root.to_owned(),
            busybox: "/busybox".into(),
            filesystems: Vec::new(),
        }
    }

    fn kernel() -> Kernel {
        Kernel {
            series: Series::V6_1,
            image: "/vmlinuz".into(),
            modules: Vec::new(),
        }
    }

    fn machine<'a>(tools: &'a Tools, kernel: &'a Kernel) -> Machine<'a> {
        Machine {
            tools,
            kernel,
            initramfs: Path::new("/initramfs"),
            accelerator: Accelerator::Emulation,
            memory: 2048,
            words: "psi=0",
            orders: "guest".to_owned(),
            environment: vec![("PATH", "/bin".to_owned())],
            folder: "/out".into(),
            deadline: Duration::from_secs(1),
            silence: None,
            counted: true,
            disks: vec![("/image".into(), "peers")],
        }
    }

    /// A script in the place of QEMU, which says that it has begun where a guest would, and whatever `goes_on` has it say. It is
    /// written by a process of its own: one that another test forks meanwhile would hold it open, and it could not be run.
    fn stand_in(root: &Path, goes_on: &str) {
        let script = format!(
            "#!/bin/sh\nfor word; do case \"$word\" in\n\
             file,id=console,*) echo 'it hangs' > \"${{word#*path=}}\" ;;\n\
             file,id=output,*) output=${{word#*path=}} ;;\n\
             esac; done\necho begun >> \"$output\"\n{goes_on}\n"
        );
        let place = "mkdir -p usr/bin && cat > usr/bin/qemu-system-x86_64 && chmod 755 usr/bin/*";
        let mut shell = Command::new("sh")
            .args(["-c", place])
            .current_dir(root)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        assert!(shell.wait().unwrap().success());
    }

    #[test]
    fn a_guest_that_hangs_is_ended_by_its_silence_or_at_its_deadline() {
        const LONG: Duration = Duration::from_mins(1);
        const SHORT: Duration = Duration::from_secs(2);
        let silent = "exec sleep 100";
        let chatty = "while sleep 0.1; do echo more >> \"$output\"; done";
        for (goes_on, deadline, silence) in [
            (silent, LONG, Some(SHORT)),
            (silent, SHORT, None),
            (chatty, SHORT, Some(LONG)),
        ] {
            let folder = tempfile::tempdir().unwrap();
            stand_in(folder.path(), goes_on);
            let (tools, kernel) = (tools(folder.path()), kernel());
            let machine = Machine {
                folder: folder.path().join("out"),
                deadline,
                silence,
                ..machine(&tools, &kernel)
            };
            let mut told = Vec::new();
            let ended = machine.run(|line| told.push(line.to_owned())).unwrap();
            assert!(ended.status.is_none(), "{ended:?}");
            assert!(
                ended.elapsed >= SHORT && ended.elapsed < LONG,
                "{ended:?} by {deadline:?} and {silence:?}"
            );
            assert_eq!(told.first().map(String::as_str), Some("begun"));
            assert_eq!(told.len() > 1, goes_on == chatty, "{told:?}");
            assert_eq!(tail(&machine.console(), 1), "    it hangs\n");
        }
    }

    #[test]
    fn the_guest_is_cut_off_and_emulated_in_one_thread() {
        let (tools, kernel) = (tools(Path::new("/tools")), kernel());
        let machine = machine(&tools, &kernel);
        let words: Vec<String> = machine
            .arguments()
            .into_iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let line = words.join(" ");
        for part in [
            "-nic none",
            "-accel tcg,thread=single",
            "-no-reboot",
            "-m 2048",
            "snapshot=on,file=/image",
            "nvme,drive=peers,serial=peers",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        let said = words.iter().find(|word| word.starts_with("console="));
        let said = said.unwrap();
        assert!(
            said.contains(" panic=-1 ") && said.ends_with(" psi=0 PATH=/bin -- guest"),
            "{said}"
        );
    }
}
