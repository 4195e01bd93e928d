//! The processes with the most memory, of a cgroup and of the node: bounded in number and in time.

use std::path::Path;
use std::time::{Duration, Instant};

use brink_host::HostError;
use brink_host::process::brief::{Brief, ids, resident_pages};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{ProcessLine, Victim};

use super::super::compose;
use super::why;

/// Lines of a table.
pub const LINES: usize = 10;
/// Processes of one cgroup that are looked at.
const MOST_OF_GROUP: usize = 512;
/// Processes of the node that are looked at.
const MOST_OF_NODE: usize = 32_768;
/// Looking at those of a cgroup takes no longer.
const LONGEST: Duration = Duration::from_millis(3);
/// A part of a look at the node takes no longer.
const PART: Duration = Duration::from_millis(2);
/// A table of the node serves the incidents of so long a time.
const SERVES: Duration = Duration::from_millis(200);
/// The node is looked at for no more than this part of a processor: one in fifty.
const SHARE: u32 = 50;

/// Processes by the pages they have.
#[derive(Debug, Default)]
struct Ranking(Vec<(u64, i32)>);

impl Ranking {
    fn take(&mut self, pages: u64, pid: i32) {
        if pages == 0 {
            return;
        }
        self.0.push((pages, pid));
        if self.0.len() >= 2 * LINES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.0.sort_unstable_by(|one, other| other.cmp(one));
        self.0.truncate(LINES);
    }

    fn lines(mut self, root: &Path) -> Vec<ProcessLine> {
        self.cut();
        let line = |(pages, pid): (u64, i32)| {
            // One that ended meanwhile is left out: nothing but its size is known.
            let brief = Brief::read(root, pid).ok()?;
            Some(described(root, (pages, pid), brief))
        };
        self.0.into_iter().filter_map(line).collect()
    }
}

/// A process as a line of a table.
fn described(root: &Path, (pages, pid): (u64, i32), brief: Brief) -> ProcessLine {
    let page = rustix::param::page_size() as u64;
    let (swap, oom_score_adj) = (brief.resident.swap, brief.oom_score_adj);
    let why = || unsaid(root, pid);
    ProcessLine {
        pid: pid.unsigned_abs(),
        comm: brief.name,
        rss: pages.saturating_mul(page),
        swap,
        swap_missing: swap.is_none().then(why),
        oom_score_adj,
        oom_score_adj_missing: oom_score_adj.is_none().then(why),
    }
}

/// Why something is not known of a process that had memory a moment ago: it has none any more, or that was not read.
fn unsaid(root: &Path, pid: i32) -> Missing {
    match resident_pages(root, pid) {
        Ok(0) => Missing::ProcessGone,
        Ok(_) => Missing::Lost,
        Err(error) => why(&error, Missing::ProcessGone),
    }
}

/// The processes with the most memory of those of a cgroup.
pub fn of_group(root: &Path, pids: &[i32]) -> Vec<ProcessLine> {
    let until = Instant::now() + LONGEST;
    let mut ranking = Ranking::default();
    for pid in pids.iter().take(MOST_OF_GROUP) {
        if let Ok(pages) = resident_pages(root, *pid) {
            ranking.take(pages, *pid);
        }
        if Instant::now() >= until {
            break;
        }
    }
    ranking.lines(root)
}

/// Puts a process into a table where it has its place, if it is not there: a victim may have given its memory back before
/// anybody looked.
pub fn with(mut lines: Vec<ProcessLine>, mut line: ProcessLine) -> Vec<ProcessLine> {
    match lines.iter_mut().find(|other| other.pid == line.pid) {
        // What was seen before it died is the better figure.
        Some(found) if line.rss <= found.rss => {
            complete(found, &line);
            return lines;
        }
        Some(found) => complete(&mut line, found),
        // One of which none is known has no place.
        None if line.rss == 0 => return lines,
        None => {}
    }
    lines.retain(|other| other.pid != line.pid);
    let place = lines.partition_point(|other| other.rss >= line.rss);
    lines.insert(place, line);
    lines.truncate(LINES);
    lines
}

/// The same for every victim of an incident.
pub fn with_victims(lines: Vec<ProcessLine>, victims: &[Victim]) -> Vec<ProcessLine> {
    victims.iter().map(compose::line).fold(lines, with)
}

/// Takes over what another line of the same process knows, where this one knows nothing.
const fn complete(line: &mut ProcessLine, other: &ProcessLine) {
    if line.swap.is_none() {
        (line.swap, line.swap_missing) = (other.swap, other.swap_missing);
    }
    if line.oom_score_adj.is_none() {
        line.oom_score_adj = other.oom_score_adj;
        line.oom_score_adj_missing = other.oom_score_adj_missing;
    }
}

/// The node's table, made part by part and kept for a moment.
#[derive(Debug, Default)]
pub struct NodeTable {
    scan: Option<Scan>,
    ready: Option<Ready>,
}

#[derive(Debug)]
struct Scan {
    began: Instant,
    pids: Vec<i32>,
    next: usize,
    ranking: Ranking,
    spent: Duration,
}

#[derive(Debug)]
struct Ready {
    began: Instant,
    serves: Duration,
    lines: Vec<ProcessLine>,
}

impl NodeTable {
    /// The table for something that happened at `at`, if one serves; otherwise another part of it is made, and `None` says
    /// that more parts are to come.
    pub fn part(&mut self, root: &Path, at: Instant) -> Option<Field<Vec<ProcessLine>>> {
        if let Some(ready) = &self.ready
            && at <= ready.began + ready.serves
        {
            return Some(Field::Value(ready.lines.clone()));
        }
        let began = Instant::now();
        let scan = match &mut self.scan {
            Some(scan) => scan,
            none => match Scan::begin(root, began) {
                Ok(scan) => none.insert(scan),
                Err(error) => return Some(Field::Missing(why(&error, Missing::Lost))),
            },
        };
        let is_over = scan.go_on(root, began + PART);
        scan.spent += began.elapsed();
        if !is_over {
            return None;
        }
        let scan = self.scan.take()?;
        let lines = scan.ranking.lines(root);
        self.ready = Some(Ready {
            began: scan.began,
            serves: SERVES.max(scan.spent * SHARE),
            lines: lines.clone(),
        });
        Some(Field::Value(lines))
    }
}

impl Scan {
    fn begin(root: &Path, began: Instant) -> Result<Self, HostError> {
        let mut pids = ids(root)?;
        pids.truncate(MOST_OF_NODE);
        Ok(Self {
            began,
            pids,
            next: 0,
            ranking: Ranking::default(),
            spent: Duration::ZERO,
        })
    }

    /// Whether that was the last part.
    fn go_on(&mut self, root: &Path, until: Instant) -> bool {
        while let Some(pid) = self.pids.get(self.next) {
            if let Ok(pages) = resident_pages(root, *pid) {
                self.ranking.take(pages, *pid);
            }
            self.next += 1;
            if Instant::now() >= until {
                break;
            }
        }
        self.next >= self.pids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: u32, rss: u64) -> ProcessLine {
        ProcessLine {
            pid,
            comm: String::new(),
            rss,
            swap: None,
            swap_missing: Some(Missing::ProcessGone),
            oom_score_adj: Some(0),
            oom_score_adj_missing: None,
        }
    }

    #[test]
    fn the_largest_are_kept_in_order() {
        let mut ranking = Ranking::default();
        for pid in 1..1000_i32 {
            ranking.take(u64::from(pid.unsigned_abs()) % 100, pid);
        }
        ranking.cut();
        assert_eq!(ranking.0.len(), LINES);
        assert!(ranking.0.is_sorted_by(|one, other| one >= other));
        assert_eq!(ranking.0[0].0, 99);
    }

    #[test]
    fn a_victim_has_its_place_in_the_table() {
        let pids =
            |lines: &[ProcessLine]| -> Vec<u32> { lines.iter().map(|line| line.pid).collect() };
        let table = vec![line(1, 30), line(2, 20), line(3, 0)];
        let table = with(table, line(3, 25));
        assert_eq!(pids(&table), [1, 3, 2]);
        assert_eq!(pids(&with(table.clone(), line(3, 24))), [1, 3, 2]);
        assert_eq!(with(table.clone(), line(3, 24))[1].rss, 25, "as it lived");
        assert_eq!(with(table.clone(), line(9, 0)), table);
        let full: Vec<ProcessLine> = (0..10).map(|pid| line(pid, 50)).collect();
        assert_eq!(with(full.clone(), line(99, 1)), full);
    }

    /// Whichever of two lines stays, what only the other one knows of the process is not lost.
    #[test]
    fn two_lines_of_a_process_know_together_what_each_of_them_knows() {
        let known = ProcessLine {
            swap: Some(7),
            swap_missing: None,
            oom_score_adj: None,
            oom_score_adj_missing: Some(Missing::Lost),
            ..line(1, 30)
        };
        for other in [line(1, 20), line(1, 40)] {
            let found = with(vec![known.clone()], other).remove(0);
            assert_eq!((found.swap, found.swap_missing), (Some(7), None));
            let score = (found.oom_score_adj, found.oom_score_adj_missing);
            assert_eq!(score, (Some(0), None));
        }
    }

    #[test]
    fn what_the_files_of_a_process_do_not_say_is_unknown_and_no_zero() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7");
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let status = |swap: &str| format!("Name:\tleak\nTgid:\t7\nVmRSS:\t4 kB\n{swap}");
        let check = |pages: u64, swap: (Option<u64>, _), score: (Option<i32>, _)| {
            write("statm", &format!("9 {pages} 0 0 0 0 0\n"));
            let mut ranking = Ranking::default();
            ranking.take(3, 7);
            let found = ranking.lines(root.path()).remove(0);
            assert_eq!((found.swap, found.swap_missing), swap);
            assert_eq!((found.oom_score_adj, found.oom_score_adj_missing), score);
        };
        write("status", &status(""));
        let (lost, gone) = (Some(Missing::Lost), Some(Missing::ProcessGone));
        check(3, (None, lost), (None, lost));
        // One that has given its memory back meanwhile.
        check(0, (None, gone), (None, gone));
        write("status", &status("VmSwap:\t0 kB\n"));
        write("oom_score_adj", "-5\n");
        check(0, (Some(0), None), (Some(-5), None));
    }

    #[test]
    fn the_nodes_table_is_made_in_parts_and_serves_for_a_moment() {
        let root = Path::new("/");
        let mut table = NodeTable::default();
        let at = Instant::now();
        let parts = std::iter::repeat_with(|| table.part(root, at));
        let found = parts.take(100_000).flatten().next().expect("it ends");
        let lines = found.value().expect("/proc can be listed");
        assert!(!lines.is_empty() && lines.len() <= LINES);
        assert!(lines.is_sorted_by(|one, other| one.rss >= other.rss));
        assert_eq!(table.part(root, at).as_ref(), Some(&found), "the same");
        assert!(table.scan.is_none());
        let nowhere = Path::new("/nonexistent");
        let none = NodeTable::default().part(nowhere, at);
        assert_eq!(
            none,
            Some(Field::Missing(Missing::Lost)),
            "not an empty table"
        );
    }

    #[test]
    fn we_are_in_the_table_of_our_group() {
        let own = std::process::id();
        let lines = of_group(Path::new("/"), &[own.cast_signed(), i32::MAX]);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].pid == own && lines[0].rss > 0, "{lines:?}");
    }
}
