//! Events as lines on standard output, for containers whose output is collected.

use std::io::Write;
use std::sync::Arc;

use super::{Failure, Format, Outlet};
use crate::hub::Line;

/// Lines on any writer; standard output, outside of tests.
#[derive(Debug)]
pub struct Lines<W> {
    to: W,
    format: Format,
    /// What a write has taken only a part of: the rest goes first.
    rest: Vec<u8>,
}

impl<W: Write + Send> Lines<W> {
    /// Lines on `to`.
    pub const fn new(to: W, format: Format) -> Self {
        Self {
            to,
            format,
            rest: Vec::new(),
        }
    }

    fn write_rest(&mut self) -> std::io::Result<()> {
        while !self.rest.is_empty() {
            match self.to.write(&self.rest) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(length) => drop(self.rest.drain(..length)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.to.flush()
    }
}

impl<W: Write + Send> Outlet for Lines<W> {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        // Of a line that went in part the rest stands in front, and the line is done with: nothing is written twice.
        self.write_rest().map_err(|error| Failure::io(0, &error))?;
        for (done, line) in lines.iter().enumerate() {
            self.format.write(line, &mut self.rest);
            let length = self.rest.len();
            if let Err(error) = self.write_rest() {
                let is_begun = self.rest.len() < length;
                if !is_begun {
                    self.rest.clear();
                }
                return Err(Failure::io(done + usize::from(is_begun), &error));
            }
        }
        Ok(())
    }
}
