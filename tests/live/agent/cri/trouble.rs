//! A runtime that is stopped, killed and started again while it is asked.

use std::time::{Duration, Instant};

use brink_cri::client::{Client, Patience, Runtime as _};
use brink_cri::state::Standing;
use brink_tests::slowed;
use rustix::process::Signal;

use super::pods::Pod;
use super::{start, told};

const IMAGE: &str = "localhost/used:1";

#[test]
fn one_that_hangs_keeps_nobody_waiting_and_answers_again_afterwards() {
    let containerd = start!(&[IMAGE]);
    told(async {
        let patience = Patience {
            ask: Duration::from_millis(500),
            ..Patience::default()
        };
        let client = Client::connect(&containerd.socket(), patience).await;
        let client = client.expect("an answer");
        containerd.signal(Signal::STOP);
        let began = Instant::now();
        let error = client.read().await.expect_err("no answer");
        assert_eq!(error.name(), "hung", "{error}");
        assert!(began.elapsed() < slowed(Duration::from_secs(3)));
        // Whoever comes anew is let in by the kernel and not answered either.
        let error = Client::connect(&containerd.socket(), patience).await;
        assert_eq!(error.expect_err("no answer").name(), "hung");
        containerd.signal(Signal::CONT);
        let state = containerd.connect_again().await.read().await;
        assert_eq!(state.expect("an answer").images.len(), 2);
    });
}

#[test]
fn one_that_is_restarted_is_gone_and_then_holds_what_it_held() {
    let containerd = start!(&[IMAGE]);
    told(async {
        let client = containerd.connect().await.expect("an answer");
        let parent = containerd.cgroup_parent();
        let pod = Pod::make(&client, "lives", &parent, false)
            .await
            .expect("a pod");
        let sleep = ["/busybox", "sleep", "3600"];
        let running = pod
            .run(&client, 0, IMAGE, &sleep)
            .await
            .expect("a container");
        containerd.signal(Signal::KILL);
        let error = loop {
            // The kernel may have an answer on the way still.
            if let Err(error) = client.read().await {
                break error;
            }
        };
        assert_eq!(error.name(), "gone", "{error}");
        assert!(client.is_closed());
        let again = containerd.connect_again().await;
        let standing = again.standing(&running).await.expect("an answer");
        assert_eq!(standing, Some(Standing::Running));
    });
}
