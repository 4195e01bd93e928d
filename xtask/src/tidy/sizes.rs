//! How long a file may be: a long file is two things in one place.
use super::{Problem, Tree};

/// Lines of a Rust file: advice, and the limit without exception.
const FILE: (usize, usize) = (400, 600);
/// Lines of a `src/main.rs`: it only opens the door.
const MAIN: usize = 40;
/// Lines of a kernel program's file, as advice.
const KERNEL_FILE: usize = 150;

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let rust = tree.files.iter().filter(|file| file.is_rust());
    rust.filter_map(|file| check_size(&file.path, file.text()?.lines().count()))
        .collect()
}

fn check_size(path: &str, lines: usize) -> Option<Problem> {
    let long = |limit| format!("{lines} lines, and {limit} are the limit");
    let split = "split it: which two things is it?";
    let advice = if path.starts_with("ebpf/src/") {
        KERNEL_FILE
    } else {
        FILE.0
    };
    if lines > FILE.1 {
        Some(Problem::fault(path, 0, long(FILE.1), split))
    } else if path.ends_with("src/main.rs") && lines > MAIN {
        Some(Problem::fault(
            path,
            0,
            long(MAIN),
            "move what it does to a module",
        ))
    } else if lines > advice {
        let message = format!("{lines} lines, and {advice} are plenty");
        Some(Problem::advice(path, 0, message, split))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Weight;

    fn check_lines(path: &str, lines: usize, expected: Option<Weight>) {
        let found = check_size(path, lines).map(|problem| problem.weight);
        assert_eq!(found, expected, "{path} with {lines} lines");
    }

    #[test]
    fn long_files_are_named_and_longer_ones_fail() {
        check_lines("agent/src/a.rs", 400, None);
        check_lines("agent/src/a.rs", 401, Some(Weight::Advice));
        check_lines("agent/src/a.rs", 600, Some(Weight::Advice));
        check_lines("agent/src/a.rs", 601, Some(Weight::Fault));
        check_lines("ebpf/src/oom.rs", 150, None);
        check_lines("ebpf/src/oom.rs", 151, Some(Weight::Advice));
        check_lines("ebpf/abi/src/lib.rs", 151, None);
        check_lines("agent/src/main.rs", 40, None);
        check_lines("agent/src/main.rs", 41, Some(Weight::Fault));
    }
}
