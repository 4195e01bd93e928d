//! Tests of coverage.
