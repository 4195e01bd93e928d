//! The tables of docs/kernels.md, made from what the guests found and the repository keeps.
use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::{
    claims,
    job::{Cgroup, Program},
    kept::{self, Found},
    known::Outcome,
};
use crate::marks;

/// The page, from the workspace's directory.
const PAGE: &str = "docs/kernels.md";
const BY: &str = "cargo xtask vm --publish";

/// The tests that did not simply hold, a line for each kind; reasons that several tests give stand once.
fn lines(found: &Found) -> Vec<String> {
    let mut lines: Vec<String> = found
        .faults
        .iter()
        .map(|(guest, fault)| format!("the latest {guest} {fault}"))
        .collect();
    let of = |wanted: &Outcome| -> Vec<&str> {
        let tests = found
            .tests
            .iter()
            .filter(|(_, known)| known.outcome == *wanted);
        tests.map(|(key, _)| key.as_str()).collect()
    };
    let mut tell = |word: &str, tests: &[&str]| {
        let names = tests.iter().map(|key| format!("`{}`", name_of(key)));
        let names = names.collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            lines.push(format!("{word}: {names}"));
        }
    };
    tell("failed", &of(&Outcome::Failed));
    tell("held when run again", &of(&Outcome::Unsteady));
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, known) in &found.tests {
        if let Outcome::Skipped(reason) = &known.outcome {
            by_reason.entry(reason).or_default().push(key);
        }
    }
    for (reason, tests) in by_reason {
        tell(&format!("skipped, {reason}"), &tests);
    }
    let never: Vec<&str> = found.never_run.iter().map(String::as_str).collect();
    tell(&format!("never run ({})", never.len()), &never);
    for (key, parts) in &found.left_out {
        let (name, parts) = (name_of(key), parts.join("; "));
        lines.push(format!("`{name}` has left out of itself: {parts}"));
    }
    lines
}

/// A test's own name, behind that of its suite, which may have several words.
fn name_of(key: &str) -> &str {
    key.rsplit(' ').next().unwrap_or(key)
}

/// How many of the results that are kept are of which commit.
fn commits(found: &Found) -> Option<String> {
    let results = found.tests.values();
    let commits = results.map(|known| known.when.commit.as_deref().unwrap_or_default());
    let told = counted(commits, "commits that were not kept")?;
    Some(format!("results: {told}"))
}

/// How many are by which kernel objects.
fn objects(found: &Found) -> Option<String> {
    let results = found.tests.values();
    let objects = results.map(|known| {
        let commit = known.when.commit.as_deref();
        let objects = commit.and_then(|commit| found.objects.get(commit));
        objects.map_or("", String::as_str)
    });
    let told = counted(objects, "objects that are not known")?;
    Some(format!("kernel objects: {told}"))
}

/// How many of each there are, the most first; none if all are unknown.
fn counted<'a>(of: impl Iterator<Item = &'a str>, unknown: &str) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in of {
        *counts.entry(one).or_default() += 1;
    }
    if counts.keys().all(|one| one.is_empty()) {
        return None;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told = counts.iter().map(|(one, count)| match *one {
        "" => format!("{count} of {unknown}"),
        one => format!("{count} of `{one}`"),
    });
    Some(told.collect::<Vec<_>>().join(", "))
}

/// The first day and the last on which a test was run whose outcome is kept.
fn days(found: &Found) -> String {
    let days = || found.tests.values().map(|known| known.when.day.as_str());
    match (days().min(), days().max()) {
        (Some(first), Some(last)) if first == last => first.to_owned(),
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "never".to_owned(),
    }
}

impl Found {
    /// The kernel, as the head of a column.
    pub(super) fn heading(&self) -> String {
        match self.cgroup {
            Cgroup::V2 => self.kernel.clone(),
            Cgroup::V1 => format!("{}, v1", self.kernel),
        }
    }
}

/// Writes the tables into the page, from what is kept.
///
/// # Errors
/// When a file cannot be read or written, or the page has no place for the tables.
pub(super) fn write(root: &Path) -> anyhow::Result<()> {
    let page = root.join(PAGE);
    fs::write(&page, fresh(root)?).with_context(|| format!("writing {}", page.display()))
}

/// The page as it should be.
fn fresh(root: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    marks::put((PAGE, &page), BY, &tables(&kept::read(root)?))
}

fn tables(found: &[Found]) -> String {
    if found.is_empty() {
        return "Nothing has been kept yet.\n".to_owned();
    }
    let mut text = String::from(
        "| kernel | control groups | passed | when run again | failed | skipped | run on |\n",
    );
    text += "|---|---|---:|---:|---:|---:|---|\n";
    for each in found {
        let version = match each.cgroup {
            Cgroup::V2 => "v2",
            Cgroup::V1 => "v1",
        };
        let [passed, again, failed, skipped] = each.counts();
        let (kernel, days) = (&each.kernel, days(each));
        // Writing to a `String` cannot fail, here and below.
        let _written = writeln!(
            text,
            "| {kernel} | {version} | {passed} | {again} | {failed} | {skipped} | {days} |"
        );
    }
    text += "\n";
    for each in found {
        let heading = each.heading();
        let results = commits(each).into_iter().chain(objects(each));
        for line in results.chain(lines(each)) {
            let _written = writeln!(text, "- {heading}: {line}");
        }
    }
    text + "\n" + &claims::table(found) + "\n" + &program_table(found)
}

/// One row a program, one column a kernel; the reasons of what does not run stand below it.
fn program_table(all: &[Found]) -> String {
    // A kernel whose guests have never answered says nothing of any program.
    let found: Vec<&Found> = all
        .iter()
        .filter(|each| !each.programs.is_empty())
        .collect();
    let kernels: Vec<String> = found.iter().map(|each| each.heading()).collect();
    let mut text = format!("| family | program | hook | {} |\n", kernels.join(" | "));
    let _written = writeln!(text, "|---|---|---|{}", "---|".repeat(kernels.len()));
    let mut reasons = Vec::new();
    for (program, cells) in rows(&found) {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| cell_text(cell, &mut reasons))
            .collect();
        let Program {
            family, name, hook, ..
        } = program;
        let cells = cells.join(" | ");
        let _written = writeln!(text, "| {family} | `{name}` | {hook} | {cells} |");
    }
    for (number, reason) in (1..).zip(reasons) {
        let _written = write!(text, "\n[{number}] {reason}\n");
    }
    text
}

/// Every program there is on any kernel, with what each kernel says of it.
fn rows<'a>(found: &[&'a Found]) -> Vec<(&'a Program, Vec<Option<&'a Program>>)> {
    let mut programs: Vec<&Program> = found.iter().flat_map(|each| &each.programs).collect();
    programs.sort_by_key(|program| program.place());
    programs.dedup_by_key(|program| program.place());
    let with_cells = |program: &Program| {
        let is_same = |known: &&Program| known.place() == program.place();
        let cells = found.iter().map(|each| each.programs.iter().find(is_same));
        cells.collect()
    };
    programs
        .into_iter()
        .map(|program| (program, with_cells(program)))
        .collect()
}

/// What a kernel says of a program; a reason is given by its number.
fn cell_text<'a>(cell: Option<&'a Program>, reasons: &mut Vec<&'a str>) -> String {
    let Some(program) = cell else {
        return "not in this build".to_owned();
    };
    let Some(reason) = program.absent.as_deref() else {
        return "yes".to_owned();
    };
    let known = reasons.iter().position(|known| *known == reason);
    let number = known.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    format!("no [{}]", number + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use brink_host::probe::programs::PROGRAMS;

    use super::*;
    use crate::{
        vm::{known::Known, series::Series},
        when::When,
        workspace,
    };

    fn found(cgroup: Cgroup, absent: Option<&str>, tests: &[(&str, Outcome, &str)]) -> Found {
        let program = |name: &str, hook: &str, absent: Option<&str>| Program {
            family: "oom".to_owned(),
            name: name.to_owned(),
            hook: hook.to_owned(),
            absent: absent.map(str::to_owned),
        };
        let known = |(name, outcome, day): &(&str, Outcome, &str)| {
            let known = Known {
                outcome: outcome.clone(),
                when: When::from(*day),
            };
            (format!("brink-tests live {name}"), known)
        };
        Found {
            series: Series::V6_1,
            kernel: "6.1.176".to_owned(),
            cgroup,
            faults: BTreeMap::new(),
            tests: tests.iter().map(known).collect(),
            left_out: BTreeMap::new(),
            never_run: Vec::new(),
            objects: BTreeMap::new(),
            programs: vec![program("victim", "b", absent), program("retry", "a", None)],
        }
    }

    #[test]
    fn the_tables_say_what_held_where_and_which_program_runs_where() {
        let skipped = Outcome::Skipped("no zram".to_owned());
        let tests = [
            ("a::b", Outcome::Failed, "2026-01-02"),
            ("c", Outcome::Unsteady, "2026-01-01"),
            ("d", skipped.clone(), "2026-01-01"),
            ("e", skipped, "2026-01-01"),
            ("f", Outcome::Passed, "2026-01-01@3dc94a75"),
        ];
        let hung = Found {
            faults: BTreeMap::from([("guest".to_owned(), "hung".to_owned())]),
            programs: Vec::new(),
            kernel: "6.12".to_owned(),
            ..found(Cgroup::V2, None, &[])
        };
        let parts = ["no births", "no burst"].map(str::to_owned).to_vec();
        let in_part = Found {
            left_out: BTreeMap::from([("brink-tests live f".to_owned(), parts)]),
            never_run: ["g", "no_psi::h"]
                .map(|name| format!("brink-tests live {name}"))
                .to_vec(),
            objects: BTreeMap::from([("3dc94a75".to_owned(), "52aa855f".to_owned())]),
            ..found(Cgroup::V2, None, &tests)
        };
        let all = [
            in_part,
            found(Cgroup::V1, Some("no tracefs"), &tests[4..]),
            hung,
        ];
        let expected = "\
| kernel | control groups | passed | when run again | failed | skipped | run on |
|---|---|---:|---:|---:|---:|---|
| 6.1.176 | v2 | 1 | 1 | 1 | 2 | 2026-01-01 to 2026-01-02 |
| 6.1.176 | v1 | 1 | 0 | 0 | 0 | 2026-01-01 |
| 6.12 | v2 | 0 | 0 | 0 | 0 | never |

- 6.1.176: results: 4 of commits that were not kept, 1 of `3dc94a75`
- 6.1.176: kernel objects: 4 of objects that are not known, 1 of `52aa855f`
- 6.1.176: failed: `a::b`
- 6.1.176: held when run again: `c`
- 6.1.176: skipped, no zram: `d`, `e`
- 6.1.176: never run (2): `g`, `no_psi::h`
- 6.1.176: `f` has left out of itself: no births; no burst
- 6.1.176, v1: results: 1 of `3dc94a75`
- 6.12: the latest guest hung

| family | program | hook | 6.1.176 | 6.1.176, v1 |
|---|---|---|---|---|
| oom | `retry` | a | yes | yes |
| oom | `victim` | b | yes | no [1] |

[1] no tracefs
";
        let found = tables(&all);
        let (head, rest) = found.split_once("| what |").unwrap();
        let (_claims, programs) = rest.split_once("\n\n").unwrap();
        assert_eq!(format!("{head}{programs}"), expected);
    }

    #[test]
    fn the_page_shows_what_is_kept() {
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let remedy = format!("write the tables anew: {BY}");
        assert_eq!(fresh(workspace::root()).unwrap(), page, "{remedy}");
    }

    /// A table that is older than the programs is not made anew with every change of them, and says so.
    #[test]
    fn a_table_of_an_older_set_of_programs_says_so() {
        const WORDS: &str = "The table of programs is older than the programs:";
        let today: BTreeSet<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        let kept = kept::read(workspace::root()).unwrap();
        let answered = kept.iter().filter(|found| !found.programs.is_empty());
        let mut differ = BTreeSet::new();
        for found in answered {
            let then = found.programs.iter().map(|program| program.name.as_str());
            let then: BTreeSet<&str> = then.collect();
            differ.extend(today.symmetric_difference(&then).copied());
        }
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let said: Vec<&str> = page
            .lines()
            .skip_while(|line| !line.starts_with(WORDS))
            .take_while(|line| !line.is_empty())
            .collect();
        let said = said.join(" ");
        let named: BTreeSet<&str> = said.split('`').skip(1).step_by(2).collect();
        assert_eq!(
            named, differ,
            "{PAGE} says `{WORDS} …` with the names of what came or went since, or nothing"
        );
    }
}
