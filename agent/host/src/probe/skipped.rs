//! Runs of programs that the kernel has left out.
//!
//! A program that runs on a processor is not begun there a second time. Where tracepoints can be preempted (Linux 7), that happens
//! whenever a task is taken off its processor within one: what the next task there had to tell is told by nobody, and only the
//! kernel counts it.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};

use aya::Ebpf;

use super::coverage::Coverage;
use super::fdinfo;

/// What is known of a program by its descriptor. The probe owns that: with the probe it may become somebody else's.
struct Handle {
    name: &'static str,
    fd: RawFd,
    id: String,
}

/// The programs of an object that run.
pub(super) struct Handles(Vec<Handle>);

impl Handles {
    /// Of those that are wanted.
    pub(super) fn of(object: &Ebpf, coverage: &Coverage, is_wanted: impl Fn(&str) -> bool) -> Self {
        let running = coverage.programs().filter(|(_, state)| state.is_ok());
        let running = running.filter(|(program, _)| is_wanted(program.name));
        let handles = running.filter_map(|(program, _)| {
            let fd = object.program(program.name)?.fd().ok()?;
            let fd = fd.as_fd().as_raw_fd();
            let id = fdinfo::value(&fdinfo::read(fd)?, "prog_id:")?.to_owned();
            let name = program.name;
            Some(Handle { name, fd, id })
        });
        Self(handles.collect())
    }

    /// How often each of these was left out since it was loaded; none of those of which the kernel does not tell.
    pub(super) fn skipped(
        &self,
        is_asked: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        let asked = self.0.iter().filter(move |handle| is_asked(handle.name));
        asked.filter_map(|handle| {
            let told = fdinfo::read(handle.fd)?;
            let is_same = fdinfo::value(&told, "prog_id:")? == handle.id;
            let count = fdinfo::value(&told, "recursion_misses:")?.parse().ok()?;
            is_same.then_some((handle.name, count))
        })
    }
}
