//! What every file owes whatever its language: a head, clean lines, and no path of somebody's machine.
use super::{Problem, Tree};

/// Folders that exist on one machine and not on another; in two parts, so that this file may stand
/// under its own rule.
const HOST_FOLDERS: [&str; 4] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
];

/// Inputs of the fuzz targets, which are as they are: nobody writes them for readers.
const SAMPLES: &str = "tests/fuzz/corpus/";

/// Rust files that do not begin with one line that says what they are for.
pub(super) fn heads(tree: &Tree) -> Vec<Problem> {
    let remedy = "begin with `//! What this file is for.`, on one line; more after an empty `//!`";
    let rust = tree.files.iter().filter(|file| file.is_rust());
    rust.filter(|file| !has_head(file.text().unwrap_or_default()))
        .map(|file| Problem::fault(&file.path, 1, "does not say what it is for", remedy))
        .collect()
}

fn has_head(text: &str) -> bool {
    let mut lines = text.lines();
    let says = lines.next().and_then(|line| line.strip_prefix("//! "));
    let goes_on = lines.next().and_then(|line| line.strip_prefix("//!"));
    says.is_some_and(|head| !head.trim().is_empty())
        && goes_on.is_none_or(|second| second.trim().is_empty())
}

/// Paths of one machine, in any file, and blanks at the end of a line of text.
pub(super) fn lines(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        let is_text = file.text().is_some();
        let is_written = is_text && !file.path.starts_with(SAMPLES);
        for (index, line) in file.bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = if is_text { index + 1 } else { 0 };
            if let Some(folder) = host_path(line) {
                let message = format!("a path of one machine: `{folder}…`");
                let remedy = "make it relative, take it as an argument, or remap it at build";
                problems.push(Problem::fault(&file.path, number, message, remedy));
            }
            if is_written && line.last().is_some_and(|byte| b" \t\r".contains(byte)) {
                let remedy = "remove it";
                let message = "blanks at the end of the line";
                problems.push(Problem::fault(&file.path, number, message, remedy));
            }
        }
    }
    problems
}

/// The host folder that `line` names as the beginning of an absolute path.
fn host_path(line: &[u8]) -> Option<&'static str> {
    let begins_path = |at: usize| {
        // Inside a longer path the same name is a folder of that path.
        let before = at.checked_sub(1).map_or(b' ', |before| line[before]);
        !before.is_ascii_alphanumeric() && !b"._-/})*".contains(&before)
    };
    HOST_FOLDERS.into_iter().find(|folder| {
        let mut windows = line.windows(folder.len()).enumerate();
        windows.any(|(at, window)| window == folder.as_bytes() && begins_path(at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::check_file;

    const PATH: &str = "agent/src/a.rs";

    #[test]
    fn a_file_says_what_it_is_for_in_one_line() {
        for good in [
            "//! A.\n",
            "//! A.\n\nfn f() {}\n",
            "//! A.\n//!\n//! More.\n",
        ] {
            check_file(heads, PATH, good, &[]);
        }
        for bad in [
            "",
            "fn f() {}\n",
            "\n//! A.\n",
            "//!\n//! A.\n",
            "//! A\n//! goes on.\n",
        ] {
            check_file(heads, PATH, bad, &[(PATH, 1, "what it is for")]);
        }
        check_file(heads, "a.toml", "a = 1\n", &[]);
    }

    #[test]
    fn no_path_of_one_machine_is_left() {
        for folder in HOST_FOLDERS {
            check_file(
                lines,
                "a.toml",
                &format!("a\nb = \"{folder}x\"\n"),
                &[("a.toml", 2, "path")],
            );
            check_file(
                lines,
                "a.md",
                &format!("{folder}x\n"),
                &[("a.md", 1, "path")],
            );
            check_file(
                lines,
                "a.md",
                &format!("/sys/fs{folder}x {{top}}{folder}x\n"),
                &[],
            );
            check_file(
                lines,
                "a.o",
                &format!("\0\n\0{folder}x"),
                &[("a.o", 0, "path")],
            );
        }
    }

    #[test]
    fn lines_end_where_they_end() {
        check_file(
            lines,
            "a.md",
            "a\nb \nc\t\n",
            &[("a.md", 2, "blanks"), ("a.md", 3, "blanks")],
        );
        check_file(lines, "a.md", "a\r\n", &[("a.md", 1, "blanks")]);
        check_file(lines, "a.o", "\0 \n", &[]);
    }
}
