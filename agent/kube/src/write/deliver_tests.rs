//! The postman before a server that behaves in all the ways a server can.

use std::path::Path;
use std::sync::Mutex;

use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{Instant, timeout};

use super::super::fake::{Fake, Plays};
use super::*;
use crate::outbox::entry::tests::entry;
use crate::outbox::{End, Part};

const STATUS: &str = "PATCH /api/v1/namespaces/shop/pods/web-5d/status";
const POD: &str = "GET /api/v1/namespaces/shop/pods/web-5d";
const EVENT: &str = "POST /api/v1/namespaces/shop/events";

/// A node: its clock is the test's, and its pods are as the test says.
struct Node {
    began: Instant,
    fake: Fake,
    seen: Mutex<Seen>,
    /// How many requests there had been at each look at a pod.
    looks: Mutex<Vec<usize>>,
    told: Mutex<Vec<Told>>,
}

impl Around for Node {
    fn now(&self) -> Moment {
        let nanos = i64::try_from(self.began.elapsed().as_nanos()).unwrap();
        Moment::from_secs(1) + brink_core::base::Span::from_nanos(nanos)
    }

    fn seen(&self, _uid: &str) -> Seen {
        self.looks.lock().unwrap().push(self.fake.lines().len());
        *self.seen.lock().unwrap()
    }

    fn wake(&self) -> Option<Moment> {
        None
    }

    fn told(&self, told: &Told) {
        self.told.lock().unwrap().push(told.clone());
    }
}

struct Scene {
    fake: Fake,
    node: Arc<Node>,
    files: Arc<Files>,
    new: Sender<Entry>,
    pods: watch::Sender<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl Scene {
    fn start(folder: &Path, fake: &Fake) -> Self {
        let files = Arc::new(Files::open(folder).unwrap());
        let ours = Arc::new(Notify::new());
        ours.notify_one();
        let (new, receiver) = channel(8);
        let (pods, changes) = watch::channel(0);
        let node = Arc::new(Node {
            began: Instant::now(),
            fake: fake.clone(),
            seen: Mutex::new(Seen::Unknown),
            looks: Mutex::default(),
            told: Mutex::default(),
        });
        let postman = Postman {
            door: Door::by(fake.client()),
            node: "node-a".to_owned(),
            seed: 7,
            files: Arc::clone(&files),
            new: receiver,
            pods: changes,
            ours,
            around: Arc::clone(&node),
        };
        Self {
            fake: fake.clone(),
            node,
            files,
            new,
            pods,
            task: tokio::spawn(postman.run()),
        }
    }

    async fn put(&self, entry: Entry) {
        self.files.put(&entry).unwrap();
        self.new.send(entry).await.unwrap();
    }

    fn see(&self, seen: Seen) {
        *self.node.seen.lock().unwrap() = seen;
        self.pods.send_modify(|changes| *changes += 1);
    }

    /// Until it holds; the clock is the test's, so that this takes no time.
    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let lines = || self.fake.lines();
        assert!(
            timeout(Duration::from_mins(10), wait).await.is_ok(),
            "{what}: {:?}",
            lines()
        );
    }

    async fn until_over(&self) {
        let is_over = || self.files.waiting() == 0;
        self.until("it is over", is_over).await;
    }

    /// What has become of an entry last.
    fn last_told(&self) -> Told {
        self.node.told.lock().unwrap().last().unwrap().clone()
    }

    async fn end(self) {
        drop(self.new);
        self.task.await.unwrap();
    }
}

/// A scene, with the folder of its outbox and its server.
fn scene() -> (tempfile::TempDir, Fake, Scene) {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let scene = Scene::start(folder.path(), &fake);
    (folder, fake, scene)
}

#[tokio::test(start_paused = true)]
async fn who_has_just_been_killed_is_told_of_before_all_others_are_looked_at() {
    let (_folder, fake, scene) = scene();
    scene.put(entry(1)).await;
    scene
        .until("the first is told", || fake.lines().len() == 2)
        .await;
    scene.node.looks.lock().unwrap().clear();
    scene.put(entry(2)).await;
    scene
        .until("the second is told", || fake.lines().len() == 4)
        .await;
    assert_eq!(scene.node.looks.lock().unwrap().first(), Some(&3));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_told_once_and_leaves_the_outbox() {
    let (_folder, fake, scene) = scene();
    scene.put(entry(1)).await;
    scene
        .until("both are told", || fake.lines().len() == 2)
        .await;
    assert_eq!(fake.lines(), [STATUS, EVENT]);
    let asked = fake.asked();
    assert_eq!(asked[0].body["metadata"]["uid"], "uid-1");
    assert_eq!(asked[1].body["metadata"]["name"], entry(1).event_name());
    assert_eq!(asked[1].body["source"]["host"], "node-a");
    assert_eq!(scene.files.waiting(), 1, "it is still being looked after");
    scene.see(Seen::Gone);
    scene.until_over().await;
    scene.end().await;
    assert_eq!(fake.lines().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_hears_it_later_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    fake.always(Some(Plays::Breaks));
    let scene = Scene::start(folder.path(), &fake);
    scene.put(entry(1)).await;
    sleep(Duration::from_mins(1)).await;
    let tries = fake.lines().len();
    assert!((5..=12).contains(&tries), "{tries} requests in a minute");
    assert!(
        scene
            .last_told()
            .waits
            .unwrap()
            .contains("connection refused")
    );
    // The event is taken, and nobody hears that it was.
    fake.always(None);
    let object = serde_json::json!({ "metadata": { "uid": "uid-1", "resourceVersion": "9" } });
    fake.then(Plays::Says(200, object));
    fake.then(Plays::Hangs);
    fake.then(Plays::Says(
        409,
        serde_json::json!({ "reason": "AlreadyExists", "message": "already exists" }),
    ));
    scene.see(Seen::Unknown);
    scene
        .until("all is told", || scene.last_told().entry.is_settled())
        .await;
    assert_eq!(fake.lines()[tries..], [STATUS, EVENT, EVENT]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_costs_few_requests_and_all_is_told_once_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let forbidden = serde_json::json!({ "reason": "Forbidden", "message": "pods \"web\" is forbidden: User \"brink\" cannot patch resource \"pods/status\"" });
    fake.always(Some(Plays::Says(403, forbidden)));
    let scene = Scene::start(folder.path(), &fake);
    for order in 0..12 {
        scene.put(entry(order)).await;
    }
    let hour = Duration::from_hours(1);
    sleep(hour).await;
    let tries = fake.lines().len();
    assert!((12..=24).contains(&tries), "{tries} requests");
    // Pods change all the time.
    for _ in 0..60 {
        sleep(hour / 60).await;
        scene.see(Seen::Unknown);
    }
    let more = fake.lines().len() - tries;
    assert!((3..=6).contains(&more), "{more} requests");
    assert!(scene.last_told().waits.unwrap().contains("403"));
    fake.always(None);
    sleep(hour / 4).await;
    let told = || fake.lines().len() - tries - more;
    scene.until("all is told", || told() == 24).await;
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_owed_is_told_after_a_restart_and_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let first = Scene::start(folder.path(), &fake);
    let uid = serde_json::json!({ "metadata": { "uid": "uid-1", "resourceVersion": "9" } });
    fake.then(Plays::Says(200, uid));
    fake.then(Plays::Hangs);
    first.put(entry(1)).await;
    first
        .until("the event hangs", || fake.lines().len() == 2)
        .await;
    first.task.abort();
    let second = Scene::start(folder.path(), &fake);
    second
        .until("the event is told", || fake.lines().len() == 3)
        .await;
    assert_eq!(fake.lines(), [STATUS, EVENT, EVENT]);
    second.see(Seen::There {
        is_terminal: true,
        keeps_reason: true,
        version: Some(9),
    });
    second.until_over().await;
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_writes_over_it_is_written_over() {
    let (_folder, fake, scene) = scene();
    scene.put(entry(1)).await;
    scene
        .until("both are told", || fake.lines().len() == 2)
        .await;
    scene.see(Seen::There {
        is_terminal: false,
        keeps_reason: true,
        version: Some(1000),
    });
    scene
        .until("it is told again", || fake.lines().len() > 2)
        .await;
    assert_eq!(fake.lines()[2], STATUS);
    scene.see(Seen::There {
        is_terminal: true,
        keeps_reason: true,
        version: Some(2000),
    });
    scene.until_over().await;
    let events = fake.lines().iter().filter(|line| *line == EVENT).count();
    assert_eq!(events, 1);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_pod_of_the_name_is_left_alone() {
    let (_folder, fake, scene) = scene();
    fake.then(Plays::Says(409, serde_json::json!({ "message": "uid" })));
    fake.then(Plays::Says(
        200,
        serde_json::json!({ "metadata": { "uid": "another" } }),
    ));
    scene.put(entry(1)).await;
    scene.until_over().await;
    assert_eq!(fake.lines(), [STATUS, POD, EVENT]);
    assert_eq!(
        scene.last_told().entry.status_part,
        Part::Ended(End::Replaced)
    );
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_is_refused_here() {
    let (_folder, fake, scene) = scene();
    let mut odd = entry(1);
    odd.pod.namespace = "a b".to_owned();
    scene.put(odd).await;
    scene.until_over().await;
    assert_eq!(fake.lines(), Vec::<String>::new());
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_is_no_proof_of_a_right() {
    let (_folder, fake, scene) = scene();
    let forbidden = serde_json::json!({ "reason": "Forbidden", "message": "pods \"web\" is forbidden: User \"brink\" cannot patch resource \"pods/status\"" });
    fake.always(Some(Plays::Says(403, forbidden)));
    scene.put(entry(1)).await;
    scene
        .until("it is refused", || fake.lines().len() == 1)
        .await;
    let mut odd = entry(2);
    odd.pod.namespace = "a b".to_owned();
    scene.put(odd).await;
    scene
        .until("it is over", || scene.files.waiting() == 1)
        .await;
    assert_eq!(fake.lines(), [STATUS], "the other one waits as it did");
    scene.end().await;
}
