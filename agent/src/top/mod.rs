//! `brink top`: the node's room, who would go first and what has happened, live in a terminal or once as text.
//!
//! [`source`] asks the agent, [`state`] is what is known and what was pressed, [`draw`] makes a picture of it and [`once`] a page;
//! [`live`] alone touches the terminal.

pub mod draw;
mod growth;
pub mod live;
pub mod look;
pub mod once;
mod picture;
mod rows;
pub mod source;
pub mod state;
