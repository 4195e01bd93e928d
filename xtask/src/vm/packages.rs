//! What apt says of packages: their digests, what they depend on, and what it would install.
use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// One package of the archive, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// SHA-256 of the package's file, by which it is cached.
    pub(super) sha256: String,
    /// Names of the packages it depends on, of alternatives the first.
    #[serde(skip)]
    pub(super) depends: Vec<String>,
}

impl Package {
    /// As apt wants it named.
    pub(super) fn exact(&self) -> String {
        format!("{}={}", self.name, self.version)
    }
}

/// The packages in the answer of `apt-cache show`; what has no digest cannot be downloaded, and is left out.
pub(super) fn parse(show: &str) -> Vec<Package> {
    show.split("\n\n").filter_map(parse_one).collect()
}

fn parse_one(stanza: &str) -> Option<Package> {
    let field = |name: &str| {
        let mut values = stanza
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next().map(str::to_owned)
    };
    let depends = field("Depends").unwrap_or_default();
    Some(Package {
        name: field("Package")?,
        version: field("Version")?,
        sha256: field("SHA256").filter(|digest| is_digest(digest))?,
        depends: depends.split(',').filter_map(first_name).collect(),
    })
}

/// The digest becomes the name of a folder, so it is nothing else.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `a (>= 1) | b` → `a`.
fn first_name(dependency: &str) -> Option<String> {
    let name = dependency.split_whitespace().next()?;
    let name = name.split([':', '|', '(']).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// What `apt-get --simulate install` would install, as `name=version`, from lines `Inst name [old] (version origin)`.
pub(super) fn to_install(simulation: &str) -> Vec<String> {
    let lines = simulation.lines();
    let one = |line: &str| {
        let rest = line.strip_prefix("Inst ")?;
        let name = rest.split_whitespace().next()?;
        let version = rest.split_once('(')?.1.split_whitespace().next()?;
        Some(format!("{name}={version}"))
    };
    lines.filter_map(one).collect()
}

/// Names with a version inside them, the highest version first.
pub(super) fn newest_first<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_cached_key(|name| Reverse(numbers(name)));
    names
}

/// The numbers of a name, in their order: `linux-image-6.1.0-50-cloud-amd64` → 6, 1, 0, 50, 64.
fn numbers(name: &str) -> Vec<u64> {
    let digits = name.split(|letter: char| !letter.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOW: &str = "\
Package: linux-image-cloud-amd64
Source: linux-signed-amd64 (6.12.107+1)
Version: 6.12.107-1
Architecture: amd64
Depends: linux-image-6.12.107+deb13-cloud-amd64 (= 6.12.107-1), a | b (>= 2), c:any
Filename: pool/main/l/linux-signed-amd64/linux-image-cloud-amd64_6.12.107-1_amd64.deb
Size: 1488
SHA256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
Description-en: Linux for x86-64 cloud (meta-package)
 Depends: on nothing else

Package: installed-only
Version: 1

Package: odd
Version: 1
SHA256: ../../etc
";

    #[test]
    fn packages_with_a_digest_are_read() {
        let found = parse(SHOW);
        assert_eq!(found.len(), 1, "{found:?}");
        let package = &found[0];
        assert_eq!(package.exact(), "linux-image-cloud-amd64=6.12.107-1");
        assert!(package.sha256.starts_with("0123") && package.sha256.len() == 64);
        let depends = ["linux-image-6.12.107+deb13-cloud-amd64", "a", "c"];
        assert_eq!(package.depends, depends);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn a_simulation_names_exact_versions() {
        let simulation = "\
NOTE: This is only a simulation!
Inst libfdt1 (1.6.1-4+b1 Debian:12.12/oldstable [amd64])
Inst seabios [1.16.2-1] (1.16.3-2~bpo12+1 Debian:12-backports [all])
Conf libfdt1 (1.6.1-4+b1 Debian:12.12/oldstable [amd64])
";
        let expected = ["libfdt1=1.6.1-4+b1", "seabios=1.16.3-2~bpo12+1"];
        assert_eq!(to_install(simulation), expected);
        assert!(to_install("").is_empty());
    }

    #[test]
    fn versions_compare_as_numbers() {
        let names = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-50-cloud-amd64",
            "linux-image-6.1.0-13-cloud-amd64",
        ];
        assert_eq!(newest_first(names), [names[1], names[2], names[0]]);
    }
}
