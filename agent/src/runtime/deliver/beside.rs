//! Who acts first, we or the kubelet: looked up as the configuration changes, and now and then, as a kubelet may start with another.

use std::sync::Arc;
use std::time::Duration;

use brink_core::node::lead::Lead;
use tokio::sync::watch::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::AgentConfig;
use crate::doctor::facts::kubelet::lead::of_machine;

/// It is looked up again after so long.
const AGAIN: Duration = Duration::from_mins(10);
/// What a kubelet says that is asked is waited for no longer: it may have said what cannot be taken over.
const PATIENCE: Duration = Duration::from_mins(10);

/// The configuration in force, and where the kubelet is asked whether it ever was in vain.
type Known = (Receiver<Option<Arc<AgentConfig>>>, Option<Receiver<bool>>);

/// Tells who acts first, by the configuration in force, for ever. While a kubelet is asked and was never asked in vain its files and
/// flags are not gone by for a while: what it is about to say may be another thing.
pub(super) async fn follow(known: Known, tell: impl Fn(Option<Lead>)) {
    follow_after(PATIENCE, known, tell).await;
}

async fn follow_after(
    patience: Duration,
    (mut config, mut asked_in_vain): Known,
    tell: impl Fn(Option<Lead>),
) {
    let patience_ends = Instant::now() + patience;
    loop {
        let in_force = config.borrow_and_update().clone();
        let in_vain = asked_in_vain.as_mut();
        let is_asked = in_vain.is_some_and(|in_vain| !*in_vain.borrow_and_update());
        let waits = is_asked && Instant::now() < patience_ends;
        let in_force = in_force.filter(|config| config.configz.is_some() || !waits);
        // The kubelet is looked for among all processes, and its files are read.
        let look = move || in_force.and_then(|config| of_machine(&config));
        tell(spawn_blocking(look).await.unwrap_or_default());
        tokio::select! {
            changed = config.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = fails(asked_in_vain.as_mut()) => {}
            () = sleep_until(patience_ends), if waits => {}
            () = sleep(AGAIN) => {}
        }
    }
}

/// Waits until asking has failed; for ever where nobody asks.
async fn fails(asked_in_vain: Option<&mut Receiver<bool>>) {
    if let Some(in_vain) = asked_in_vain
        && in_vain.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::config::of_text;
    use crate::fake;

    /// A machine whose kubelet acts below 200Mi by its file.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| fake::write(root.path(), path, text);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        write("proc/meminfo", &meminfo);
        let preamble = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let hard = "evictionHard: {memory.available: 200Mi}\n";
        write("var/lib/kubelet/config.yaml", &format!("{preamble}{hard}"));
        root
    }

    fn config(root: &Path, threshold: &str) -> AgentConfig {
        let paths = format!("paths: {{root: {}}}", root.display());
        let hard = format!("evictionHard: {{memory.available: {threshold}}}");
        of_text(&format!("{paths}\n{hard}\n"))
    }

    const fn lead(ours: i64, kubelets: i64) -> Lead {
        Lead {
            ours: Some(ours << 20),
            kubelets: Some(kubelets << 20),
            margin: 64 << 20,
            is_confirmed: true,
        }
    }

    #[tokio::test]
    async fn a_changed_configuration_is_looked_at_at_once() {
        let machine = machine();
        let (sender, receiver) = watch::channel(None);
        let (told, mut news) = mpsc::unbounded_channel();
        let following = follow((receiver, None), move |lead| told.send(lead).unwrap());
        let changes = async {
            assert_eq!(news.recv().await, Some(None), "there is no configuration");
            for (threshold, ours) in [("300Mi", 300), ("250Mi", 250)] {
                let new = config(machine.path(), threshold);
                sender.send_replace(Some(Arc::new(new)));
                assert_eq!(news.recv().await, Some(Some(lead(ours, 200))));
            }
        };
        tokio::select! {
            () = following => {}
            () = changes => {}
        }
    }

    #[tokio::test]
    async fn a_kubelet_that_is_asked_is_waited_for_until_it_answers_or_does_not() {
        let machine = machine();
        let own = config(machine.path(), "300Mi");
        let by_answer = AgentConfig {
            configz: Some(r#"{"evictionHard": {"memory.available": "250Mi"}}"#.into()),
            ..own.clone()
        };
        for (answer, expected) in [(Some(by_answer), lead(300, 250)), (None, lead(300, 200))] {
            let (sender, receiver) = watch::channel(Some(Arc::new(own.clone())));
            let (in_vain, failures) = watch::channel(false);
            let (told, mut news) = mpsc::unbounded_channel();
            let known = (receiver, Some(failures));
            let following = follow(known, move |lead| told.send(lead).unwrap());
            let asks = async {
                assert_eq!(news.recv().await, Some(None), "it may say another thing");
                sender.send_replace(Some(Arc::new(own.clone())));
                assert_eq!(news.recv().await, Some(None));
                match answer {
                    Some(answer) => {
                        sender.send_replace(Some(Arc::new(answer)));
                    }
                    None => {
                        in_vain.send_replace(true);
                    }
                }
                assert_eq!(news.recv().await, Some(Some(expected)));
            };
            tokio::select! {
                () = following => {}
                () = asks => {}
            }
        }
    }

    #[tokio::test]
    async fn a_kubelet_whose_answer_is_not_taken_is_waited_for_so_long_however_often_all_changes() {
        let patience = Duration::from_millis(100);
        let machine = machine();
        let own = config(machine.path(), "300Mi");
        let (sender, receiver) = watch::channel(Some(Arc::new(own.clone())));
        let (_never_in_vain, failures) = watch::channel(false);
        let (told, mut news) = mpsc::unbounded_channel();
        let begin = Instant::now();
        let known = (receiver, Some(failures));
        let following = follow_after(patience, known, move |lead| told.send(lead).unwrap());
        let changes = async {
            let found = loop {
                match news.recv().await {
                    Some(None) => {}
                    found => break found,
                }
                sleep(patience / 10).await;
                sender.send_replace(Some(Arc::new(own.clone())));
            };
            assert!(begin.elapsed() >= patience);
            assert_eq!(found, Some(Some(lead(300, 200))));
        };
        tokio::select! {
            () = following => {}
            () = changes => {}
            () = sleep(Duration::from_secs(30)) => panic!("it is waited for without an end"),
        }
    }
}
