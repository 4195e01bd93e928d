//! A kernel that was booted without pressure information alone, as `cargo xtask vm` does: everything but the sight of it is there.

use std::fs;

use brink_tests::{booted_with, lacks};

use crate::ladder::Standing;
use crate::support::Node;

#[test]
fn a_kernel_without_pressure_information_is_protected_from_the_top_rung() {
    if !booted_with("psi=0") || booted_with("cgroup_disable=memory") {
        lacks!("only on a kernel booted with psi=0 alone");
    }
    assert!(fs::read("/proc/pressure/memory").is_err(), "there is some");
    let mut node = Node::new(300);
    let standing = Standing::of(&mut node, "");
    assert_eq!(standing.rung(), "kernel-sampler", "{}", standing.reasons());
    let (state, said) = standing.check("memory.pressure");
    assert_eq!(state, "note", "{said}");
    assert!(said.contains("psi=1"), "{said}");
}
