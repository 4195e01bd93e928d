//! The hog as a program: takes memory as its arguments say (`brink_host::hog`), and is there to be killed.
//!
//! By `in-namespace ENTRANCE PROGRAM …` it becomes that program instead, in the control group whose `cgroup.procs` the entrance is and
//! in a cgroup namespace that begins there. The `unshare` of busybox knows no such namespace.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::thread::UnshareFlags;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|word| word == "in-namespace").is_none() {
        return brink_host::hog::main(arguments);
    }
    let Err(error) = become_in_namespace(arguments);
    eprintln!("hog: {error}");
    ExitCode::FAILURE
}

fn become_in_namespace(mut line: impl Iterator<Item = OsString>) -> io::Result<Infallible> {
    let (Some(entrance), Some(program)) = (line.next(), line.next()) else {
        return Err(io::Error::other("in-namespace ENTRANCE PROGRAM …"));
    };
    fs::write(entrance, "0")?;
    #[expect(
        deprecated,
        reason = "safe with this flag: no file descriptor is concerned"
    )]
    rustix::thread::unshare(UnshareFlags::NEWCGROUP)?;
    Err(Command::new(program).args(line).exec())
}
