//! Helpers shared by the test targets of the whole.
