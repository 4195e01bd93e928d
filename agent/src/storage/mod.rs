//! What workloads use of disks: whose folders are where, and the thread that measures them.
//!
//! The guard only ever reads finished figures. Everything that may wait, or hang, is the thread's: it goes behind all others for
//! the disk and for processors, and where the kernel tells what has changed it walks only that.

mod ground;
pub mod keeper;
mod layers;
pub mod measured;
pub mod need;
pub mod once;
pub mod owned;
mod rests;
mod rounds;
mod walk;

pub use keeper::Keeper;
pub use measured::Measured;
