//! A socket that is root's alone, and somebody who is not root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use brink_cri::client::{Client, Patience};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use super::told;

#[test]
fn who_may_not_use_the_socket_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("cri.sock");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("permitted");
    fs::set_permissions(&socket, Permissions::from_mode(0o600)).expect("permitted");
    // Of this thread alone, and it ends with the test.
    let nobody = Uid::from_raw(65_534);
    set_thread_res_uid(Uid::ROOT, nobody, Uid::ROOT).expect("another user");
    let connected = told(Client::connect(&socket, Patience::default()));
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).expect("root again");
    let error = connected.expect_err("denied");
    assert_eq!(error.name(), "denied", "{error}");
    assert!(error.to_string().contains("Permission denied"), "{error}");
}
