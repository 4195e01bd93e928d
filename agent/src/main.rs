//! The `brink` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    brink::cli::main()
}
