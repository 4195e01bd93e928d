//! Finding a workload by what a person writes: exactly, by a name that only one has, or not at all with the nearest names.

use brink_core::node::workload::full_name;

use crate::config::finding::nearest;

/// What a workload can be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    /// Its namespace.
    pub(super) namespace: &'a str,
    /// Its name.
    pub(super) name: &'a str,
    /// Its uid.
    pub(super) uid: &'a str,
    /// Its cgroups.
    pub(super) cgroups: &'a [String],
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// One, by its place in the list.
    One(usize),
    /// Several, by their full names.
    Several(Vec<String>),
    /// None; these are called nearly so, by their full names.
    None(Vec<String>),
}

/// Names that are listed at most.
const MOST: usize = 5;

impl Names<'_> {
    fn full(&self) -> String {
        full_name(self.namespace, self.name)
    }

    fn is_exactly(&self, wanted: &str) -> bool {
        let full = wanted.split_once('/') == Some((self.namespace, self.name));
        full || self.full() == wanted || self.uid == wanted || self.is_in(wanted)
    }

    /// Whether it is called by a path, and `wanted` is its end.
    fn ends_in(&self, wanted: &str) -> bool {
        let before = self.name.strip_suffix(wanted);
        !wanted.is_empty() && before.is_some_and(|before| before.ends_with('/'))
    }

    /// Whether `wanted` is one of its cgroups; with or without the slash in front.
    fn is_in(&self, wanted: &str) -> bool {
        let bare = |path: &str| path.trim_matches('/').to_owned();
        let wanted = bare(wanted);
        !wanted.is_empty() && self.cgroups.iter().any(|path| bare(path) == wanted)
    }
}

/// The workload that `wanted` means.
pub(super) fn find(wanted: &str, all: &[Names<'_>]) -> Found {
    let places = |is: &dyn Fn(&Names<'_>) -> bool| -> Vec<usize> {
        let matching = all.iter().enumerate().filter(|(_, names)| is(names));
        matching.map(|(place, _)| place).collect()
    };
    let mut found = places(&|names| names.is_exactly(wanted));
    if found.is_empty() {
        found = places(&|names| names.name == wanted);
    }
    if found.is_empty() {
        found = places(&|names| names.ends_in(wanted));
    }
    match found.as_slice() {
        [] => Found::None(near(wanted, all)),
        [one] => Found::One(*one),
        several => {
            let same = twins(several, all);
            let full = |&place: &usize| {
                if same {
                    // Only the uid tells them apart.
                    format!("{} (uid {})", all[place].full(), all[place].uid)
                } else {
                    all[place].full()
                }
            };
            Found::Several(several.iter().map(full).collect())
        }
    }
}

fn twins(places: &[usize], all: &[Names<'_>]) -> bool {
    let mut names: Vec<String> = places.iter().map(|&place| all[place].full()).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// The nearest names first, then those that have the wanted text somewhere in them.
fn near(wanted: &str, all: &[Names<'_>]) -> Vec<String> {
    let full: Vec<String> = all.iter().map(Names::full).collect();
    let mut near: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if near.len() < MOST && !near.iter().any(|known| known == name) {
            near.push(name.to_owned());
        }
    };
    if let Some(name) = nearest(wanted, full.iter().map(String::as_str)) {
        add(name);
    }
    let bare = wanted.rsplit('/').next().unwrap_or(wanted);
    if let Some(name) = nearest(bare, all.iter().map(|names| names.name)) {
        let called = all.iter().filter(|names| names.name == name);
        called.for_each(|names| add(&names.full()));
    }
    if !bare.is_empty() {
        let holding = full.iter().filter(|name| name.contains(bare));
        holding.for_each(|name| add(name));
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &str, expected: &Found) {
        let groups = ["/kubepods/web".to_owned()];
        let of = |namespace, name, uid, cgroups| Names {
            namespace,
            name,
            uid,
            cgroups,
        };
        let all = [
            of("shop", "web", "1", &groups[..]),
            of("shop", "database", "2", &[]),
            of("test", "database", "3", &[]),
            of("test", "worker-7d9f", "4", &[]),
            of("twin", "twin", "5", &[]),
            of("twin", "twin", "6", &[]),
            of("cgroup", "/node/app1", "/node/app1", &[]),
            of("cgroup", "/node/app2", "/node/app2", &[]),
            of("cgroup", "/other/app2", "/other/app2", &[]),
        ];
        assert_eq!(&find(wanted, &all), expected, "{wanted}");
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_is_found_by_every_name_it_has() {
        for wanted in ["shop/web", "web", "1", "/kubepods/web", "kubepods/web"] {
            check(wanted, &Found::One(0));
        }
        check("test/database", &Found::One(2));
        for wanted in ["/node/app1", "cgroup/node/app1", "node/app1", "app1"] {
            check(wanted, &Found::One(6));
        }
    }

    #[test]
    fn a_name_that_several_have_lists_them() {
        check(
            "database",
            &Found::Several(names(&["shop/database", "test/database"])),
        );
        check(
            "app2",
            &Found::Several(names(&["cgroup/node/app2", "cgroup/other/app2"])),
        );
        check(
            "twin",
            &Found::Several(names(&["twin/twin (uid 5)", "twin/twin (uid 6)"])),
        );
    }

    #[test]
    fn a_name_that_nobody_has_lists_the_nearest() {
        check("shop/wbe", &Found::None(names(&["shop/web"])));
        check(
            "databse",
            &Found::None(names(&["shop/database", "test/database"])),
        );
        check(
            "other/database",
            &Found::None(names(&["shop/database", "test/database"])),
        );
        check("worker", &Found::None(names(&["test/worker-7d9f"])));
        check("nothing-like-it", &Found::None(Vec::new()));
        check("", &Found::None(Vec::new()));
        check("/", &Found::None(Vec::new()));
    }
}
