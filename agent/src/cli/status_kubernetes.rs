//! The part of `brink status` about the pods of the Kubernetes API.

use crate::control::protocol::KubernetesView;
use crate::record::text::{counted, stretch};
use crate::terminal::{Paint, Screen};

/// Whether the pods are those of the API as it is, or as it was.
pub(super) fn kubernetes(screen: &mut Screen, view: &KubernetesView) {
    let pods = counted(u64::from(view.pods), "pod");
    let since = view
        .since
        .as_ref()
        .map_or_else(String::new, |since| format!(" since {since}"));
    let (text, paint) = match (view.connected, view.state_age_ms) {
        (true, _) => (
            format!("{pods} of node {}, followed{since}", view.node),
            None,
        ),
        (false, Some(age)) => {
            let known = format!(
                "{pods} of node {}, as they were {} ago",
                view.node,
                stretch(age)
            );
            (
                format!("{known}; the API server is not reached{since}"),
                Some(Paint::Warning),
            )
        }
        (false, None) => {
            let unknown = format!("no pod of node {} is known", view.node);
            (
                format!("{unknown}; the API server is not reached{since}"),
                Some(Paint::Error),
            )
        }
    };
    screen.paragraph("kubernetes  ", &text, paint);
    if let Some(why) = &view.why {
        screen.paragraph("            ", why, paint);
    }
    if view.untold > 0 {
        let text = format!(
            "{} still to be told to it",
            counted(view.untold.into(), "kill")
        );
        screen.paragraph("            ", &text, Some(Paint::Warning));
    }
    if let Some(why) = &view.configz_why {
        let text = format!("the kubelet does not say what it goes by: {why}");
        screen.paragraph("            ", &text, Some(Paint::Warning));
    }
    if view.left_out > 0 {
        let text = format!(
            "{} had no room and are not known",
            counted(view.left_out, "pod")
        );
        screen.paragraph("            ", &text, Some(Paint::Error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    #[test]
    fn what_is_known_of_pods_without_an_api_is_told_with_its_age() {
        let check = |connected, state_age_ms, why: Option<&str>, expected: &str| {
            let view = KubernetesView {
                node: "a".to_owned(),
                connected,
                since: Some("2026-11-20T10:00:00Z".to_owned()),
                why: why.map(str::to_owned),
                pods: 12,
                state_age_ms,
                left_out: 0,
                failures: 0,
                untold: 2,
                configz_why: Some("nodes is forbidden".to_owned()),
            };
            let mut screen = Screen::new(Style::default());
            kubernetes(&mut screen, &view);
            let text = screen.into_text();
            assert!(text.contains(expected), "{text}");
        };
        let followed = "kubernetes  12 pods of node a, followed since 2026-11-20T10:00:00Z\n";
        check(true, Some(0), None, followed);
        let away = "12 pods of node a, as they were 1 min 30 s ago; the API server is not";
        check(false, Some(90_000), Some("refused"), away);
        check(
            false,
            Some(90_000),
            Some("refused"),
            "            refused\n",
        );
        check(false, None, None, "no pod of node a is known");
        check(
            true,
            Some(0),
            None,
            "            2 kills still to be told to it\n",
        );
        let silent = "does not say what it goes by: nodes is forbidden\n";
        check(true, Some(0), None, silent);
    }
}
