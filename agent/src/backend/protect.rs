//! Who is never killed, who goes sooner and who later: the built-in list, the owners, the configuration, and pods themselves.

use std::path::Path;

use brink_core::node::workload::{Preference, PreferenceBy, Protection, Workload};
use brink_host::HostError;
use brink_host::cgroup::{Controller, Layout, preference};
use brink_host::kill::pid_set::ProtectedPids;
use brink_host::process::essential::{Essential, Role, find, is_still_there};

use super::facts::Facts;
use crate::config::{Pattern, Selection};
use crate::doctor::facts::kubelet::{Running, among};
use crate::pod::{EVICTION_ANNOTATION, Wish};

/// The processes a node cannot do without, and where they live.
#[derive(Debug, Default)]
pub struct Essentials {
    /// Each with its cgroup of the memory hierarchy.
    places: Vec<(String, Role)>,
    processes: Vec<Essential>,
}

impl Essentials {
    /// Finds them.
    ///
    /// # Errors
    /// [`HostError`] when the processes cannot be read.
    pub fn find(root: &Path, layout: &Layout) -> Result<Self, HostError> {
        let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let processes = find(root, layout.home(), own)?;
        let place = |process: &Essential| {
            let group = process.groups.of(layout, Controller::Memory)?;
            Some((group.to_owned(), process.role))
        };
        Ok(Self {
            places: processes.iter().filter_map(place).collect(),
            processes,
        })
    }

    /// Whether all of them are still there. One that has ended protects nobody any more, and one of another name may be
    /// another program.
    pub fn are_still_there(&self, root: &Path) -> bool {
        let mut processes = self.processes.iter();
        processes.all(|one| is_still_there(root, one))
    }

    /// For the killer, which looks again under the root who has their ids.
    pub fn pids(&self, root: &Path) -> ProtectedPids {
        ProtectedPids::new(root, self.processes.iter().map(|one| one.identity))
    }

    /// The kubelet, if it runs.
    pub fn kubelet(&self, root: &Path) -> Option<Running> {
        among(root, &self.processes)
    }

    /// Why a workload of these cgroups must not be killed: an essential process lives in one of them.
    pub fn protection(&self, groups: &[String]) -> Option<Protection> {
        let inside = |place: &String| groups.iter().any(|group| is_within(place, group));
        let roles = self
            .places
            .iter()
            .filter(|(place, _)| inside(place))
            .map(|(_, role)| *role);
        roles.min().map(protection_of)
    }
}

/// Fills preference and protection of a workload in: `groups` are its own cgroups, `killed` those that an eviction kills, the
/// facts are of all below them too; the strongest protection and the latest wish win.
pub fn select(
    workload: &mut Workload,
    (groups, killed): (&[String], &[String]),
    facts: &Facts<'_>,
    essentials: &Essentials,
    selection: &Selection,
) {
    let commands = || facts.seen.commands.iter().map(String::as_str);
    let below = || facts.paths.iter().copied();
    let paths = || groups.iter().map(String::as_str).chain(below());
    let named = |patterns: &[Pattern]| {
        let found = |pattern: &Pattern| {
            commands()
                .chain(paths())
                .any(|text| pattern.is_found_in(text))
        };
        patterns.iter().any(found)
    };
    let configured = named(&selection.ignore)
        || selection
            .protect
            .iter()
            .any(|glob| paths().any(|path| glob.matches(path)));
    let omitted = facts.seen.wish == Some(preference::Preference::Omit);
    workload.protection = workload
        .protection
        .or_else(|| essentials.protection(killed))
        .or(configured.then_some(Protection::Configured))
        .or(omitted.then_some(Protection::OomdOmit));
    let avoided = facts.seen.wish == Some(preference::Preference::Avoid);
    workload.preference = if named(&selection.avoid) || avoided {
        Preference::Avoid
    } else if named(&selection.prefer) {
        Preference::Prefer
    } else {
        workload.preference
    };
}

/// Fills in what a pod asks for itself, in a namespace in which that counts, and tells why it counts for nothing otherwise. Any
/// other protection comes before it, and so does a place that is as late.
pub fn heed(workload: &mut Workload, wish: Option<Wish>, selection: &Selection) -> Option<String> {
    let wish = wish?;
    let namespace = &workload.namespace;
    if !selection.heeds(namespace) {
        return Some(format!(
            "{EVICTION_ANNOTATION} of pods in the namespace {namespace}: annotationNamespaces does not name it"
        ));
    }
    let asked = match wish {
        Wish::First => Preference::Prefer,
        Wish::Last => Preference::Avoid,
        Wish::Never => {
            workload.protection.get_or_insert(Protection::Annotated);
            return None;
        }
        Wish::Unknown => {
            return Some(format!(
                "{EVICTION_ANNOTATION} of a pod in the namespace {namespace}: none of first, last and never"
            ));
        }
    };
    let is_news = match workload.preference {
        Preference::Normal => true,
        Preference::Prefer => asked == Preference::Avoid,
        Preference::Avoid => false,
    };
    if is_news {
        workload.preference = asked;
        workload.preference_by = PreferenceBy::Annotation;
    }
    None
}

fn protection_of(role: Role) -> Protection {
    match role {
        Role::FirstProcess => Protection::Init,
        Role::Ourselves => Protection::Brink,
        Role::ContainerRuntime | Role::Kubelet => Protection::Runtime,
        Role::StartedUs
        | Role::Login
        | Role::Journal
        | Role::DeviceManager
        | Role::Bus
        | Role::RemoteLogin => Protection::System,
    }
}

/// Whether a cgroup is another or below it.
pub(crate) fn is_within(group: &str, ancestor: &str) -> bool {
    let ancestor = ancestor.trim_end_matches('/');
    let rest = group.strip_prefix(ancestor);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use brink_host::cgroup::glob::Glob;

    use super::*;
    use crate::backend::facts::Seen;

    fn essentials(places: &[(&str, Role)]) -> Essentials {
        let places = places
            .iter()
            .map(|(place, role)| ((*place).to_owned(), *role))
            .collect();
        Essentials {
            places,
            processes: Vec::new(),
        }
    }

    fn selected(
        group: &str,
        facts: &Facts<'_>,
        essentials: &Essentials,
        selection: &Selection,
    ) -> Workload {
        let mut workload = Workload::default();
        let groups = [group.to_owned()];
        select(
            &mut workload,
            (&groups, &groups),
            facts,
            essentials,
            selection,
        );
        workload
    }

    #[test]
    fn whoever_holds_an_essential_process_is_protected() {
        let essentials = essentials(&[
            ("/system.slice/ssh.service", Role::RemoteLogin),
            ("/user.slice/user-0.slice/session-1.scope", Role::StartedUs),
            ("/init.scope", Role::FirstProcess),
        ]);
        for (group, expected) in [
            ("/system.slice/ssh.service", Some(Protection::System)),
            ("/user.slice", Some(Protection::System)),
            ("/", Some(Protection::Init)),
            ("/system.slice/ssh.service/deeper", None),
            ("/system.slice/ssh", None),
            ("/system.slice/web.service", None),
        ] {
            let workload = selected(group, &Facts::default(), &essentials, &Selection::default());
            assert_eq!(workload.protection, expected, "{group}");
        }
    }

    #[test]
    fn owners_and_configuration_are_heard() {
        let facts = |wish, command: &str| Facts {
            seen: Seen {
                commands: [command.to_owned()].into(),
                wish,
            },
            ..Facts::default()
        };
        let selection = Selection {
            prefer: vec![Pattern::new("^chrome$").unwrap()],
            avoid: vec![Pattern::new("postgres").unwrap()],
            ignore: vec![Pattern::new("^/keep/").unwrap()],
            protect: vec![Glob::new("/vault").unwrap()],
            ..Selection::default()
        };
        let none = Essentials::default();
        let check = |group: &str, facts: Facts<'_>, preference, protection| {
            let workload = selected(group, &facts, &none, &selection);
            assert_eq!(
                (workload.preference, workload.protection),
                (preference, protection),
                "{group}"
            );
        };
        check("/a", facts(None, "chrome"), Preference::Prefer, None);
        check("/a", facts(None, "chromedriver"), Preference::Normal, None);
        check("/postgres", facts(None, "chrome"), Preference::Avoid, None);
        check(
            "/keep/x",
            facts(None, "x"),
            Preference::Normal,
            Some(Protection::Configured),
        );
        check(
            "/vault",
            facts(None, "x"),
            Preference::Normal,
            Some(Protection::Configured),
        );
        let omit = Some(preference::Preference::Omit);
        check(
            "/b",
            facts(omit, "x"),
            Preference::Normal,
            Some(Protection::OomdOmit),
        );
        let avoid = Some(preference::Preference::Avoid);
        check("/b", facts(avoid, "chrome"), Preference::Avoid, None);
        let below = |paths: &[&'static str]| Facts {
            paths: paths.to_vec(),
            ..Facts::default()
        };
        check("/c", below(&["/c/x"]), Preference::Normal, None);
        check("/c", below(&["/c/postgres"]), Preference::Avoid, None);
        check(
            "/",
            below(&["/web", "/vault"]),
            Preference::Normal,
            Some(Protection::Configured),
        );
    }

    /// What is known of a pod before it is asked.
    fn pod(preference: Preference, protection: Option<Protection>) -> Workload {
        Workload {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            preference,
            protection,
            ..Workload::default()
        }
    }

    #[test]
    fn pods_are_heard_where_that_is_allowed_and_the_stronger_word_wins() {
        use Preference::{Avoid, Normal, Prefer};
        use PreferenceBy::{Annotation, Node};
        let allowed = Selection {
            annotation_namespaces: vec!["team".to_owned(), "shop".to_owned()],
            ..Selection::default()
        };
        for (before, wish, expected) in [
            (Normal, Wish::First, (Prefer, Annotation)),
            (Prefer, Wish::First, (Prefer, Node)),
            (Avoid, Wish::First, (Avoid, Node)),
            (Normal, Wish::Last, (Avoid, Annotation)),
            (Prefer, Wish::Last, (Avoid, Annotation)),
            (Avoid, Wish::Last, (Avoid, Node)),
            (Prefer, Wish::Never, (Prefer, Node)),
            (Normal, Wish::Unknown, (Normal, Node)),
        ] {
            let mut workload = pod(before, None);
            let told = heed(&mut workload, Some(wish), &allowed);
            let found = (workload.preference, workload.preference_by);
            assert_eq!(found, expected, "{before:?} {wish:?}");
            assert_eq!(told.is_some(), wish == Wish::Unknown, "{told:?}");
            let never = (wish == Wish::Never).then_some(Protection::Annotated);
            assert_eq!(workload.protection, never, "{wish:?}");
        }
        let mut runtime = pod(Normal, Some(Protection::Runtime));
        assert_eq!(heed(&mut runtime, Some(Wish::Never), &allowed), None);
        assert_eq!(runtime.protection, Some(Protection::Runtime));
    }

    #[test]
    fn a_namespace_that_is_not_allowed_is_told_and_not_heard() {
        let others = Selection {
            annotation_namespaces: vec!["team".to_owned()],
            ..Selection::default()
        };
        for selection in [Selection::default(), others] {
            for wish in [Wish::First, Wish::Last, Wish::Never, Wish::Unknown] {
                let mut workload = pod(Preference::Normal, None);
                let told = heed(&mut workload, Some(wish), &selection).unwrap();
                assert!(told.contains("namespace shop"), "{told}");
                assert_eq!(workload, pod(Preference::Normal, None), "{wish:?}");
            }
            let mut silent = pod(Preference::Normal, None);
            assert_eq!(heed(&mut silent, None, &selection), None);
        }
    }
}
