//! What a run finds in the folder: segments to keep, one to go on with, and what is none of ours.

use std::collections::VecDeque;
use std::io;

use super::disk::{Disk, DiskFile, front};
use super::read::Damage;
use super::record::{HEAD, Head, What};
use super::scan::Scan;
use super::store::{ASIDE, Current, Segment, aside_number, name, number};

/// What was found when the journal was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last event that is kept: its boot, and its number.
    pub last: Option<(String, u64)>,
    /// Bytes behind the last event that are no whole one: what a crash cut off. Nothing that was safe.
    pub torn: u64,
    /// Bytes between events of the newest segment that cannot be read.
    pub unreadable: u64,
    /// The segments that were read and have such bytes, of either sort. No more are read than it takes to find the last event.
    pub damaged: Vec<Damage>,
    /// Files that were no segments, by their old and new names.
    pub put_aside: Vec<(String, String)>,
    /// Events of earlier runs that waited for the disk when those ended, at the least: they are lost.
    pub unwritten: u64,
}

/// The files that a run goes on with.
#[derive(Debug)]
pub(super) struct Files<F> {
    pub(super) old: VecDeque<Segment>,
    pub(super) current: Option<Current<F>>,
    pub(super) next_number: u64,
}

pub(super) fn recover<D: Disk>(disk: &D, boot_id: &str) -> io::Result<(Files<D::File>, Recovery)> {
    let mut recovery = Recovery::default();
    let Sorted {
        mut found,
        last,
        aside,
    } = sort_out(disk, &mut recovery)?;
    let mut files = Files {
        old: VecDeque::new(),
        current: None,
        next_number: last.max(aside).map_or(1, |last| last.saturating_add(1)),
    };
    let is_clean = look_back(disk, &found, &mut recovery)?;
    // Never before what was put aside: the gap between the numbers tells readers of it.
    let goes_on = |(number, head, _): &mut (u64, Head, u64)| {
        is_clean && head.boot_id == boot_id && aside < Some(*number)
    };
    if let Some((number, head, size)) = found.pop_if(goes_on) {
        files.current = Some(Current {
            number,
            file: disk.open_for_writing(&name(number))?,
            begun: head.begun,
            length: size,
        });
    }
    files.old = found
        .iter()
        .map(|(number, head, size)| Segment {
            number: *number,
            size: *size,
            begun: head.begun,
        })
        .collect();
    Ok((files, recovery))
}

/// What there is by the names in the folder.
struct Sorted {
    /// The segments with their sizes, the oldest first.
    found: Vec<(u64, Head, u64)>,
    /// The highest number of a file.
    last: Option<u64>,
    /// The highest of one that was put aside, now or before.
    aside: Option<u64>,
}

fn sort_out<D: Disk>(disk: &D, recovery: &mut Recovery) -> io::Result<Sorted> {
    let names = disk.list()?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    let mut sorted = Sorted {
        found: Vec::new(),
        last: None,
        aside: names.iter().filter_map(|name| aside_number(name)).max(),
    };
    for number in numbers {
        match head_of(disk, number)? {
            Found::Segment(head, size) => sorted.found.push((number, head, size)),
            // Its number is free again: a gap would count as a segment that somebody has removed.
            Found::NeverBegun => {
                disk.remove(&name(number))?;
                continue;
            }
            Found::Foreign => {
                recovery.put_aside.push(put_aside(disk, number)?);
                sorted.aside = sorted.aside.max(Some(number));
            }
        }
        sorted.last = Some(number);
    }
    Ok(sorted)
}

enum Found {
    Segment(Head, u64),
    /// A crash came between its making and its head.
    NeverBegun,
    Foreign,
}

fn head_of<D: Disk>(disk: &D, number: u64) -> io::Result<Found> {
    let file = match disk.open(&name(number)) {
        Ok(file) => file,
        // A folder or a pipe of that name.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(Found::Foreign),
        Err(error) => return Err(error),
    };
    let size = file.length()?;
    let Some(bytes) = front::<HEAD>(&file)? else {
        return Ok(Found::Foreign);
    };
    if let Some(head) = Head::decode(&bytes) {
        return Ok(Found::Segment(head, size));
    }
    let is_begun = Head::is_begun(&bytes) || bytes.iter().all(|byte| *byte == 0);
    if size <= HEAD as u64 && is_begun {
        return Ok(Found::NeverBegun);
    }
    Ok(Found::Foreign)
}

fn put_aside<D: Disk>(disk: &D, number: u64) -> io::Result<(String, String)> {
    let old = name(number);
    let new = set_aside(disk, &old)?;
    Ok((old, new))
}

/// Gives what is no file of ours a name that nobody has; returns that.
pub(super) fn set_aside<D: Disk>(disk: &D, old: &str) -> io::Result<String> {
    let names = disk.list()?;
    let mut new = format!("{old}{ASIDE}");
    let mut count = 1_u32;
    while names.contains(&new) {
        count += 1;
        new = format!("{old}{ASIDE}-{count}");
    }
    disk.rename(old, &new)?;
    disk.sync_names()?;
    Ok(new)
}

/// Finds the last event. `true` where the newest segment may be gone on with.
fn look_back<D: Disk>(
    disk: &D,
    found: &[(u64, Head, u64)],
    recovery: &mut Recovery,
) -> io::Result<bool> {
    let mut is_clean = None;
    for (number, head, _) in found.iter().rev() {
        let mut scan = Scan::new(disk.open(&name(*number))?, HEAD as u64);
        let mut last = None;
        while let Some(record) = scan.next()? {
            if record.what == What::Line {
                last = Some((head.boot_id.clone(), record.seq));
            }
        }
        let bytes = scan.unreadable + scan.tail();
        if bytes > 0 {
            recovery.damaged.push(Damage {
                file: name(*number),
                bytes: Some(bytes),
            });
        }
        if is_clean.is_none() {
            recovery.torn = scan.tail();
            recovery.unreadable = scan.unreadable;
            is_clean = Some(scan.tail() == 0 && scan.unreadable == 0);
        }
        if last.is_some() {
            recovery.last = last;
            break;
        }
    }
    Ok(is_clean.unwrap_or(false))
}
