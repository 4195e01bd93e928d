//! What happens to a cgroup arrives as evidence, in its order, with its identity.

use std::path::PathBuf;

use brink_host::probe::abi::record::{CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_POPULATED, CGROUP_RMDIR};
use brink_host::probe::{Evidence, Row, Wishes};
use brink_tests::lacks;
use probe_support::{Group, probe, until};

mod probe_support;

#[test]
fn the_life_of_a_cgroup_is_told() {
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut evidence = probe.take_evidence().unwrap();
    let group = match Group::new("life") {
        Ok(group) => group,
        Err(why) => lacks!("{why}"),
    };
    let (id, name) = (
        group.id(),
        PathBuf::from("/").join(group.path().file_name().unwrap()),
    );
    let mut child = group.run("exec true");
    let pid = child.id();
    child.wait().unwrap();
    until("the group to be empty", || {
        (group.processes() == 0).then_some(())
    });
    group.remove();
    let mut changes = Vec::new();
    until("five changes", || {
        evidence.drain(usize::MAX, |each| {
            if let Evidence::Cgroup(change) = each
                && change.id == id
            {
                assert_eq!(
                    (change.level, change.path),
                    (1, name.as_os_str().as_encoded_bytes())
                );
                changes.push((change.change, change.value));
            }
        });
        (changes.len() >= 5).then_some(())
    });
    assert_eq!(
        changes[..3],
        [
            (CGROUP_MKDIR, 0),
            (CGROUP_POPULATED, 1),
            (CGROUP_ATTACH, pid)
        ]
    );
    // Newer kernels remove a group whose last process is still dying, and tell that it is empty after that.
    let mut last = changes[3..].to_vec();
    last.sort_unstable();
    assert_eq!(last, [(CGROUP_RMDIR, 0), (CGROUP_POPULATED, 0)]);
    let loss = meters.loss(Row::CgroupEvidence).unwrap();
    assert_eq!(loss.dropped, 0, "{loss:?}");
}
