//! The part of `brink status` that is about filesystems and the container runtime.

use crate::disks::view::{DisksView, FilesystemView, RuntimeView};
use crate::record::text::{counted, stretch, unsigned};
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
    let (text, paint) = runtime(&view.runtime);
    screen.paragraph("runtime     ", &text, paint);
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

fn runtime(view: &RuntimeView) -> (String, Option<Paint>) {
    let Some(endpoint) = &view.endpoint else {
        let text = "none found: nothing is reclaimed before pods go (runtime.endpoint names one)";
        return (text.to_owned(), None);
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
}
