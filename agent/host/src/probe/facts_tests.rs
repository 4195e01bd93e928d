//! Tests of facts.
