//! Rounds over a tree of plain files, with time as an argument.

use std::fs;
use std::path::Path;
use std::sync::{MutexGuard, PoisonError};

use brink_host::cgroup::Version;
use brink_stream::model::field::Missing;

use super::super::book::Wanted;
use super::super::cut::{FULL, Request, cut};
use super::super::point::Tells;
use super::*;

const MIB: u64 = 1 << 20;

struct Scene {
    root: tempfile::TempDir,
    watch: Watch,
    source: Source,
    /// Milliseconds since the start.
    now: u64,
    warned: Vec<Warning>,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("temporary folder");
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        let node = NodeSource::new(Err(Missing::Lost), Err(Missing::Lost));
        Self {
            watch: Watch::new(hierarchy, "/".to_owned(), node),
            root,
            source: Source::new().expect("an event descriptor"),
            now: 5_000,
            warned: Vec::new(),
        }
    }

    fn group(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// A group that uses so many MiB, all of it anonymous, of its limit.
    fn set(&self, path: &str, mebibytes: u64, limit: Option<u64>) {
        let folder = self.group(path);
        fs::create_dir_all(&folder).expect("fake group");
        write(&folder, "memory.current", &(mebibytes * MIB).to_string());
        write(&folder, "memory.stat", "inactive_file 0\n");
        let limit = limit.map_or("max".to_owned(), |limit| (limit * MIB).to_string());
        write(&folder, "memory.max", &limit);
    }

    fn beats(&mut self, count: usize) {
        for _ in 0..count {
            let warned = &mut self.warned;
            self.watch
                .beat(self.now * 1_000_000, &self.source, |warning| {
                    warned.push(warning);
                });
            self.now += u64::from(self.watch.beat_ms());
        }
    }

    fn points(&self, path: &str) -> Vec<(u32, u64)> {
        let request = Request {
            at: Stamp::of(self.now * 1_000_000),
            cgroup: Some(Wanted { path, id: None }),
            form: FULL,
        };
        let recording = cut(&lock(&self.source.book), request, None, Tells::default());
        let points = recording.cgroup.iter();
        points
            .map(|point| (point.before_ms, point.usage / MIB))
            .collect()
    }

    fn lanes(&self) -> usize {
        let book = lock(&self.source.book);
        book.entries()
            .filter(|(_, entry)| entry.near.is_some())
            .count()
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("fake file");
}

#[test]
fn the_near_are_read_in_every_beat_and_all_in_each_round() {
    let mut scene = Scene::new();
    for index in 0..40 {
        scene.set(&format!("/pods/pod{index}"), index, Some(100));
    }
    scene.beats(11);
    assert_eq!(scene.lanes(), 32);
    scene.beats(30);
    let near = scene.points("/pods/pod39");
    let far = scene.points("/pods/pod0");
    assert!(
        near.windows(2)
            .skip(1)
            .all(|pair| pair[0].0 - pair[1].0 == 100),
        "{near:?}"
    );
    assert!(near.len() > 25, "{near:?}");
    assert!(
        far.windows(2).all(|pair| pair[0].0 - pair[1].0 == 1_000),
        "{far:?}"
    );
    assert!((3..=5).contains(&far.len()), "{far:?}");
}

/// Whoever comes after it may have its path.
#[test]
fn a_group_is_known_by_its_id_too() {
    use std::os::unix::fs::MetadataExt as _;

    let mut scene = Scene::new();
    scene.set("/pods/web", 1, None);
    scene.beats(1);
    let folder = fs::metadata(scene.group("/pods/web")).expect("fake group");
    let book = lock(&scene.source.book);
    let mut entries = book.entries();
    let web = entries.find(|(_, entry)| &*entry.path == "/pods/web");
    assert_eq!(web.and_then(|(_, entry)| entry.id), Some(folder.ino()));
}

#[test]
fn a_group_that_grows_is_near_before_those_that_stand_higher() {
    let mut scene = Scene::new();
    for index in 0..40 {
        scene.set(&format!("/full{index}"), 80, Some(100));
    }
    for second in 0..6 {
        scene.set("/leak", 100 + 60 * second, Some(1_000));
        scene.beats(10);
    }
    let leak = scene.points("/leak");
    let apart = leak
        .windows(2)
        .next_back()
        .map(|pair| pair[0].0 - pair[1].0);
    assert_eq!(apart, Some(100), "{leak:?}");
}

#[test]
fn a_leak_is_warned_of_once_and_page_cache_is_not() {
    let mut scene = Scene::new();
    for second in 0..12 {
        scene.set("/pods/leak/main", 20 * second, None);
        scene.set("/pods/leak", 20 * second, Some(200));
        scene.set("/pods/cache", 20 * second, Some(200));
        let cached = format!("inactive_file {}\nactive_file 0\n", 19 * second * MIB);
        write(&scene.group("/pods/cache"), "memory.stat", &cached);
        scene.beats(10);
    }
    let warned: Vec<_> = scene
        .warned
        .iter()
        .map(|warning| &*warning.cgroup)
        .collect();
    assert_eq!(warned, ["/pods/leak"]);
    let warning = &scene.warned[0];
    assert_eq!(warning.limit, 200 * MIB);
    assert!(
        warning.usage < 200 * MIB && warning.usage >= 100 * MIB,
        "{warning:?}"
    );
    assert!(warning.forecast.time_to_limit_ms <= 10_000, "{warning:?}");
}

#[test]
fn a_limit_that_was_raised_meanwhile_is_not_warned_of() {
    let mut scene = Scene::new();
    for second in 0..20 {
        let limit = if second < 3 { 200 } else { 20_000 };
        scene.set("/leak", 20 * second, Some(limit));
        scene.beats(10);
    }
    assert_eq!(scene.warned, []);
}

#[test]
fn who_is_gone_is_remembered_for_a_minute_and_its_successor_is_found() {
    let mut scene = Scene::new();
    scene.set("/job", 7, Some(100));
    scene.beats(20);
    // A fake group cannot answer like a removed one: its open files live on.
    let slot = 0;
    if let Some(Some(group)) = scene.watch.groups.get_mut(slot) {
        group.gone = Some(Stamp::of(scene.now * 1_000_000));
    }
    scene.set("/job", 9, Some(100));
    scene.watch.search_at = 0;
    scene.beats(20);
    assert_eq!(scene.points("/job").last().map(|point| point.1), Some(9));
    assert_eq!(lock(&scene.source.book).entries().count(), 2);
    scene.beats(620);
    assert_eq!(lock(&scene.source.book).entries().count(), 1);
}

#[test]
fn the_files_of_who_is_gone_are_closed_and_what_is_known_of_it_stays() {
    let mut scene = Scene::new();
    let root = scene.root.path().canonicalize().expect("temporary folder");
    let open_files = || {
        let entries = fs::read_dir("/proc/self/fd").expect("own descriptors");
        let targets = entries
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        targets.filter(|target| target.starts_with(&root)).count()
    };
    scene.set("/stays", 3, Some(100));
    scene.beats(11);
    let before = open_files();
    for index in 0..8 {
        scene.set(&format!("/job{index}"), 7, Some(100));
    }
    scene.watch.search_at = 0;
    scene.beats(11);
    assert!(open_files() > before);
    for index in 0..8 {
        fs::remove_dir_all(scene.group(&format!("/job{index}"))).expect("fake group");
    }
    scene.watch.search_at = 0;
    scene.beats(10);
    assert_eq!(open_files(), before);
    assert_eq!(scene.points("/job7").last().map(|point| point.1), Some(7));
}

/// As many cgroups without a limit as there are slots; `/g0` uses 2 MiB, and each later one more. Each has files open, and a process
/// may have so many: there is one such scene at a time.
fn crowd() -> (Scene, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::new();
    for index in 0..GROUPS as u64 {
        scene.set(&format!("/g{index}"), 2 + index, None);
    }
    (scene, alone)
}

impl Scene {
    /// Searches at the next round, and goes through that.
    fn search(&mut self) {
        self.watch.search_at = 0;
        self.beats(10);
    }

    fn is_recorded(&self, path: &str) -> bool {
        let book = lock(&self.source.book);
        book.entries().any(|(_, entry)| &*entry.path == path)
    }

    /// Who uses least of those that are not near.
    fn smallest(&self) -> String {
        let groups = self.watch.groups.iter().flatten();
        let far = groups.filter(|group| group.lane.is_none());
        let smallest = far.min_by_key(|group| group.latest.usage);
        smallest.expect("somebody is far").path.to_string()
    }

    fn alive(&self) -> usize {
        let groups = self.watch.groups.iter().flatten();
        groups.filter(|group| group.gone.is_none()).count()
    }

    fn left_out(&self) -> usize {
        lock(&self.source.book).left_out
    }

    fn missing(&self, path: &str) -> Option<Missing> {
        let request = Request {
            at: Stamp::of(self.now * 1_000_000),
            cgroup: Some(Wanted { path, id: None }),
            form: FULL,
        };
        cut(&lock(&self.source.book), request, None, Tells::default()).cgroup_missing
    }
}

#[test]
fn beyond_the_room_nobody_without_a_limit_is_recorded_and_that_is_told() {
    let (mut scene, _alone) = crowd();
    scene.beats(12);
    assert_eq!(scene.left_out(), 0);
    for index in 0..5 {
        scene.set(&format!("/late{index}"), 5_000, None);
    }
    for _ in 0..3 {
        scene.search();
        assert_eq!(lock(&scene.source.book).entries().count(), GROUPS);
        assert_eq!(scene.left_out(), 5);
        assert!(!scene.is_recorded("/late0"));
    }
    assert_eq!(scene.missing("/late0"), Some(Missing::Lost));
    assert_eq!(scene.missing("/g7"), None);
}

#[test]
fn one_with_a_limit_takes_the_slot_of_the_smallest_without_and_keeps_it() {
    let (mut scene, _alone) = crowd();
    scene.beats(12);
    let driven_out = scene.smallest();
    scene.set("/pods/pod/app", 90, Some(100));
    scene.search();
    assert!(scene.is_recorded("/pods/pod/app"));
    assert!(!scene.is_recorded(&driven_out));
    assert_eq!(scene.missing(&driven_out), Some(Missing::Lost));
    // It, and the two above the one with a limit.
    assert_eq!(scene.left_out(), 3);
    for _ in 0..30 {
        scene.search();
    }
    assert!(scene.points("/pods/pod/app").len() > 25);
    assert!(!scene.is_recorded(&driven_out));
    assert_eq!(scene.left_out(), 3);
    assert_eq!(lock(&scene.source.book).entries().count(), GROUPS);
}

#[test]
fn at_the_start_containers_with_a_limit_are_recorded_though_they_are_listed_last() {
    let (mut scene, _alone) = crowd();
    for index in 0..40 {
        scene.set(&format!("/g{index}/pod/app"), 50, Some(100));
    }
    // One search finds everybody, and the next one knows who uses least.
    scene.search();
    scene.search();
    for index in 0..40 {
        assert!(scene.is_recorded(&format!("/g{index}/pod/app")));
    }
    // Those above them have none.
    assert_eq!(scene.left_out(), 80);
    assert_eq!(scene.lanes(), NEAR);
}

#[test]
fn whoever_got_a_limit_since_is_not_driven_out() {
    let (mut scene, _alone) = crowd();
    scene.beats(12);
    let smallest = scene.smallest();
    // The recorder reads limits every ten rounds.
    scene.watch.limits_at = u64::MAX;
    write(&scene.group(&smallest), "memory.max", "1000000000");
    scene.set("/late", 1, Some(100));
    scene.search();
    assert!(scene.is_recorded("/late"));
    assert!(scene.is_recorded(&smallest));
}

#[test]
fn a_limit_that_came_later_is_found_and_where_all_have_one_nobody_makes_room() {
    let (mut scene, _alone) = crowd();
    scene.beats(12);
    scene.set("/late", 1, None);
    scene.search();
    assert!(!scene.is_recorded("/late"));
    scene.set("/late", 1, Some(100));
    // It was just looked at.
    scene.search();
    assert!(!scene.is_recorded("/late"));
    for _ in 0..10 {
        scene.search();
    }
    assert!(scene.is_recorded("/late"));

    for index in 0..GROUPS {
        scene.set(&format!("/g{index}"), 5, Some(1_000));
    }
    for _ in 0..30 {
        scene.search();
    }
    let limited = scene.watch.groups.iter().flatten();
    assert!(limited.clone().all(|group| group.limit.is_some()));
    let before: Vec<_> = limited.map(|group| Arc::clone(&group.path)).collect();
    scene.set("/later", 1, Some(100));
    scene.search();
    let after = scene.watch.groups.iter().flatten();
    assert!(after.map(|group| &group.path).eq(&before));
    assert_eq!(scene.left_out(), 2);
}

#[test]
fn who_cannot_be_listed_takes_nobody_else_along() {
    let mut scene = Scene::new();
    scene.set("/a", 7, Some(100));
    scene.search();
    assert_eq!(scene.watch.trouble, None);
    // A path that is longer than a call takes.
    let name = "x".repeat(250);
    let mut folder = fs::File::open(scene.group("/a")).expect("fake group");
    for _ in 0..20 {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkdirat(&folder, name.as_str(), mode).expect("fake group");
        let flags = rustix::fs::OFlags::DIRECTORY;
        let below = rustix::fs::openat(&folder, name.as_str(), flags, mode).expect("fake group");
        folder = below.into();
    }
    scene.set("/b", 7, Some(100));
    scene.search();
    assert!(scene.is_recorded("/b"));
    let trouble = scene.watch.trouble.clone().expect("a trouble");
    assert!(trouble.starts_with("cannot read "), "{trouble}");
    // Of those below it nothing is known, and so nobody is gone.
    fs::remove_dir_all(scene.group("/b")).expect("fake group");
    scene.search();
    assert_eq!(scene.alive(), 2);
    fs::remove_dir_all(scene.group("/a").join(&name)).expect("fake group");
    scene.search();
    assert_eq!(scene.alive(), 1);
    assert_eq!(scene.watch.trouble, None);
}

#[test]
fn what_is_too_dear_comes_more_seldom_and_the_book_says_so() {
    let mut scene = Scene::new();
    let period = |scene: &Scene| lock(&scene.source.book).periods.near_ms;
    scene.beats(1);
    assert_eq!(period(&scene), 100);
    for expected in [200, 400, 800, 1_000, 1_000] {
        scene.watch.spent(10_000_000_000);
        scene.beats(10);
        assert_eq!(period(&scene), expected);
    }
    // As soon as it is not any more, it comes as often as it should.
    scene.beats(100);
    assert_eq!(period(&scene), 100);
}

#[test]
fn a_cgroup_that_could_not_be_opened_is_remembered_until_it_could() {
    let mut scene = Scene::new();
    scene.set("/pod", 7, Some(100));
    let reopens = |scene: &mut Scene| {
        scene.watch.search_at = 0;
        scene.beats(10);
        scene.watch.reopens
    };
    assert!(!reopens(&mut scene));
    fs::create_dir(scene.group("/bare")).expect("fake group");
    assert!(reopens(&mut scene));
    scene.set("/bare", 7, None);
    assert!(!reopens(&mut scene));
}
