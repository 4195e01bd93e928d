//! What an agent holds: memory, descriptors, threads, and everything of BPF, counted so that a leak shows.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{fmt, fs};

use aya::maps::{HashMap, Map, MapData};
use brink_host::probe::abi::meter::CgroupMeter;
use brink_tests::bpf_ids::{self, Ids};
use brink_tests::wait_until;

use super::churn::VISITORS_HOME;

/// Memory of its own may grow by so much: the newest events (2 MiB) and 256 decisions (some 10 KiB each) are kept, and what
/// was freed between them is up to 2 MiB in pieces; the rest is touched for the first time, or taken for a moment.
const GROWTH_KIB: u64 = 10 << 10;
/// By so much more where the journal of events finds no room: what waits for it.
const WAITING_KIB: u64 = 8 << 10;
/// By so much once all of that is there: pieces, and what is taken for a moment.
const LATER_KIB: u64 = 3 << 10;
/// Other people's groups on the machine come and go too.
const OTHERS: usize = 16;
/// How long what is on its way out may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The kernel's map of cgroups.
type Metered = HashMap<MapData, u64, [u8; size_of::<CgroupMeter>()]>;

/// One count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    memory: Memory,
    /// How much more memory it may come to.
    growth_kib: u64,
    /// By what they are open on, numbers left out.
    descriptors: BTreeMap<String, usize>,
    threads: BTreeMap<String, usize>,
    bpf: Ids,
    /// Cgroups that the kernel's programs keep counts of.
    metered: Option<usize>,
}

impl Census {
    /// Counts what a process holds now.
    pub(super) fn of(pid: u32) -> Self {
        let mut census = Self {
            memory: Memory::of(pid),
            growth_kib: GROWTH_KIB,
            ..Self::default()
        };
        for entry in entries(pid, "fd") {
            // One that is closed meanwhile is held no more.
            if let Ok(target) = fs::read_link(&entry) {
                let kind: String = target.to_string_lossy().split(char::is_numeric).collect();
                // A cgroup that was not there when the agent was warm: the flight recorder follows it like any other.
                if kind.contains(&format!("/{VISITORS_HOME}")) {
                    continue;
                }
                *census.descriptors.entry(kind).or_default() += 1;
            }
        }
        for entry in entries(pid, "task") {
            if let Ok(name) = fs::read_to_string(entry.join("comm")) {
                *census.threads.entry(name.trim().to_owned()).or_default() += 1;
            }
        }
        census.bpf = bpf_ids::held(pid).unwrap();
        census.metered = census.count_metered();
        census
    }

    /// Entries in the map of cgroups; none where there is no such map.
    fn count_metered(&self) -> Option<usize> {
        let maps = self.bpf.iter().filter(|(kind, _)| *kind == "map");
        let map = maps.filter_map(|(_, id)| MapData::from_id(*id).ok());
        let map = map.into_iter().find(|map| {
            let info = map.info();
            info.is_ok_and(|info| info.name_as_str() == Some("CGROUPS"))
        });
        let map = Metered::try_from(Map::HashMap(map?)).unwrap();
        Some(map.keys().flatten().count())
    }

    /// Everything that has grown since `before`, in words.
    fn growth(&self, before: &Self) -> Vec<String> {
        let mut grown = more(&self.descriptors, &before.descriptors);
        grown.extend(more(&self.threads, &before.threads));
        let new: Vec<_> = self.bpf.difference(&before.bpf).collect();
        if !new.is_empty() {
            grown.push(format!("of BPF: {new:?}"));
        }
        if self.memory.own_kib > before.memory.own_kib + before.growth_kib {
            grown.push(format!("{}, and now {}", before.memory, self.memory));
        }
        if self.metered > before.metered.map(|before| before + OTHERS) {
            let (now, then) = (self.metered, before.metered);
            grown.push(format!(
                "cgroups in the kernel's map: {then:?}, and now {now:?}"
            ));
        }
        grown
    }

    /// From here on the journal of events may find no room.
    pub(super) fn may_wait(&mut self) {
        self.growth_kib = GROWTH_KIB + WAITING_KIB;
    }

    /// From here on it keeps nothing more than it has.
    pub(super) fn has_all(&mut self) {
        self.growth_kib = LATER_KIB;
    }

    /// Holds a process to what it held before, once what is on its way out is out.
    #[track_caller]
    pub(super) fn check_flat(pid: u32, before: &Self) {
        let flat = wait_until(PATIENCE, || {
            Self::of(pid).growth(before).is_empty().then_some(())
        });
        let grown = Self::of(pid).growth(before);
        assert!(
            flat.is_some(),
            "the agent holds more than when it was warm: {}",
            grown.join("; ")
        );
        // Or a list that names nobody would say after the end that nothing is left.
        let named = wait_until(PATIENCE, || {
            let holds = Self::of(pid).bpf;
            (in_the_kernel(&holds).len() == holds.len()).then_some(())
        });
        assert!(named.is_some(), "the kernel's lists name not all it holds");
    }

    /// After the agent's end: nothing of BPF that it held is left in the kernel.
    #[track_caller]
    pub(super) fn check_gone(&self) {
        let left = || in_the_kernel(&self.bpf);
        // The kernel frees them after a while.
        let gone = wait_until(PATIENCE, || left().is_empty().then_some(()));
        assert!(gone.is_some(), "left in the kernel: {:?}", left());
    }
}

/// Which of these the kernel has now.
fn in_the_kernel(wanted: &Ids) -> Ids {
    bpf_ids::loaded().intersection(wanted).copied().collect()
}

/// Of which kind there are more now.
fn more(now: &BTreeMap<String, usize>, before: &BTreeMap<String, usize>) -> Vec<String> {
    let were = |kind: &String| before.get(kind).copied().unwrap_or(0);
    let grown = now.iter().filter(|(kind, count)| **count > were(kind));
    let words = grown.map(|(kind, count)| format!("{kind}: {}, and now {count}", were(kind)));
    words.collect()
}

fn entries(pid: u32, folder: &str) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap();
    entries.flatten().map(|entry| entry.path())
}

/// Memory by the page tables: until Linux 6.2 the counts in `status` leave out up to 256 KiB of each thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// All but files, in swap too: whatever can leak.
    own_kib: u64,
    /// All that is resident: the program's text too, of which the kernel takes back and brings in what it likes.
    resident_kib: u64,
}

impl Memory {
    fn of(pid: u32) -> Self {
        let maps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let kib = |key: &str| -> u64 {
            let line = maps.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|line| line.split_whitespace().next());
            kib.unwrap().parse().unwrap()
        };
        Self {
            own_kib: kib("Pss_Anon:") + kib("Pss_Shmem:") + kib("SwapPss:"),
            resident_kib: kib("Rss:"),
        }
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            own_kib,
            resident_kib,
        } = self;
        write!(
            f,
            "{own_kib} KiB of memory of its own ({resident_kib} KiB resident)"
        )
    }
}
