//! Every page of the documentation can be found, and the changelog is kept.
use super::{Problem, SourceFile, Tree};

/// The pages a reader starts from.
const ENTRANCES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "docs/README.md"];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let linked: Vec<String> = ENTRANCES
        .iter()
        .filter_map(|path| tree.file(path))
        .flat_map(|file| links(&file.path, file.text().unwrap_or_default()))
        .collect();
    let is_page = |file: &&SourceFile| file.path.starts_with("docs/") && file.has_extension("md");
    let pages = tree
        .files
        .iter()
        .filter(is_page)
        .map(|file| file.path.as_str());
    let remedy = "link it from README.md, ARCHITECTURE.md or docs/README.md";
    let mut problems: Vec<Problem> = pages
        .filter(|path| !linked.iter().any(|link| link == path))
        .map(|path| Problem::fault(path, 0, "no page leads here", remedy))
        .collect();
    let changelog = tree
        .file("CHANGELOG.md")
        .and_then(|file| file.text())
        .unwrap_or_default();
    if !changelog
        .lines()
        .any(|line| line.trim_end() == "## Unreleased")
    {
        let remedy = "keep CHANGELOG.md, with the changes since the last release under that title";
        problems.push(Problem::fault(
            "CHANGELOG.md",
            0,
            "no `## Unreleased` changes",
            remedy,
        ));
    }
    problems
}

/// The files that the Markdown `text` at `path` links to, from the workspace's directory.
fn links(path: &str, text: &str) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#', ' ']).next());
    let local = targets.filter(|target| !target.is_empty() && !target.contains("://"));
    local.map(|target| resolve(folder, target)).collect()
}

fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::samples::{Expect, check_rule, tree_of};

    fn check_pages(files: &[(&str, &str)], expected: &Expect) {
        let changelog = ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n");
        let files: Vec<_> = files.iter().copied().chain([changelog]).collect();
        check_rule(check, &tree_of(&files, []), expected);
    }

    #[test]
    fn every_page_is_linked_from_an_entrance() {
        let page = ("docs/bench.md", "# Bench\n");
        check_pages(&[page], &[("docs/bench.md", 0, "no page leads here")]);
        check_pages(
            &[page, ("README.md", "See [bench](docs/bench.md#table).")],
            &[],
        );
        check_pages(
            &[page, ("ARCHITECTURE.md", "[b](./docs/bench.md \"title\")")],
            &[],
        );
        let index = ("docs/README.md", "[b](bench.md), [up](../README.md)");
        check_pages(&[page, index, ("README.md", "[docs](docs/README.md)")], &[]);
        let unseen = [("docs/README.md", 0, "no page leads here")];
        check_pages(&[page, index], &unseen);
        let lost = [("docs/bench.md", 0, "no page leads here")];
        check_pages(&[page, ("CONTRIBUTING.md", "[b](docs/bench.md)")], &lost);
    }

    #[test]
    fn the_changelog_is_kept() {
        let gone = [("CHANGELOG.md", 0, "Unreleased")];
        check_rule(check, &tree_of(&[], []), &gone);
        check_rule(
            check,
            &tree_of(&[("CHANGELOG.md", "# Changelog\n## 1.0\n")], []),
            &gone,
        );
    }
}
