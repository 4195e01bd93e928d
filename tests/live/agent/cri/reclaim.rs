//! Dead containers and unused images of a real runtime go; the rest is as it was.

use std::time::Duration;

use brink_core::base::Moment;
use brink_core::node::reclaim::Reclaim;
use brink_cri::act::{Ended, Order, Target, act};
use brink_cri::client::{Client, Runtime as _};
use brink_cri::plan::{Fate, Known, Plan, Policy, plan};
use brink_cri::state::{Image, Pod as PodName, Standing, State};
use brink_cri::usage::Records;
use brink_tests::slowed;

use super::containerd::SANDBOX;
use super::pods::{Pod, ended, placed, written};
use super::{start, told};

const BOTH: [Reclaim; 2] = [Reclaim::DeadContainers, Reclaim::UnusedImages];
pub(super) const USED: &str = "localhost/used:1";
pub(super) const OF_THE_DEAD: &str = "localhost/of-the-dead:1";
const UNUSED: &str = "localhost/unused:1";
pub(super) const SLEEP: [&str; 3] = ["/busybox", "sleep", "3600"];

fn fate(pod: &PodName) -> Fate {
    if pod.name == "over" {
        Fate::Over
    } else {
        Fate::Lives
    }
}

fn planned(state: &State, records: &Records, layers: &brink_cri::state::Layers) -> Plan {
    let known = Known {
        fates: &fate,
        records,
        layers,
        now: Moment::from_secs(1000),
    };
    plan(&BOTH, state, &Policy::default(), &known)
}

/// What is there: containers by identity, images by name.
pub(super) fn held(state: &State) -> (Vec<&str>, Vec<&str>) {
    let mut containers: Vec<&str> = state.containers.iter().map(|one| &*one.id).collect();
    let mut images: Vec<&str> = state.images.iter().map(Image::in_words).collect();
    containers.sort_unstable();
    images.sort_unstable();
    (containers, images)
}

#[test]
fn dead_containers_and_unused_images_go_and_nothing_else() {
    let containerd = start!(&[USED, OF_THE_DEAD, UNUSED]);
    told(async {
        let client = containerd.connect().await.expect("an answer");
        assert_eq!(client.identity().name, "containerd");
        let parent = containerd.cgroup_parent();
        let lives = Pod::make(&client, "lives", &parent, false)
            .await
            .expect("a pod");
        let over = Pod::make(&client, "over", &parent, false)
            .await
            .expect("a pod");
        let run = async |pod: &Pod, attempt, image, command: &[&str]| {
            pod.run(&client, attempt, image, command)
                .await
                .expect("a container")
        };
        let write = "dd if=/dev/zero of=/written bs=1M count=2";
        let first = run(&lives, 0, USED, &["/busybox", "sh", "-c", write]).await;
        let second = run(&lives, 1, USED, &["/busybox", "true"]).await;
        let running = run(&lives, 2, USED, &SLEEP).await;
        let last = run(&over, 0, OF_THE_DEAD, &["/busybox", "true"]).await;
        let state = ended(&client, &[&first, &second, &last]).await;
        assert_eq!(state.sandbox_images, [SANDBOX]);

        let mut records = Records::default();
        records.observe(Moment::START, &state);
        let layers = written(&client, &first, 2 << 20).await;
        assert!(layers[&first].at > 0, "it says when it has measured");
        let living = client.layers_of_the_living().await.expect("an answer");
        assert_eq!(living[&first].bytes, 0, "who has ended holds nothing");
        let dry = planned(&state, &records, &layers);
        let going: Vec<&str> = dry.containers.iter().map(|one| &*one.id).collect();
        assert_eq!(going, [&last, &first], "{dry:?}");
        let images: Vec<&str> = dry.images.iter().map(|one| &*one.name).collect();
        // The one that was never used first.
        assert_eq!(images, [UNUSED, OF_THE_DEAD], "{dry:?}");
        assert!(dry.frees_bytes() > 2 << 20, "{dry:?}");
        assert_eq!(
            client.read().await.expect("an answer"),
            state,
            "a plan changes nothing"
        );

        let report = reclaim(&client, &mut records).await;
        let removed: Vec<&str> = report.removed.iter().map(name).collect();
        assert_eq!(removed, [&*last, &*first, UNUSED, OF_THE_DEAD]);
        assert!(
            report.refused.is_empty() && report.spared.is_empty(),
            "{report:?}"
        );
        let state = client.read().await.expect("an answer");
        let mut left = [running.as_str(), second.as_str()];
        left.sort_unstable();
        let (there, images) = held(&state);
        assert_eq!(there, left);
        assert_eq!(images, [SANDBOX, USED]);
        let standing = client.standing(&running).await.expect("an answer");
        assert_eq!(standing, Some(Standing::Running));
        // What is gone is gone without an error, as for whoever comes second.
        client.remove_container(&first).await.expect("no error");
        assert_eq!(client.standing(&first).await.expect("an answer"), None);
    });
}

fn name(target: &Target) -> &str {
    match target {
        Target::Container(one) => &one.id,
        Target::Image(one) => &one.name,
    }
}

async fn reclaim(client: &Client, records: &mut Records) -> brink_cri::act::Report {
    let policy = Policy::default();
    let order = Order {
        ways: &BOTH,
        policy: &policy,
        fates: &fate,
        clock: &|| Moment::from_secs(1000),
        until: tokio::time::Instant::now() + slowed(Duration::from_secs(30)),
    };
    act(client, order, records, |_, _| false).await
}

#[test]
fn a_kubelets_containers_are_left_to_it() {
    let containerd = start!(&[UNUSED]);
    told(async {
        let client = containerd.connect().await.expect("an answer");
        let parent = containerd.cgroup_parent();
        let pod = Pod::make(&client, "over", &parent, true)
            .await
            .expect("a pod");
        let dead = pod.run(&client, 0, UNUSED, &["/busybox", "true"]).await;
        let state = ended(&client, &[&dead.expect("a container")]).await;
        assert!(state.is_kubelets());
        let mut records = Records::default();
        records.observe(Moment::START, &state);
        let report = reclaim(&client, &mut records).await;
        assert!(matches!(report.ended, Ended::LeftToKubelet), "{report:?}");
        assert_eq!(client.read().await.expect("an answer"), state);
    });
}

#[test]
fn images_lie_where_the_runtime_says() {
    let containerd = start!(&[UNUSED]);
    told(async {
        let client = containerd.connect().await.expect("an answer");
        let places = placed(&client).await;
        assert!(places.images.is_dir(), "{places:?}");
        let layers = places.layers.as_deref();
        assert!(layers.is_none_or(std::path::Path::is_dir), "{places:?}");
    });
}
