//! What a process holds.
use std::fs;

use anyhow::Context as _;

/// Resident memory of a process, in bytes.
pub(super) fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("VmRSS")?.parse::<u64>()? << 10)
}
