//! Where the processes of a workload came from that took all ids, for people: in its decision and in its incident.

use brink_stream::model::field::Field;
use brink_stream::model::incident::ForkRoot;

use super::text::monotonic;
use crate::terminal::Screen;

/// The process that they descend from.
pub fn fork_root(screen: &mut Screen, root: &ForkRoot) {
    head(screen);
    let text = forker(&root.comm, root.pid, &root.start_ns);
    screen.line("  process    ", &text);
    if let Some(argv) = root.argv.value() {
        screen.line("  arguments  ", &argv.join(" "));
    }
    if let Some(parent) = root.parent.value() {
        let text = forker(&parent.comm, parent.pid, &parent.start_ns);
        screen.line("  forked by  ", &text);
    }
    let text = format!(
        "{} of the {} that were forked last descend from it",
        root.descendants, root.of
    );
    screen.line("  share      ", &text);
}

/// The same, or why nobody knows.
pub(super) fn fork_root_or_why(screen: &mut Screen, root: &Field<ForkRoot>) {
    match root {
        Field::Value(root) => fork_root(screen, root),
        Field::Missing(reason) => {
            head(screen);
            let text = format!("not known: {}", reason.words());
            screen.line("  process    ", &text);
        }
    }
}

fn head(screen: &mut Screen) {
    screen.gap();
    screen.heading("Where its processes came from");
}

/// Its name, its id, and when it was started: ids are given again.
fn forker(comm: &str, pid: u32, start_ns: &Field<u64>) -> String {
    let started = start_ns.value().map_or_else(String::new, |nanos| {
        let nanos = i64::try_from(*nanos).unwrap_or(i64::MAX);
        format!(", started {} after boot", monotonic(nanos))
    });
    format!("{comm}, pid {pid}{started}")
}
