//! Filesystems and what folders use, on filesystems of the tests' own: filled, read-only, moved about, listened to.
#![cfg(test)]

mod filesystem;
