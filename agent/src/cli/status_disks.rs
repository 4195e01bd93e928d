//! The part of `brink status` that is about filesystems and the container runtime.

use crate::disks::view::{DisksView, FilesystemView, RuntimeView};
use crate::record::text::{counted, counts_inodes, stretch, unsigned};
use crate::terminal::{Paint, Screen};

/// Where figures of filesystems come from, and whom the node asks before pods go.
pub(super) fn disks(screen: &mut Screen, view: &DisksView) {
    let mut label = "filesystems ";
    for (roles, filesystem) in grouped(&view.filesystems) {
        let what = format!("{} by {}", roles.join(", "), filesystem.path);
        let (text, paint) = match (&filesystem.why, &filesystem.kind, filesystem.age_ms) {
            (Some(why), ..) => (format!("{what}: {why}"), Some(Paint::Warning)),
            (None, Some(kind), Some(age)) => {
                let period = filesystem.period_ms.map(stretch);
                let again = period.map_or_else(String::new, |period| format!(", every {period}"));
                (format!("{what}, {kind}, {} old{again}", stretch(age)), None)
            }
            _ => (format!("{what}: not measured yet"), None),
        };
        screen.paragraph(label, &text, paint);
        label = "            ";
    }
    let held = view.held.as_deref();
    let (text, paint) = runtime(&view.runtime, held.is_some());
    screen.paragraph("runtime     ", &text, paint);
    if let Some(held) = held {
        let text = format!("disk orders are held: {}", why_held(held));
        screen.paragraph("            ", &text, Some(Paint::Warning));
    }
}

/// Why no order for a filesystem is acted on, and what ends that.
fn why_held(held: &str) -> &'static str {
    if held == "unknown" {
        "nobody knows whether a kubelet keeps the filesystems (`runtime.reclaim: always` acts either way)"
    } else {
        "the filesystems are left to the kubelet (`runtime.reclaim: always` acts beside it)"
    }
}

/// Why a signal of a filesystem has no figures.
pub(super) fn why_unmeasured<'a>(view: Option<&'a DisksView>, signal: &str) -> &'a str {
    const UNKNOWN: &str = "the filesystem is not known";
    let role = signal.split('.').next().unwrap_or(signal);
    let filesystem = view.and_then(|view| view.filesystems.iter().find(|one| one.role == role));
    match filesystem {
        Some(FilesystemView { why: Some(why), .. }) => why.as_str(),
        Some(one) if one.kind.is_some() && counts_inodes(signal) => {
            "the filesystem has no count of inodes"
        }
        None | Some(_) => UNKNOWN,
    }
}

/// Each filesystem once, with all that it is.
fn grouped(all: &[FilesystemView]) -> Vec<(Vec<&str>, &FilesystemView)> {
    let mut groups: Vec<(Vec<&str>, &FilesystemView)> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|(_, known)| known.path == one.path) {
            Some((roles, _)) => roles.push(&one.role),
            None => groups.push((vec![&one.role], one)),
        }
    }
    groups
}

fn runtime(view: &RuntimeView, is_held: bool) -> (String, Option<Paint>) {
    let Some(endpoint) = &view.endpoint else {
        let follows = if is_held {
            ""
        } else {
            ": nothing is reclaimed before pods go"
        };
        let text = format!("none found{follows} (runtime.endpoint names one)");
        return (text, None);
    };
    if let Some(why) = &view.why {
        return (why.clone(), Some(Paint::Warning));
    }
    let name = view.name.as_deref().unwrap_or("not asked yet");
    let owner = match view.by_kubelet {
        Some(true) => ", a kubelet's",
        Some(false) => ", no kubelet's",
        None => "",
    };
    let done = match view.reclaims {
        0 => String::new(),
        reclaims => format!(
            "; {}: {} and {} removed, {} freed",
            counted(reclaims, "reclaim"),
            counted(view.containers, "container"),
            counted(view.images, "image"),
            unsigned(view.freed_bytes),
        ),
    };
    (format!("{name} at {endpoint}{owner}{done}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    fn filesystem(role: &str, path: &str) -> FilesystemView {
        FilesystemView {
            role: role.to_owned(),
            path: path.to_owned(),
            device: Some("8:1".to_owned()),
            kind: Some("ext4".to_owned()),
            age_ms: Some(1200),
            period_ms: Some(10_000),
            why: None,
        }
    }

    #[track_caller]
    fn check(view: &DisksView, expected: &str) {
        let mut screen = Screen::new(Style::default());
        disks(&mut screen, view);
        assert_eq!(screen.into_text(), expected);
    }

    #[test]
    fn a_filesystem_is_told_once_with_its_roles_and_its_trouble() {
        let mut view = DisksView {
            layout: "dedicatedImagefs".to_owned(),
            filesystems: vec![
                filesystem("nodefs", "/var/lib/kubelet"),
                filesystem("imagefs", "/images"),
                filesystem("containerfs", "/images"),
            ],
            runtime: RuntimeView::default(),
            held: None,
        };
        let none = "runtime     none found: nothing is reclaimed before pods go (runtime.endpoint names one)\n";
        let expected = "filesystems nodefs by /var/lib/kubelet, ext4, 1.2 s old, every 10.0 s\n            imagefs, containerfs by /images, ext4, 1.2 s old, every 10.0 s\n";
        check(&view, &[expected, none].concat());
        view.filesystems.truncate(1);
        view.filesystems[0].why = Some("it has not answered for 31 s".to_owned());
        view.runtime = RuntimeView {
            endpoint: Some("/run/a.sock".to_owned()),
            name: Some("containerd 2.0".to_owned()),
            by_kubelet: Some(false),
            reclaims: 1,
            images: 2,
            freed_bytes: 1 << 20,
            ..RuntimeView::default()
        };
        let trouble = "filesystems nodefs by /var/lib/kubelet: it has not answered for 31 s\n";
        let runtime = "runtime     containerd 2.0 at /run/a.sock, no kubelet's; 1 reclaim: 0 containers and 2 images removed, 1.0Mi freed\n";
        check(&view, &[trouble, runtime].concat());
    }

    #[test]
    fn a_signal_without_figures_has_the_reason_that_its_filesystem_has() {
        let mut read_only = filesystem("imagefs", "/images");
        read_only.why = Some("it is read-only".to_owned());
        let mut silent = filesystem("containerfs", "/layers");
        silent.kind = None;
        let view = DisksView {
            layout: "split".to_owned(),
            filesystems: vec![filesystem("nodefs", "/"), read_only, silent],
            runtime: RuntimeView::default(),
            held: None,
        };
        let unknown = "the filesystem is not known";
        for (signal, expected) in [
            ("nodefs.inodesFree", "the filesystem has no count of inodes"),
            ("imagefs.available", "it is read-only"),
            ("imagefs.inodesFree", "it is read-only"),
            ("containerfs.inodesFree", unknown),
        ] {
            assert_eq!(why_unmeasured(Some(&view), signal), expected, "{signal}");
        }
        assert_eq!(why_unmeasured(None, "nodefs.available"), unknown);
    }

    #[test]
    fn held_disk_orders_are_told_before_a_threshold_is_met_with_the_way_out() {
        let held = |held: &str, why: &str| {
            let view = DisksView {
                layout: "single".to_owned(),
                filesystems: Vec::new(),
                runtime: RuntimeView::default(),
                held: Some(held.to_owned()),
            };
            let none = "runtime     none found (runtime.endpoint names one)\n";
            check(
                &view,
                &format!("{none}            disk orders are held: {why}\n"),
            );
        };
        held(
            "kubelet",
            "the filesystems are left to the kubelet (`runtime.reclaim: always` acts beside it)",
        );
        held(
            "unknown",
            "nobody knows whether a kubelet keeps the filesystems (`runtime.reclaim: always` acts either way)",
        );
    }
}
