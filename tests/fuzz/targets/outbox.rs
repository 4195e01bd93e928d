//! The outbox of what Kubernetes is to be told, as a dead agent, a full disk or somebody else left it.

use std::fs;
use std::path::PathBuf;

use brink_core::base::Moment;
use brink_kube::outbox::entry::VERSION;
use brink_kube::outbox::{Cause, Entry, EventWords, Files, Key, Part, PodRef};
use brink_kube::write::answer::Verdict;
use brink_kube::write::plan::{Next, Plan, Seen};
use brink_kube::write::{body, request};

use crate::Taken;
use crate::bundle::Bundle;
use crate::scratch::Scratch;

/// Longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;
/// Parts of the path of a pod's status, and what stands before the first slash.
const PARTS: usize = 8;
/// An entry has two parts, and either is told once.
const TOLD: usize = 2;

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// Files by their names; the first is `b-1.json`.
pub(crate) fn outbox(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let _gone = fs::remove_file(entry.path());
        }
        let files = Bundle::split("b-1.json", bytes);
        for (name, bytes) in files.below("") {
            folder.write(&name.replace('/', "-"), bytes);
        }
        let Ok(files) = Files::open(folder.path()) else {
            return Taken::Refused;
        };
        let (found, troubles) = listed(&files, folder);
        found.iter().for_each(check_entry);
        check_kept(&files, folder, &found);
        check_told(&files, &found);
        let (left, still) = listed(&files, folder);
        assert_eq!((left, still), (vec![ours()], troubles));
        Taken::from_accepted(!found.is_empty())
    })
}

/// What is read; every file is either that or told of, and nothing is left of one that was being written.
fn listed(files: &Files, folder: &Scratch) -> (Vec<Entry>, Vec<String>) {
    let (found, mut troubles) = files.list().unwrap_or_default();
    troubles.sort();
    let all = found.len() + troubles.len();
    assert_eq!((count(folder, "json"), files.waiting()), (all, all));
    assert_eq!(count(folder, "new"), 0);
    let order = |entry: &Entry| (entry.event.first.clone(), entry.key.clone());
    assert!(found.is_sorted_by_key(order), "{found:?}");
    (found, troubles)
}

/// Files that end like this.
fn count(folder: &Scratch, ending: &str) -> usize {
    let files = fs::read_dir(folder.path()).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    let has_ending = |path: &PathBuf| path.extension().is_some_and(|own| own == ending);
    paths.filter(has_ending).count()
}

/// It can be written again, and what is sent for it goes to its own pod and to nothing else.
fn check_entry(entry: &Entry) {
    let text = serde_json::to_vec(entry).unwrap_or_default();
    let back: Result<Entry, _> = serde_json::from_slice(&text);
    assert_eq!(back.ok().as_ref(), Some(entry));
    let name = entry.event_name();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    assert!(
        name.len() <= LONGEST_NAME && name.bytes().all(is_plain) && !name.contains(".."),
        "{name}"
    );
    let event = request::event(&entry.pod.namespace, &body::event(entry, "node"));
    assert_eq!(place(event).split('/').count(), PARTS - 2);
    assert!(entry.status.is_some() || entry.status_part == Part::None);
    if let Some(eviction) = &entry.status {
        let patch = body::evicted(&entry.pod.uid, eviction);
        let status = place(request::pod_status(&entry.pod, &patch));
        let end = format!("/{}/status", entry.pod.name);
        assert!(status.ends_with(&end), "{status}");
        assert_eq!(status.split('/').count(), PARTS, "{status}");
    }
}

/// The path of a request, which has nothing behind it.
fn place(ready: request::Ready) -> String {
    let uri = ready.map(|request| request.uri().clone());
    let is_plain = uri.as_ref().is_ok_and(|uri| uri.query().is_none());
    assert!(is_plain, "{uri:?}");
    uri.map_or_else(|_| String::new(), |uri| uri.path().to_owned())
}

/// One more is kept beside whatever is there, and is there once.
fn check_kept(files: &Files, folder: &Scratch, before: &[Entry]) {
    let one = ours();
    for _twice in 0..2 {
        assert!(files.put(&one).is_ok());
    }
    assert!(files.sync(&one.key).is_ok());
    let (mut found, _) = listed(files, folder);
    let place = found.iter().position(|entry| *entry == one);
    assert!(place.is_some(), "what was put in is not there");
    found.retain(|entry| *entry != one);
    assert_eq!(found, before);
}

/// A server that takes everything is told everything, and nothing of it stays.
fn check_told(files: &Files, found: &[Entry]) {
    let now = Moment::from_secs(1000);
    let mut plan = Plan::new("node", 1);
    for entry in found {
        assert!(plan.add(entry.clone(), now));
    }
    let mut left = TOLD * found.len();
    while let Next::Do(key, act) = plan.next(now) {
        assert!(left > 0, "{key:?}: {act:?} again");
        left -= 1;
        let told = plan.settle(&key, act, Verdict::Done(Some(7)), now);
        let changed = told.map(|told| (told.is_changed, told.entry));
        assert!(matches!(changed, Some((true, _))), "{key:?}: {act:?}");
        if let Some((_, entry)) = changed {
            assert!(files.update(&entry).is_ok());
        }
    }
    for told in plan.look(|_| Seen::Gone, now) {
        assert!(told.is_over && told.entry.is_settled(), "{told:?}");
        assert!(files.remove(&told.entry.key).is_ok());
    }
    assert!(plan.is_empty());
}

/// An entry of a boot that no input has: none is so long.
fn ours() -> Entry {
    Entry {
        version: VERSION,
        key: Key {
            boot: "o".repeat(64),
            of: Cause::Order(1),
        },
        pod: PodRef {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u".to_owned(),
        },
        status: None,
        status_part: Part::None,
        event: EventWords {
            warns: true,
            reason: "OOMKilled".to_owned(),
            message: String::new(),
            annotations: [].into(),
            count: 1,
            first: String::new(),
            last: String::new(),
        },
        event_part: Part::Owed,
    }
}
