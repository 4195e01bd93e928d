//! The flight recorder's line of `brink status`: what is recorded how often.

use std::fmt::Write as _;

use crate::control::protocol::RecorderView;
use crate::record::text::{counted, stretch};
use crate::recorder::pace::BEAT_MS;
use crate::terminal::{Paint, Screen};

/// How often the node, the cgroups near their limit and the others are recorded; a warning where that is less than it should be.
pub(super) fn recorder(screen: &mut Screen, view: &RecorderView) {
    let every = |millis: u32| format!("every {}", stretch(millis.into()));
    let mut text = format!("the node {}", every(view.node_period_ms));
    if view.near > 0 {
        let near = counted(view.near.into(), "cgroup");
        let _ = write!(
            text,
            ", {near} nearest to a limit {}",
            every(view.near_period_ms)
        );
    }
    if view.others > 0 {
        let others = counted(view.others.into(), "other");
        let _ = write!(text, ", {others} {}", every(view.others_period_ms));
    }
    if view.left_out > 0 {
        let _ = write!(text, "; {} more find no room", view.left_out);
    }
    if view.overwritten > 0 {
        let points = counted(view.overwritten, "point");
        let _ = write!(text, "; {points} overwritten before they were read");
    }
    let is_stretched = view.near_period_ms > BEAT_MS;
    if is_stretched {
        text += "; more often would take too much of a processor";
    }
    screen.paragraph(
        "recorder    ",
        &text,
        is_stretched.then_some(Paint::Warning),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    #[track_caller]
    fn check(view: RecorderView, expected: &str) {
        let mut screen = Screen::new(Style::default());
        recorder(&mut screen, &view);
        assert_eq!(screen.into_text(), expected);
    }

    #[test]
    fn it_says_what_is_recorded_how_often() {
        let view = RecorderView {
            node_period_ms: 10,
            near_period_ms: 100,
            others_period_ms: 1_000,
            near: 32,
            others: 78,
            surveyed: 110,
            left_out: 0,
            overwritten: 0,
            timer: None,
        };
        check(
            view,
            "recorder    the node every 10 ms, 32 cgroups nearest to a limit every 100 ms, 78 others every 1.0 s\n",
        );
        let (near, others) = (1, 0);
        check(
            RecorderView {
                near,
                others,
                ..view
            },
            "recorder    the node every 10 ms, 1 cgroup nearest to a limit every 100 ms\n",
        );
        let left_out = 37;
        check(
            RecorderView {
                near,
                others,
                left_out,
                ..view
            },
            "recorder    the node every 10 ms, 1 cgroup nearest to a limit every 100 ms; 37 more find no room\n",
        );
        let overwritten = 4;
        check(
            RecorderView {
                near,
                others,
                overwritten,
                ..view
            },
            "recorder    the node every 10 ms, 1 cgroup nearest to a limit every 100 ms; 4 points overwritten before they were read\n",
        );
    }

    #[test]
    fn it_says_when_that_is_less_often_than_it_should_be() {
        let view = RecorderView {
            node_period_ms: 400,
            near_period_ms: 400,
            others_period_ms: 4_000,
            near: 2,
            others: 1,
            surveyed: 0,
            left_out: 0,
            overwritten: 0,
            timer: None,
        };
        check(
            view,
            "recorder    the node every 400 ms, 2 cgroups nearest to a limit every 400 ms, 1 other every 4.0 s; more often would take \
             too much of a processor\n",
        );
    }
}
