//! Who acts first, we or the kubelet: looked up as the configuration changes, and now and then, as a kubelet may start with another.

use std::sync::Arc;
use std::time::Duration;

use brink_kube::write::conflict::Conflict;
use tokio::sync::watch::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::AgentConfig;
use crate::doctor::facts::kubelet::lead::of_machine;
use crate::runtime::cluster::InVain;

/// It is looked up again after so long.
const AGAIN: Duration = Duration::from_mins(10);
/// What a kubelet says that is asked is waited for no longer: it may have said what cannot be taken over. What it said counts no longer
/// either once it is asked in vain.
const PATIENCE: Duration = Duration::from_mins(10);

/// The configuration in force, and where the kubelet is asked whether that is in vain.
type Known = (
    Receiver<Option<Arc<AgentConfig>>>,
    Option<Receiver<Option<InVain>>>,
);

/// Tells who acts first, by the configuration in force, for ever. While a kubelet is asked and is not asked in vain its files and
/// flags are not gone by for a while: what it is about to say may be another thing. One that was asked in vain for as long may have
/// started with another configuration meanwhile, so that nobody knows.
pub(super) async fn follow(known: Known, tell: impl Fn(Option<Conflict>)) {
    follow_after(PATIENCE, known, tell).await;
}

async fn follow_after(
    patience: Duration,
    (mut config, mut asked): Known,
    tell: impl Fn(Option<Conflict>),
) {
    let patience_ends = Instant::now() + patience;
    loop {
        let in_force = config.borrow_and_update().clone();
        let in_vain = asked.as_mut();
        let in_vain = in_vain.and_then(|in_vain| in_vain.borrow_and_update().clone());
        let now = Instant::now();
        let waits = asked.is_some() && in_vain.is_none() && now < patience_ends;
        let in_force = in_force.filter(|config| config.configz.is_some() || !waits);
        let silent_at = in_vain.as_ref().map(|in_vain| in_vain.since + patience);
        let silent = in_vain.filter(|_| silent_at.is_some_and(|at| at <= now));
        let look = move || {
            let why = silent.map(|silent| silent.why);
            in_force.and_then(|config| standing(&config, why))
        };
        // The kubelet is looked for among all processes, and its files are read.
        tell(spawn_blocking(look).await.unwrap_or_default());
        let due = silent_at.or(waits.then_some(patience_ends));
        tokio::select! {
            changed = config.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = turns(asked.as_mut()) => {}
            () = at(due.filter(|due| *due > now)) => {}
            () = sleep(AGAIN) => {}
        }
    }
}

/// How it stands by this configuration. Where the kubelet no longer says what it goes by, for this reason, what it said is not gone by.
fn standing(config: &AgentConfig, silent: Option<Arc<str>>) -> Option<Conflict> {
    let known = || of_machine(config).map(Conflict::By);
    match silent {
        None => known(),
        Some(why) if config.configz.is_some() => Some(Conflict::Unknown(why)),
        Some(why) => known().or(Some(Conflict::Unknown(why))),
    }
}

/// Waits until asking begins to be in vain, or no longer is; for ever where nobody asks.
async fn turns(asked: Option<&mut Receiver<Option<InVain>>>) {
    if let Some(asked) = asked
        && asked.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Waits until then; for ever where there is no time.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use brink_core::node::lead::Lead;
    use brink_core::node::signal::Signal;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::config::of_text;
    use crate::fake;

    /// A machine without a file of a kubelet's.
    fn bare_machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        fake::write(root.path(), "proc/meminfo", &meminfo);
        root
    }

    /// A machine whose kubelet acts below 200Mi by its file.
    fn machine() -> tempfile::TempDir {
        let root = bare_machine();
        let preamble = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let text = format!("{preamble}evictionHard: {{memory.available: 200Mi}}\n");
        fake::write(root.path(), "var/lib/kubelet/config.yaml", &text);
        root
    }

    fn config(root: &Path, threshold: &str) -> AgentConfig {
        let paths = format!("paths: {{root: {}}}", root.display());
        let hard = format!("evictionHard: {{memory.available: {threshold}}}");
        of_text(&format!("{paths}\n{hard}\n"))
    }

    /// The same with what the kubelet said, below 250Mi.
    fn by_answer(own: AgentConfig) -> AgentConfig {
        AgentConfig {
            configz: Some(r#"{"evictionHard": {"memory.available": "250Mi"}}"#.into()),
            ..own
        }
    }

    const fn by(ours: i64, kubelets: i64) -> Conflict {
        Conflict::By(Lead {
            signal: Signal::MemoryAvailable,
            ours: Some(ours << 20),
            kubelets: Some(kubelets << 20),
            margin: 64 << 20,
            is_confirmed: true,
        })
    }

    fn in_vain(why: &str) -> InVain {
        InVain {
            since: Instant::now(),
            why: why.into(),
        }
    }

    /// The first that is told and is another than `before`.
    async fn next_after(
        before: Option<&Conflict>,
        news: &mut mpsc::UnboundedReceiver<Option<Conflict>>,
    ) -> Option<Conflict> {
        loop {
            let told = news.recv().await.expect("it is followed for ever");
            if told.as_ref() != before {
                return told;
            }
        }
    }

    #[tokio::test]
    async fn a_changed_configuration_is_looked_at_at_once() {
        let machine = machine();
        let (sender, receiver) = watch::channel(None);
        let (told, mut news) = mpsc::unbounded_channel();
        let following = follow((receiver, None), move |new| told.send(new).unwrap());
        let changes = async {
            assert_eq!(news.recv().await, Some(None), "there is no configuration");
            for (threshold, ours) in [("300Mi", 300), ("250Mi", 250)] {
                let new = config(machine.path(), threshold);
                sender.send_replace(Some(Arc::new(new)));
                assert_eq!(news.recv().await, Some(Some(by(ours, 200))));
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
        let answer = by_answer(own.clone());
        for (answer, expected) in [(Some(answer), by(300, 250)), (None, by(300, 200))] {
            let (sender, receiver) = watch::channel(Some(Arc::new(own.clone())));
            let (failing, failures) = watch::channel(None);
            let (told, mut news) = mpsc::unbounded_channel();
            let known = (receiver, Some(failures));
            let following = follow(known, move |new| told.send(new).unwrap());
            let asks = async {
                assert_eq!(news.recv().await, Some(None), "it may say another thing");
                sender.send_replace(Some(Arc::new(own.clone())));
                assert_eq!(news.recv().await, Some(None));
                match answer {
                    Some(answer) => {
                        sender.send_replace(Some(Arc::new(answer)));
                    }
                    None => {
                        failing.send_replace(Some(in_vain("HTTP 403")));
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
        let (_never_in_vain, failures) = watch::channel(None);
        let (told, mut news) = mpsc::unbounded_channel();
        let begin = Instant::now();
        let known = (receiver, Some(failures));
        let following = follow_after(patience, known, move |new| told.send(new).unwrap());
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
            assert_eq!(found, Some(Some(by(300, 200))));
        };
        tokio::select! {
            () = following => {}
            () = changes => {}
            () = sleep(Duration::from_secs(30)) => panic!("it is waited for without an end"),
        }
    }

    #[tokio::test]
    async fn what_a_kubelet_said_counts_no_more_once_it_is_asked_in_vain_for_so_long() {
        let patience = Duration::from_millis(100);
        let machine = machine();
        let config = by_answer(config(machine.path(), "300Mi"));
        let (_config, receiver) = watch::channel(Some(Arc::new(config)));
        let (failing, failures) = watch::channel(None);
        let (told, mut news) = mpsc::unbounded_channel();
        let known = (receiver, Some(failures));
        let following = follow_after(patience, known, move |new| told.send(new).unwrap());
        let asks = async {
            let said = Some(by(300, 250));
            assert_eq!(next_after(None, &mut news).await, said);
            let first = in_vain("no answer within 10 s");
            failing.send_replace(Some(first.clone()));
            let found = next_after(said.as_ref(), &mut news).await;
            assert!(first.since.elapsed() >= patience);
            let unknown = Some(Conflict::Unknown(first.why));
            assert_eq!(found, unknown);
            failing.send_replace(None);
            assert_eq!(next_after(unknown.as_ref(), &mut news).await, said);
        };
        tokio::select! {
            () = following => {}
            () = asks => {}
            () = sleep(Duration::from_secs(30)) => panic!("an old answer stands without an end"),
        }
    }

    #[test]
    fn files_are_gone_by_where_a_kubelet_never_answers_and_an_old_answer_is_not() {
        let (machine, bare) = (machine(), bare_machine());
        let [own, without_files] = [&machine, &bare].map(|root| config(root.path(), "300Mi"));
        let check = |config: &AgentConfig, silent: Option<&str>, expected: Option<Conflict>| {
            assert_eq!(standing(config, silent.map(Into::into)), expected);
        };
        let why = "HTTP 405";
        let unknown = Conflict::Unknown(why.into());
        check(&own, Some(why), Some(by(300, 200)));
        check(&without_files, None, None);
        check(&without_files, Some(why), Some(unknown.clone()));
        let answered = by_answer(own);
        check(&answered, None, Some(by(300, 250)));
        check(&answered, Some(why), Some(unknown));
    }
}
