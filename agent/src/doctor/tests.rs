//! Tests of the doctor.
