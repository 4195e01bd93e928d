//! Rounds over small folders.

use std::fs;
use std::path::PathBuf;

use brink_core::base::Quantity;
use brink_core::node::limits::LimitKind;
use brink_core::node::workload::{Container, FsUsage, WorkloadTable};
use brink_host::disk::{Folder, Pace};

use super::super::layers::Told;
use super::*;
use crate::config::Filesystems;
use crate::guard::ports::Ports;
use crate::guard::storage::Disks;

const PERIOD: Duration = Duration::from_mins(1);

fn rounds() -> Rounds {
    Rounds::new(UsageSettings {
        feed: false,
        pace_without_feed: Pace::UNBOUNDED,
        ..UsageSettings::default()
    })
}

fn work(folders: &[(&str, PathBuf)]) -> Arc<Work> {
    let workload = |(uid, path): &(&str, PathBuf)| Workload {
        uid: (*uid).to_owned(),
        name: (*uid).to_owned(),
        volumes: vec![brink_core::node::workload::Volume {
            name: path.display().to_string(),
            source: brink_core::node::workload::VolumeSource::Directory,
        }],
        ..Workload::default()
    };
    let owned = |(uid, path): &(&str, PathBuf)| Owned {
        uid: (*uid).to_owned(),
        pieces: vec![Piece {
            part: Part::Volume(path.display().to_string()),
            folder: Folder {
                path: path.clone(),
                quota: false,
                written_directly: true,
            },
        }],
        ..Owned::default()
    };
    Arc::new(Work {
        table: Arc::new(WorkloadTable::new(
            folders.iter().map(workload).collect(),
            1,
        )),
        owned: folders.iter().map(owned).collect(),
        disks: Arc::new(Disks::new(folders.len())),
    })
}

fn shared() -> Shared {
    Shared::default()
}

/// Turns until there is nothing to do.
fn round(rounds: &mut Rounds, work: &Work, shared: &Shared) -> Duration {
    loop {
        let begins = rounds.begins(shared, PERIOD);
        let rest = rounds.turn(work, shared, PERIOD, begins);
        if !rest.is_zero() {
            return rest;
        }
    }
}

fn inodes(work: &Work, index: usize) -> Option<u64> {
    work.disks.get(index).unwrap().used().volumes.inodes
}

#[test]
fn a_folder_is_on_the_board_after_a_round_and_one_that_goes_is_unknown() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    fs::create_dir(&a).unwrap();
    fs::write(a.join("file"), "x").unwrap();
    let work = work(&[("a", a.clone()), ("b", b)]);
    let (mut rounds, shared) = (rounds(), shared());
    rounds.adopt(&work, &shared);
    assert_eq!(inodes(&work, 0), None);
    assert!(round(&mut rounds, &work, &shared) <= LISTEN);
    assert_eq!((inodes(&work, 0), inodes(&work, 1)), (Some(2), None));
    let standing = shared.book().standing.clone();
    assert_eq!((standing.folders, standing.troubles.len()), (2, 1));
    assert!(
        standing.troubles[0].contains("/b is not there"),
        "{standing:?}"
    );
    fs::remove_dir_all(&a).unwrap();
    rounds.rests = Rests::default();
    round(&mut rounds, &work, &shared);
    assert_eq!(inodes(&work, 0), None, "unknown, not as before");
}

#[test]
fn a_later_roster_knows_at_once_what_is_known_and_what_is_new_does_not_wait_for_a_round() {
    let root = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| root.path().join(name));
    for path in &paths {
        fs::create_dir(path).unwrap();
    }
    let [a, b] = paths;
    let first = work(&[("a", a.clone())]);
    let (mut rounds, shared) = (rounds(), shared());
    rounds.adopt(&first, &shared);
    round(&mut rounds, &first, &shared);
    let number = rounds.number;
    let second = work(&[("b", b.clone()), ("a", a)]);
    rounds.adopt(&second, &shared);
    assert_eq!((inodes(&second, 0), inodes(&second, 1)), (None, Some(1)));
    round(&mut rounds, &second, &shared);
    assert_eq!((inodes(&second, 0), rounds.number), (Some(1), number));
    let third = work(&[("a", b)]);
    rounds.adopt(&third, &shared);
    assert_eq!(inodes(&third, 0), None, "it has another folder");
    assert!(shared.book().measured.is_empty());
}

#[test]
fn a_round_that_the_guard_waits_for_begins_at_once_and_stands_on_the_board_once_it_is_over() {
    let root = tempfile::tempdir().unwrap();
    let folders = [("a", root.path().to_path_buf())];
    let first = work(&folders);
    let (mut rounds, shared) = (rounds(), shared_with_ports());
    let at = |seconds| Some(Moment::from_secs(seconds));
    rounds.adopt(&first, &shared);
    rounds.asked = at(1);
    round(&mut rounds, &first, &shared);
    assert_eq!(first.disks.round(), at(1));
    assert!(!rounds.begins(&shared, PERIOD), "a minute later");
    let ports = shared.ports.as_ref().unwrap();
    ports.ask_for_round(Moment::from_secs(5));
    assert!(rounds.begins(&shared, PERIOD));
    // One that began before that is not the one that is waited for.
    rounds.asked = at(4);
    fs::write(root.path().join("file"), "x").unwrap();
    round(&mut rounds, &first, &shared);
    assert!(rounds.begins(&shared, PERIOD));
    assert_eq!((first.disks.round(), inodes(&first, 0)), (at(4), Some(2)));
    rounds.asked = at(6);
    // Not over before everybody has been measured.
    let begins = rounds.begins(&shared, PERIOD);
    assert!(rounds.turn(&first, &shared, PERIOD, begins).is_zero());
    assert_eq!(first.disks.round(), at(4));
    round(&mut rounds, &first, &shared);
    assert_eq!(first.disks.round(), at(6));
    assert!(!rounds.begins(&shared, PERIOD));
    let later = work(&folders);
    rounds.adopt(&later, &shared);
    assert_eq!(later.disks.round(), at(6));
}

#[test]
fn who_is_new_is_measured_first_and_who_takes_long_last() {
    let root = tempfile::tempdir().unwrap();
    let folders = ["a", "b", "new"].map(|name| (name, root.path().to_path_buf()));
    let (first, later) = (work(&folders[..2]), work(&folders));
    let (mut rounds, shared) = (rounds(), shared());
    rounds.adopt(&first, &shared);
    round(&mut rounds, &first, &shared);
    rounds.known.get_mut("a").unwrap().took = Duration::from_hours(1);
    (rounds.began, rounds.number) = (Some((Instant::now(), Duration::ZERO)), rounds.number + 1);
    rounds.adopt(&later, &shared);
    for place in [2, 1, 0] {
        assert_eq!(rounds.next(&later), Some(place));
        rounds.measure(&later, place, &shared);
    }
    assert_eq!(rounds.next(&later), None);
    // What has changed nothing takes no time, and may have changed the next time.
    assert!(rounds.known["a"].took >= Duration::from_mins(30));
}

#[test]
fn a_disk_that_flickers_has_a_few_rounds_at_once_and_then_no_more_than_one_that_stays_short() {
    let root = tempfile::tempdir().unwrap();
    let work = work(&[("a", root.path().to_path_buf())]);
    let (mut rounds, shared) = (rounds(), shared_with_ports());
    let ports = shared.ports.as_ref().unwrap();
    rounds.adopt(&work, &shared);
    let mut count = 0;
    for second in 1..=100 {
        // It has let go and is met again since the last round began.
        let crossed = Moment::from_secs(second);
        ports.ask_for_round(crossed);
        if rounds.begins(&shared, PERIOD) {
            rounds.asked = Some(crossed);
            round(&mut rounds, &work, &shared);
            count += 1;
        }
    }
    // All of that takes less than the rest that is due by then.
    assert!((2..10).contains(&count), "{count}");
    let rest = rounds.turn(&work, &shared, PERIOD, false);
    assert!(
        rest > SHORTEST,
        "it is not forgotten, and not looked for all the time"
    );
}

#[test]
fn layers_that_were_told_before_a_round_began_are_older_than_the_round() {
    let root = tempfile::tempdir().unwrap();
    let container = vec![("app".to_owned(), "id".to_owned())];
    let mut work = work(&[("a", root.path().to_path_buf())]);
    let owned = Arc::make_mut(&mut Arc::get_mut(&mut work).unwrap().owned);
    owned[0] = std::mem::take(&mut owned[0]).with_containers(container);
    let (mut rounds, shared) = (rounds(), shared());
    let at = |seconds| Some(Moment::from_secs(seconds));
    let answer = |rounds: &mut Rounds, asked, answer| {
        rounds.question = at(asked);
        rounds.hear((answer, Instant::now()), &work, &shared);
    };
    let told = |behind| {
        Ok(Told {
            layers: [("id".to_owned(), FsUsage::default())].into(),
            behind: Duration::from_secs(behind),
            ..Told::default()
        })
    };
    rounds.adopt(&work, &shared);
    answer(&mut rounds, 3, told(0));
    rounds.asked = at(5);
    round(&mut rounds, &work, &shared);
    assert_eq!(work.disks.round(), at(3), "as old as the answer");
    answer(&mut rounds, 6, told(0));
    assert_eq!(work.disks.round(), at(5), "as old as the folders");
    rounds.asked = at(9);
    rounds.rests = Rests::default();
    round(&mut rounds, &work, &shared);
    assert_eq!(work.disks.round(), at(6));
    answer(&mut rounds, 12, told(5));
    assert_eq!(work.disks.round(), at(7), "as old as the figures in it");
    answer(&mut rounds, 13, Err("it hangs".to_owned()));
    assert_eq!(work.disks.round(), at(9), "nobody waits for who is silent");
}

#[test]
fn what_cannot_be_read_leaves_a_sum_that_is_too_small_and_says_so() {
    let gaps = brink_host::disk::Gaps {
        unread: 2,
        ..Default::default()
    };
    assert_eq!(
        partly(&gaps),
        "2 entries could not be read; it uses at least what is told"
    );
}

#[test]
fn a_pod_without_folders_is_no_trouble_and_a_kubelet_without_its_folder_is() {
    let root = tempfile::tempdir().unwrap();
    let pods = root.path().join("pods");
    let mut pod = work(&[("a", pods.join("a/volumes/v"))]);
    let owned = Owned {
        hosts_file: Some(pods.join("a/etc-hosts")),
        ..pod.owned[0].clone()
    };
    Arc::get_mut(&mut pod).unwrap().owned = [owned].into();
    let (mut rounds, shared) = (rounds(), shared());
    rounds.adopt(&pod, &shared);
    round(&mut rounds, &pod, &shared);
    let troubles = shared.book().standing.troubles.clone();
    assert!(
        troubles.len() == 1 && troubles[0].contains("pods is not there"),
        "{troubles:?}"
    );
    fs::create_dir(&pods).unwrap();
    rounds.rests = Rests::default();
    round(&mut rounds, &pod, &shared);
    assert_eq!(shared.book().standing.troubles, [""; 0]);
}

/// The same work with limits of local storage of so many bytes for each of these containers.
fn limited(work: &Work, limit: i64, containers: &[&str]) -> Arc<Work> {
    let mut workloads = work.table.workloads().to_vec();
    let container = |name: &&str| {
        let mut container = Container {
            name: (*name).to_owned(),
            ..Container::default()
        };
        container.resources.limits.ephemeral_storage = Some(Quantity::from_bytes(limit));
        container
    };
    for workload in &mut workloads {
        workload.containers = containers.iter().map(container).collect();
    }
    let generation = work.table.generation() + 1;
    Arc::new(Work {
        table: Arc::new(WorkloadTable::new(workloads, generation)),
        owned: Arc::clone(&work.owned),
        disks: Arc::clone(&work.disks),
    })
}

/// The limits that the guard was told of, each with the generation of its table.
fn told(shared: &Shared) -> Vec<(u64, LimitKind)> {
    let ports = shared.ports.as_ref().unwrap();
    let next = || match ports.commands.take()? {
        Command::Exceeded {
            generation, limit, ..
        } => Some((generation, limit.kind)),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

fn shared_with_ports() -> Shared {
    let mut shared = shared();
    shared.ports = Some(Arc::new(Ports::new(4, 4).unwrap()));
    shared
}

#[test]
fn a_limit_that_was_raised_is_not_told_by_what_was_exceeded_before() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), vec![1; 64 << 10]).unwrap();
    let work = limited(&work(&[("a", root.path().to_path_buf())]), 1, &["c"]);
    let (mut rounds, shared) = (rounds(), shared_with_ports());
    rounds.adopt(&work, &shared);
    round(&mut rounds, &work, &shared);
    let before = work.table.generation();
    assert!(told(&shared).contains(&(before, LimitKind::Pod)));
    let raised = limited(&work, 1 << 30, &["c"]);
    rounds.adopt(&raised, &shared);
    round(&mut rounds, &raised, &shared);
    assert_eq!(told(&shared), []);
    let lowered = limited(&raised, 1, &["c"]);
    rounds.adopt(&lowered, &shared);
    round(&mut rounds, &lowered, &shared);
    assert_eq!(told(&shared)[0], (before + 2, LimitKind::Pod));
}

/// The same work, with a container of this id in the first workload.
fn with_container(mut work: Arc<Work>, id: &str) -> Arc<Work> {
    let owned = work.owned[0].clone();
    let owned = owned.with_containers(vec![("app".to_owned(), id.to_owned())]);
    Arc::get_mut(&mut work).unwrap().owned = [owned].into();
    work
}

/// A runtime's answer that the container of this id has written so much.
fn answer(id: &str, bytes: u64) -> Heard {
    let layer = FsUsage {
        bytes: Some(bytes),
        inodes: None,
    };
    let told = Told {
        layers: [(id.to_owned(), layer)].into(),
        ..Told::default()
    };
    (Ok(told), Instant::now())
}

/// That there is none.
fn no_answer() -> Heard {
    (Err("it hangs".to_owned()), Instant::now())
}

/// What is known of writable layers on the board.
fn layers(work: &Work) -> Option<u64> {
    work.disks.get(0).unwrap().used().rootfs.bytes
}

#[test]
fn what_a_runtime_told_last_ranks_on_while_it_does_not_answer_and_counts_against_no_limit() {
    let root = tempfile::tempdir().unwrap();
    let work = work(&[("a", root.path().to_path_buf())]);
    let work = with_container(limited(&work, 1 << 20, &["app"]), "id");
    let (mut rounds, shared) = (rounds(), shared_with_ports());
    rounds.adopt(&work, &shared);
    rounds.hear(answer("id", 5 << 20), &work, &shared);
    round(&mut rounds, &work, &shared);
    assert_eq!(layers(&work), Some(5 << 20));
    assert_eq!(told(&shared)[0].1, LimitKind::Pod);
    rounds.hear(no_answer(), &work, &shared);
    rounds.rests = Rests::default();
    round(&mut rounds, &work, &shared);
    assert_eq!(layers(&work), Some(5 << 20));
    assert!(work.disks.are_measured());
    assert_eq!(told(&shared), []);
    let troubles = shared.standing().troubles;
    let is_said = |words: &str| troubles.iter().any(|one| one.contains(words));
    assert!(is_said("in the last ") && is_said("it hangs"));
    // What it tells then counts without another round.
    rounds.hear(answer("id", 6 << 20), &work, &shared);
    assert_eq!(layers(&work), Some(6 << 20));
    assert_eq!(shared.standing().troubles, [""; 0]);
    round(&mut rounds, &work, &shared);
    assert_eq!(told(&shared)[0].1, LimitKind::Pod);
}

#[test]
fn a_container_nobody_has_told_of_is_still_to_be_measured_until_somebody_does() {
    let root = tempfile::tempdir().unwrap();
    let work = with_container(work(&[("a", root.path().to_path_buf())]), "id");
    let (mut rounds, shared) = (rounds(), shared());
    rounds.adopt(&work, &shared);
    rounds.hear(no_answer(), &work, &shared);
    round(&mut rounds, &work, &shared);
    assert_eq!((inodes(&work, 0), layers(&work)), (Some(1), None));
    assert!(!work.disks.are_measured());
    assert!(shared.book().measured["a"].is_partial);
    let troubles = shared.standing().troubles;
    assert_eq!(troubles, ["what containers have written: it hangs"]);
    rounds.hear(answer("id", 7), &work, &shared);
    assert_eq!((inodes(&work, 0), layers(&work)), (Some(1), Some(7)));
    assert!(work.disks.are_measured());
    assert!(!shared.book().measured["a"].is_partial);
    // One that comes while it tells has hardly begun to write, and is told of at the next question.
    let later = with_container(limited(&work, 1 << 30, &["app"]), "new");
    rounds.adopt(&later, &shared);
    round(&mut rounds, &later, &shared);
    assert!(later.disks.are_measured());
    rounds.hear(no_answer(), &later, &shared);
    assert!(!later.disks.are_measured());
}

#[test]
fn layers_count_against_a_containers_limit_only_where_it_is_known_that_they_do() {
    let root = tempfile::tempdir().unwrap();
    let work = work(&[("a", root.path().to_path_buf())]);
    let work = with_container(limited(&work, 1 << 30, &["app", "side"]), "id");
    let (mut rounds, shared) = (rounds(), shared_with_ports());
    rounds.hear(answer("id", 3 << 29), &work, &shared);
    rounds.adopt(&work, &shared);
    round(&mut rounds, &work, &shared);
    assert_eq!(told(&shared), []);
    let filesystems = Filesystems {
        nodefs: Some(root.path().to_path_buf()),
        imagefs: Some(root.path().to_path_buf()),
        containerfs: None,
    };
    rounds.ground = Ground::new(PathBuf::from("/"), filesystems);
    rounds.ground.look(None, Instant::now());
    round(&mut rounds, &work, &shared);
    assert_eq!(told(&shared)[0].1, LimitKind::Container);
}

#[test]
fn a_folder_that_is_not_on_nodefs_is_ranked_by_nothing() {
    let root = tempfile::tempdir().unwrap();
    let work = work(&[("a", root.path().to_path_buf())]);
    let (mut rounds, shared) = (rounds(), shared());
    let filesystems = Filesystems {
        nodefs: Some("/proc".into()),
        ..Filesystems::default()
    };
    rounds.ground = Ground::new(PathBuf::from("/"), filesystems);
    rounds.ground.look(None, Instant::now());
    rounds.adopt(&work, &shared);
    round(&mut rounds, &work, &shared);
    assert_eq!(inodes(&work, 0), None);
    assert_eq!(shared.book().measured["a"].usage.volumes.inodes, Some(1));
}
