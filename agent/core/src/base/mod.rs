//! What every rule needs and no rule owns: time, quantities, limits on rates, words for causes.

pub mod duration;
pub mod float;
pub mod quantity;
pub mod rate;
pub mod reason;
pub mod time;

pub use quantity::{Format, Quantity};
pub use reason::Reason;
pub use time::{Moment, Span};
