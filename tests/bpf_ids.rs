//! What a process and the whole kernel hold of BPF, by the kernel's own ids.

use std::collections::BTreeSet;
use std::{fs, io};

/// Ids of programs, maps and links, each with what it is of.
pub type Ids = BTreeSet<(&'static str, u32)>;

/// The kinds, as they are told here and as the kernel names their ids.
const KINDS: [(&str, &str); 3] = [
    ("program", "prog_id:"),
    ("map", "map_id:"),
    ("link", "link_id:"),
];

/// What a process holds by its descriptors.
///
/// # Errors
/// When there is no such process, or it may not be looked at.
pub fn held(pid: u32) -> io::Result<Ids> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))?;
    // One that is closed meanwhile is held no more.
    let texts = entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let ids = texts.flat_map(|text| {
        KINDS.map(|(kind, key)| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some((kind, line.trim().parse::<u32>().ok()?))
        })
    });
    Ok(ids.flatten().collect())
}

/// What the whole kernel has, whoever holds it: by descriptors, pins or references alone.
pub fn loaded() -> Ids {
    let programs = aya::programs::loaded_programs().flatten();
    let maps = aya::maps::loaded_maps().flatten();
    let links = aya::programs::loaded_links().flatten();
    let programs = programs.map(|program| ("program", program.id()));
    let maps = maps.map(|map| ("map", map.id()));
    let links = links.map(|link| ("link", link.id()));
    programs.chain(maps).chain(links).collect()
}
