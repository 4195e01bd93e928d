//! The agent as a program without shared libraries, for images and packages: how it is built, and how it is known.
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::{
    test::artifacts,
    workspace::{self, Metadata},
};

#[cfg(target_arch = "x86_64")]
const TARGET: &str = "x86_64-unknown-linux-gnu";
#[cfg(target_arch = "aarch64")]
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// How much the compiler optimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// What people run.
    Release,
    /// For trying it out: built in a fraction of the time.
    Guest,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Guest => "guest",
        }
    }
}

/// Builds the agent, in a folder of its own beside all others.
///
/// # Errors
/// When the build fails.
pub(crate) fn build(metadata: &Metadata, profile: Profile) -> anyhow::Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--package", "brink", "--bin", "brink", "--locked"]);
    cargo.args([
        "--target",
        TARGET,
        "--profile",
        profile.name(),
        "--target-dir",
    ]);
    cargo.arg(metadata.target_directory.join("static"));
    // The encoded form would win over the plain one.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let built = artifacts::build_with(&mut cargo, &metadata.packages);
    built.context("building a static agent")?.program("brink")
}

/// The program header that names a loader: `PT_INTERP` (`elf(5)`).
const INTERPRETER: u32 = 3;

/// The machine that a program is for, by the word that images and packages have for it.
///
/// # Errors
/// When it is no 64-bit program of Linux, or one that a loader has to put together.
pub(crate) fn architecture(program: &[u8]) -> anyhow::Result<&'static str> {
    let head = program.get(..64).context("no program at all")?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        bail!("no 64-bit ELF file of the lesser end first");
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let machine = match half(18) {
        62 => "amd64",
        183 => "arm64",
        other => bail!("a program for machine {other}, which nobody builds for here"),
    };
    let mut offset = [0; 8];
    offset.copy_from_slice(&head[32..40]);
    let first = usize::try_from(u64::from_le_bytes(offset))?;
    let (size, count) = (usize::from(half(54)), usize::from(half(56)));
    for index in 0..count {
        let at = index.checked_mul(size).and_then(|at| at.checked_add(first));
        let kind = at.and_then(|at| program.get(at..at.checked_add(4)?));
        let kind = kind.context("its program headers are cut off")?;
        if kind == INTERPRETER.to_le_bytes() {
            bail!(
                "it needs a loader and shared libraries: build it with `-C target-feature=+crt-static`"
            );
        }
    }
    Ok(machine)
}

/// The least that is a program by its head, with or without a loader.
#[cfg(test)]
pub(crate) fn sample(with_loader: bool) -> Vec<u8> {
    let mut program = vec![0_u8; 64 + 2 * 56];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    program[18] = 62;
    program[32] = 64;
    program[54] = 56;
    program[56] = 2;
    program[64] = 1;
    program[64 + 56] = if with_loader { 3 } else { 2 };
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &[u8], expected: Result<&str, &str>) {
        match (architecture(program), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(part)) => assert!(format!("{error:#}").contains(part), "{error:#}"),
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn static_programs_are_told_from_others() {
        check(&sample(false), Ok("amd64"));
        let arm = sample(false).into_iter().enumerate();
        let arm: Vec<u8> = arm
            .map(|(at, byte)| if at == 18 { 183 } else { byte })
            .collect();
        check(&arm, Ok("arm64"));
        check(&sample(true), Err("shared libraries"));
        check(&sample(false)[..100], Err("cut off"));
        check(b"#!/bin/sh\n", Err("no program"));
        check(&[0; 200], Err("no 64-bit ELF"));
        let other = [&sample(false)[..18], &[40], &sample(false)[19..]].concat();
        check(&other, Err("machine 40"));
    }
}
