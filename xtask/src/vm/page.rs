//! The tables of docs/kernels.md, made from what the guests found and the repository keeps.
use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    job::{Answer, Cgroup, Program},
    series::Series,
    verdict::Fault,
};
use crate::{
    marks,
    test::{Report, libtest::Skip},
};

/// The page, from the workspace's directory.
const PAGE: &str = "docs/kernels.md";
/// Where what was found is kept, from the workspace's directory.
const KEPT: &str = "docs/kernels";
const BY: &str = "cargo xtask vm --publish";

/// What was found on one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Found {
    series: Series,
    /// Release of the kernel.
    kernel: String,
    /// Version of the control groups.
    cgroup: Cgroup,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Why there is nothing else: the guest hung or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Which tests; not known where it was kept before they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tests: Option<Tests>,
    programs: Vec<Program>,
}

/// The tests that did not simply hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tests {
    failed: Vec<String>,
    /// Those that held when they were run again.
    unsteady: Vec<String>,
    skipped: Vec<Skip>,
}

impl Tests {
    fn of(report: &Report) -> Self {
        let mut tests = Self::default();
        for outcome in report.outcomes() {
            tests.failed.extend_from_slice(&outcome.failures);
            tests.unsteady.extend_from_slice(&outcome.unsteady);
            tests.skipped.extend_from_slice(&outcome.skipped);
        }
        tests
    }

    /// A line for each of them; reasons that several tests give stand once.
    fn lines(&self) -> Vec<String> {
        let named = |word: &str, names: &[String]| {
            let names = names.iter().map(|name| format!("`{name}`"));
            let names = names.collect::<Vec<_>>().join(", ");
            (!names.is_empty()).then(|| format!("{word}: {names}"))
        };
        let mut lines = Vec::new();
        lines.extend(named("failed", &self.failed));
        lines.extend(named("held when run again", &self.unsteady));
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for skip in &self.skipped {
            let tests = by_reason.entry(&skip.reason).or_default();
            tests.push(skip.test.clone());
        }
        for (reason, tests) in by_reason {
            lines.extend(named(&format!("skipped, {reason}"), &tests));
        }
        lines
    }
}

/// What the guest of one kernel has found, and the one that lacked what others have.
pub(super) type Finding<'a> = (
    Series,
    Result<&'a Answer, &'a Fault>,
    Option<Result<&'a Answer, &'a Fault>>,
);

impl Found {
    /// What is kept of it; nothing of a kernel on which the job cannot be done.
    fn of((series, whole, bare): &Finding<'_>, cgroup: Cgroup) -> Option<Self> {
        let answer = match whole {
            Ok(answer) if answer.skipped.is_some() => return None,
            Ok(answer) => answer,
            Err(fault) => return Some(Self::without(*series, cgroup, fault)),
        };
        let mut report = answer.report.clone();
        if let Some(Ok(bare)) = bare {
            report.add_from("bare", bare.report.clone());
        }
        let [passed, mut failed, skipped] = report.counts();
        let mut tests = Tests::of(&report);
        if let Some(Err(fault)) = bare {
            failed += 1;
            tests.failed.push(format!("the bare kernel: {fault}"));
        }
        Some(Self {
            series: *series,
            kernel: answer.kernel.clone(),
            cgroup,
            passed,
            failed,
            skipped,
            fault: None,
            tests: Some(tests),
            programs: answer.programs.clone(),
        })
    }

    /// A guest without an answer: of its kernel no more is known than the series.
    fn without(series: Series, cgroup: Cgroup, fault: &Fault) -> Self {
        // What a fault quotes may have several lines.
        let fault = fault.to_string();
        Self {
            series,
            kernel: series.to_string(),
            cgroup,
            passed: 0,
            failed: 1,
            skipped: 0,
            fault: Some(fault.lines().next().unwrap_or_default().to_owned()),
            tests: None,
            programs: Vec::new(),
        }
    }

    fn heading(&self) -> String {
        match self.cgroup {
            Cgroup::V2 => self.kernel.clone(),
            Cgroup::V1 => format!("{}, v1", self.kernel),
        }
    }
}

/// Keeps what was found, one file a kernel, and writes the tables into the page.
///
/// # Errors
/// When a file cannot be read or written, or the page has no place for the tables.
pub(super) fn publish(root: &Path, cgroup: Cgroup, findings: &[Finding<'_>]) -> anyhow::Result<()> {
    let folder = root.join(KEPT);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let found = findings.iter().map(|finding| Found::of(finding, cgroup));
    for found in found.flatten() {
        let version = serde_json::to_value(cgroup)?;
        let version = version.as_str().unwrap_or_default();
        let path = folder.join(format!("{}-{version}.json", found.series));
        let text = serde_json::to_string_pretty(&found)? + "\n";
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let page = root.join(PAGE);
    fs::write(&page, fresh(root)?).with_context(|| format!("writing {}", page.display()))
}

/// The page as it should be.
fn fresh(root: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    marks::put((PAGE, &page), BY, &tables(&kept(root)?))
}

/// What is kept, in the order of the tables.
fn kept(root: &Path) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    // The folder is made when something is kept.
    for entry in fs::read_dir(root.join(KEPT)).into_iter().flatten() {
        let path = entry.with_context(|| format!("listing {KEPT}"))?.path();
        let context = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).with_context(context)?;
        found.push(serde_json::from_str::<Found>(&text).with_context(context)?);
    }
    found.sort_by_key(|found| (found.series, found.cgroup == Cgroup::V1));
    Ok(found)
}

fn tables(found: &[Found]) -> String {
    if found.is_empty() {
        return "Nothing has been kept yet.\n".to_owned();
    }
    let mut text = String::from("| kernel | control groups | passed | failed | skipped |\n");
    text += "|---|---|---:|---:|---:|\n";
    for each in found {
        let version = match each.cgroup {
            Cgroup::V2 => "v2",
            Cgroup::V1 => "v1",
        };
        let Found {
            kernel,
            passed,
            failed,
            skipped,
            fault,
            ..
        } = each;
        let counts = match fault {
            Some(_) => "none | the guest | none".to_owned(),
            None => format!("{passed} | {failed} | {skipped}"),
        };
        // Writing to a `String` cannot fail.
        let _written = writeln!(text, "| {kernel} | {version} | {counts} |");
    }
    text += "\n";
    for each in found {
        let heading = each.heading();
        let lines = match (&each.fault, &each.tests) {
            (Some(fault), _) => vec![format!("the guest {fault}")],
            (None, Some(tests)) => tests.lines(),
            (None, None) => vec!["which tests failed or were skipped was not kept yet".to_owned()],
        };
        for line in lines {
            let _written = writeln!(text, "- {heading}: {line}");
        }
    }
    text + "\n" + &program_table(found)
}

/// One row a program, one column a kernel; the reasons of what does not run stand below it.
fn program_table(all: &[Found]) -> String {
    // A guest without an answer says nothing of any program.
    let found: Vec<&Found> = all.iter().filter(|each| each.fault.is_none()).collect();
    let kernels: Vec<String> = found.iter().map(|each| each.heading()).collect();
    let mut text = format!("| family | program | hook | {} |\n", kernels.join(" | "));
    // Writing to a `String` cannot fail, here and below.
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
    use std::{collections::BTreeSet, time::Duration};

    use brink_host::probe::programs::PROGRAMS;

    use super::*;
    use crate::{
        test::{libtest::Outcome, report::Suite},
        workspace,
    };

    fn found(kernel: &str, cgroup: Cgroup, absent: Option<&str>) -> Found {
        let program = |name: &str, hook: &str, absent: Option<&str>| Program {
            family: "oom".to_owned(),
            name: name.to_owned(),
            hook: hook.to_owned(),
            absent: absent.map(str::to_owned),
        };
        Found {
            series: Series::V6_1,
            kernel: kernel.to_owned(),
            cgroup,
            passed: 3,
            failed: 0,
            skipped: 1,
            fault: None,
            tests: None,
            programs: vec![program("victim", "b", absent), program("retry", "a", None)],
        }
    }

    #[test]
    fn the_tables_say_which_program_runs_where() {
        let hung = Fault::Hung(Duration::from_mins(45));
        let mut with_tests = found("6.1.176", Cgroup::V2, None);
        let skip = |test: &str| Skip {
            test: test.to_owned(),
            reason: "no zram".to_owned(),
        };
        with_tests.tests = Some(Tests {
            failed: vec!["a::b".to_owned()],
            unsteady: vec!["c".to_owned()],
            skipped: vec![skip("d"), skip("e")],
        });
        let all = [
            with_tests,
            found("6.1.176", Cgroup::V1, Some("no tracefs")),
            Found::without(Series::V6_12, Cgroup::V2, &hung),
        ];
        let expected = "\
| kernel | control groups | passed | failed | skipped |
|---|---|---:|---:|---:|
| 6.1.176 | v2 | 3 | 0 | 1 |
| 6.1.176 | v1 | 3 | 0 | 1 |
| 6.12 | v2 | none | the guest | none |

- 6.1.176: failed: `a::b`
- 6.1.176: held when run again: `c`
- 6.1.176: skipped, no zram: `d`, `e`
- 6.1.176, v1: which tests failed or were skipped was not kept yet
- 6.12: the guest hung: ended at its deadline after 2700s

| family | program | hook | 6.1.176 | 6.1.176, v1 |
|---|---|---|---|---|
| oom | `retry` | a | yes | yes |
| oom | `victim` | b | yes | no [1] |

[1] no tracefs
";
        assert_eq!(tables(&all), expected);
    }

    fn answer(outcome: Outcome) -> Answer {
        let mut report = Report::default();
        report.add(Suite::told("live", outcome));
        Answer {
            nonce: String::new(),
            kernel: "6.1.176".to_owned(),
            skipped: None,
            report,
            programs: Vec::new(),
        }
    }

    #[test]
    fn a_guest_without_an_answer_takes_the_place_of_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("docs")).unwrap();
        let marks = format!("<!-- made by `{BY}`; do not edit -->\n<!-- end of what is made -->\n");
        fs::write(root.join(PAGE), marks).unwrap();
        let good = answer(Outcome {
            passed: 2,
            unsteady: vec!["a".to_owned()],
            ..Outcome::default()
        });
        let died = Fault::Died("panic\nand more".to_owned());
        for (whole, bare, expected) in [
            (Ok(&good), Some(Err(&died)), "| 6.1.176 | v2 | 2 | 1 | 0 |"),
            (Ok(&good), Some(Ok(&good)), "| 6.1.176 | v2 | 4 | 0 | 0 |"),
            (
                Err(&died),
                None,
                "- 6.1: the guest died without a verdict: panic\n",
            ),
        ] {
            publish(root, Cgroup::V2, &[(Series::V6_1, whole, bare)]).unwrap();
            let page = fs::read_to_string(root.join(PAGE)).unwrap();
            assert!(page.contains(expected), "{expected} is not in {page}");
        }
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(!page.contains("6.1.176"), "{page}");
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
        let kept = kept(workspace::root()).unwrap();
        let answered = kept.iter().filter(|found| found.fault.is_none());
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
