//! What the kernel tells of a descriptor of ours: of a map its memory, of a program how it fares.

use std::fs;
use std::os::fd::RawFd;

/// All it tells; none where there is no such descriptor.
pub(super) fn read(fd: RawFd) -> Option<String> {
    fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()
}

/// What stands behind this key.
pub(super) fn value<'a>(told: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = told.lines();
    lines.find_map(|line| Some(line.strip_prefix(key)?.trim()))
}
