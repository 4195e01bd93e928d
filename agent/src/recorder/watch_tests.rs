//! Rounds over a tree of plain files, with time as an argument.

use std::fs;
use std::path::Path;

use brink_host::cgroup::Version;

use super::super::cut::{FULL, Request, cut};
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
        Self {
            watch: Watch::new(hierarchy, "/".to_owned(), NodeSource::default()),
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
            cgroup: Some(path),
            form: FULL,
        };
        let recording = cut(&lock(&self.source.book), request, None);
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

#[test]
fn beyond_the_room_nobody_is_recorded_and_nothing_breaks() {
    let mut scene = Scene::new();
    for index in 0..GROUPS + 5 {
        scene.set(&format!("/g{index}"), 1, None);
    }
    scene.beats(12);
    assert_eq!(lock(&scene.source.book).entries().count(), GROUPS);
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
