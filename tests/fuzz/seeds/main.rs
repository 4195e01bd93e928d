//! Writes the seeds that nobody can write by hand: `cargo run -p brink-fuzz --example seeds`, after a form has changed.
//!
//! They are records of the rings, traces of the flight recorder's timer, slots of the ledger, journals of both kinds, what is said over the socket, what a container
//! runtime answers, and what the kernel tells of changes on a disk.

mod changes;
mod lines;
mod ring;
mod runtime;
mod segments;
mod slots;
mod talk;
mod traces;

use std::fs;
use std::path::Path;

use brink_fuzz::Target;

fn main() {
    ring::records();
    ring::kills();
    traces::rings();
    slots::ledger();
    lines::journal();
    segments::event_journal();
    talk::answers();
    runtime::answers();
    changes::readings();
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let folder = Target::find(target).map(|target| target.corpus());
    let path = folder.unwrap_or_default().join(name);
    let made = fs::create_dir_all(path.parent().unwrap_or(Path::new("")));
    let written = made.and_then(|()| fs::write(&path, bytes));
    println!("{}: {written:?}", path.display());
}
