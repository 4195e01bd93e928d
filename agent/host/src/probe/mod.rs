//! The kernel programs from user space: what this host offers, what runs, the signals, the samples, the counters.
//!
//! [`facts`] gathers, [`coverage`] decides and sets, [`Probe::load`] loads. Every program is optional: the coverage says
//! which run and why the others do not, and only their own rung is lowered. Layouts come from the running kernel's own
//! type description ([`btf`], [`layout`]) and tracepoint formats ([`mod@format`]), never from the build machine.

pub mod births;
pub mod btf;
pub mod calibrate;
mod call;
mod commands;
pub mod coverage;
pub mod decode;
pub mod error;
pub mod evidence;
pub mod facts;
mod fdinfo;
pub mod flight;
mod follow;
pub mod forensics;
pub mod format;
pub mod gfp;
mod handle;
pub mod layout;
mod load;
#[cfg(feature = "probe-log")]
pub mod log;
pub mod meters;
pub mod pace;
mod pages;
mod pod;
mod processes;
pub mod programs;
pub mod shortage;
mod skipped;
pub mod survey;
mod thin;
pub mod truth;

pub use births::{BirthReader, Births};
pub use brink_abi as abi;
pub use commands::ArmedNode;
pub use coverage::{Absence, Coverage, Settings, Wishes};
pub use decode::{CgroupChange, Evidence, Signal};
pub use error::{ProbeError, Refusal};
pub use evidence::EvidenceReader;
pub use facts::{Facts, Roots};
pub use flight::FlightReader;
pub use follow::{Followed, TraceReading};
pub use forensics::ForensicsRing;
pub use gfp::GfpNames;
pub use handle::Probe;
pub use meters::{Meters, Row};
pub use pace::Growth;
pub use processes::Victim;
pub use programs::Family;
pub use survey::Survey;
