//! The hog as a program: takes memory as its arguments say (`brink_host::hog`), and is there to be killed.

use std::process::ExitCode;

fn main() -> ExitCode {
    brink_host::hog::main(std::env::args_os().skip(1))
}
