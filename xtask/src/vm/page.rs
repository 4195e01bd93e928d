//! The tables of docs/kernels.md, made from what the guests found and the repository keeps.
use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    job::{Answer, Cgroup, Program},
    series::Series,
};
use crate::marks;

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
    programs: Vec<Program>,
}

impl Found {
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
pub(super) fn publish<'a>(
    root: &Path,
    cgroup: Cgroup,
    answers: impl Iterator<Item = (Series, &'a Answer)>,
) -> anyhow::Result<()> {
    let folder = root.join(KEPT);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    for (series, answer) in answers.filter(|(_, answer)| answer.skipped.is_none()) {
        let [passed, failed, skipped] = answer.report.counts();
        let found = Found {
            series,
            kernel: answer.kernel.clone(),
            cgroup,
            passed,
            failed,
            skipped,
            programs: answer.programs.clone(),
        };
        let version = serde_json::to_value(cgroup)?;
        let version = version.as_str().unwrap_or_default();
        let path = folder.join(format!("{series}-{version}.json"));
        let text = serde_json::to_string_pretty(&found)? + "\n";
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let page = root.join(PAGE);
    fs::write(&page, fresh(root)?).with_context(|| format!("writing {}", page.display()))
}

/// The page as it should be.
fn fresh(root: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let mut found = Vec::new();
    // The folder is made when something is kept.
    for entry in fs::read_dir(root.join(KEPT)).into_iter().flatten() {
        let path = entry.with_context(|| format!("listing {KEPT}"))?.path();
        let context = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).with_context(context)?;
        found.push(serde_json::from_str::<Found>(&text).with_context(context)?);
    }
    found.sort_by_key(|found| (found.series, found.cgroup == Cgroup::V1));
    marks::put((PAGE, &page), BY, &tables(&found))
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
            ..
        } = each;
        // Writing to a `String` cannot fail.
        let _written = writeln!(
            text,
            "| {kernel} | {version} | {passed} | {failed} | {skipped} |"
        );
    }
    text + "\n" + &program_table(found)
}

/// One row a program, one column a kernel; the reasons of what does not run stand below it.
fn program_table(found: &[Found]) -> String {
    let kernels: Vec<String> = found.iter().map(Found::heading).collect();
    let mut text = format!("| family | program | hook | {} |\n", kernels.join(" | "));
    // Writing to a `String` cannot fail, here and below.
    let _written = writeln!(text, "|---|---|---|{}", "---|".repeat(kernels.len()));
    let mut reasons = Vec::new();
    for (program, cells) in rows(found) {
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
fn rows(found: &[Found]) -> Vec<(&Program, Vec<Option<&Program>>)> {
    let mut programs: Vec<&Program> = found.iter().flat_map(|each| &each.programs).collect();
    programs.sort_by_key(|program| program.place());
    programs.dedup_by_key(|program| program.place());
    let with_cells = |program: &'_ Program| {
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
    use super::*;
    use crate::workspace;

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
            programs: vec![program("victim", "b", absent), program("retry", "a", None)],
        }
    }

    #[test]
    fn the_tables_say_which_program_runs_where() {
        let all = [
            found("6.1.176", Cgroup::V2, None),
            found("6.1.176", Cgroup::V1, Some("no tracefs")),
        ];
        let expected = "\
| kernel | control groups | passed | failed | skipped |
|---|---|---:|---:|---:|
| 6.1.176 | v2 | 3 | 0 | 1 |
| 6.1.176 | v1 | 3 | 0 | 1 |

| family | program | hook | 6.1.176 | 6.1.176, v1 |
|---|---|---|---|---|
| oom | `retry` | a | yes | yes |
| oom | `victim` | b | yes | no [1] |

[1] no tracefs
";
        assert_eq!(tables(&all), expected);
    }

    #[test]
    fn the_page_shows_what_is_kept() {
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        let remedy = format!("write the tables anew: {BY}");
        assert_eq!(fresh(workspace::root()).unwrap(), page, "{remedy}");
    }
}
