//! A copy of a ledger slot on its way to the runtime, in a buffer that is used again.

use crate::ledger::{COMPLETION_BYTES, Completion, RECORD_BYTES, Record};

/// A decision as it lies in the ledger.
#[derive(Debug)]
pub struct Page {
    record: Box<[u8; RECORD_BYTES]>,
    completion: Option<Completion>,
}

impl Default for Page {
    fn default() -> Self {
        // Not zero, so that its pages are there.
        Self {
            record: Box::new([1; RECORD_BYTES]),
            completion: None,
        }
    }
}

impl Page {
    /// Fills it.
    pub fn write(&mut self, record: &Record<'_>, completion: Option<Completion>) {
        // A record fits by construction: names are cut to a fixed length.
        let _fits = postcard::to_slice(record, &mut self.record[..]);
        self.completion = completion;
    }

    /// Adds what became of the decision.
    pub fn complete(&mut self, completion: Completion) {
        self.completion = Some(completion);
    }

    /// Takes over what another page says, in place.
    pub fn copy_from(&mut self, other: &Self) {
        self.record.copy_from_slice(&other.record[..]);
        self.completion = other.completion;
    }

    /// The decision.
    ///
    /// # Errors
    /// When the bytes are no record.
    pub fn record(&self) -> Result<Record<'_>, postcard::Error> {
        postcard::from_bytes(&self.record[..])
    }

    /// What became of it, as far as it is known.
    pub const fn completion(&self) -> Option<&Completion> {
        self.completion.as_ref()
    }
}

const _: () = assert!(COMPLETION_BYTES < RECORD_BYTES);
