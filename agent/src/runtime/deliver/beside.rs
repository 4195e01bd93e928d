//! Who acts first, we or the kubelet: looked up as the configuration changes, and now and then, as a kubelet may start with another.

use std::sync::Arc;
use std::time::Duration;

use brink_core::node::lead::Lead;
use tokio::sync::watch::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::config::AgentConfig;
use crate::doctor::facts::kubelet::lead::of_machine;

/// It is looked up again after so long.
const AGAIN: Duration = Duration::from_mins(10);

/// Tells who acts first, by the configuration in force, for ever.
pub(super) async fn follow(
    mut config: Receiver<Option<Arc<AgentConfig>>>,
    tell: impl Fn(Option<Lead>),
) {
    loop {
        let in_force = config.borrow_and_update().clone();
        // The kubelet is looked for among all processes, and its files are read.
        let look = move || in_force.and_then(|config| of_machine(&config));
        tell(spawn_blocking(look).await.unwrap_or_default());
        tokio::select! {
            changed = config.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = sleep(AGAIN) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::config::of_text;

    #[tokio::test]
    async fn a_changed_configuration_is_looked_at_at_once() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        write("proc/meminfo", &meminfo);
        let preamble = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let hard = "evictionHard: {memory.available: 200Mi}\n";
        write("var/lib/kubelet/config.yaml", &format!("{preamble}{hard}"));
        let config = |threshold: &str| {
            let paths = format!("paths: {{root: {}}}", root.path().display());
            let hard = format!("evictionHard: {{memory.available: {threshold}}}");
            Some(Arc::new(of_text(&format!("{paths}\n{hard}\n"))))
        };
        let (sender, receiver) = watch::channel(None);
        let (told, mut news) = mpsc::unbounded_channel();
        let following = follow(receiver, move |lead| told.send(lead).unwrap());
        let changes = async {
            assert_eq!(news.recv().await, Some(None), "there is no configuration");
            for (threshold, ours) in [("300Mi", 300 << 20), ("250Mi", 250 << 20)] {
                sender.send_replace(config(threshold));
                let lead = Lead {
                    ours: Some(ours),
                    kubelets: Some(200 << 20),
                    margin: 64 << 20,
                };
                assert_eq!(news.recv().await, Some(Some(lead)));
            }
        };
        tokio::select! {
            () = following => {}
            () = changes => {}
        }
    }
}
