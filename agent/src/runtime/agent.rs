//! The agent from start to end: prepared, served, and stopped by a signal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use brink_core::node::engine::LiveSettings;
use brink_core::node::input::Reconfiguration;
use brink_host::clock::ClockPair;
use brink_host::lock::make_folder;
use brink_stream::serve::Routes;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::cluster::{Answers, Cluster};
use super::configured::uses_pids;
use super::named::Named;
use super::prepare::{self, Running};
use super::retry::{Retry, until};
use super::state::Refused;
use super::streaming::Doors;
use super::watch::Reloaded;
use crate::config::{AgentConfig, Checked, Sources, capacities_of, load};
use crate::control::server::Server;
use crate::control::views::Views;
use crate::guard;
use crate::metrics;
use crate::page::{self, routes::Asked};
use crate::storage::need::is_wanted;

/// How often an agent that stands by looks whether the one that enforces is gone: for so long nobody enforces. A look is a few calls of
/// the kernel, for one file.
const STANDBY: Duration = Duration::from_millis(50);
/// The same where that could not be taken over although nobody has it: that is told each time.
const STANDBY_AGAIN: Duration = Duration::from_secs(1);
/// Who reads the past for somebody may wait for a disk that does not answer: at the end it is waited for so long.
const LEAVE: Duration = Duration::from_secs(2);

/// Why a new configuration was not taken over.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    /// It is not in order.
    #[error("{0}")]
    Faulty(String),
    /// The guard has no room for it now.
    #[error("the guard does not keep up; send SIGHUP again")]
    Busy,
    /// The same, with what the kubelet says.
    #[error("the guard does not keep up; it is tried again by itself")]
    Later,
}

/// What became of a new configuration.
type Taken = Result<(), NotTaken>;

/// Runs an agent until SIGTERM, SIGINT, or the guard's end.
///
/// # Errors
/// What could not be had at the start; the guard's unexpected end.
pub fn run(config: &AgentConfig, sources: &Sources) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Before anything else: a second agent must not put the first one's journal aside only to be refused.
    let sockets = {
        let _inside = runtime.enter();
        (
            listen(config)?,
            Doors::open(&config.events, config.metrics_listen),
        )
    };
    let running = Arc::new(prepare::start(config)?);
    let served = runtime.block_on(serve(sockets, (config, sources), &running));
    runtime.shutdown_timeout(LEAVE);
    let telling = running.telling.clone();
    running.end();
    // The end of the guard is told too.
    telling.end_ways();
    served
}

fn listen(config: &AgentConfig) -> anyhow::Result<Server> {
    make_folder(&config.paths.state_dir).context(Named::STATE_DIR)?;
    let socket = &config.paths.socket;
    Server::bind(socket)
        .with_context(|| format!("cannot listen on {}", socket.display()))
        .context(Named::of_socket(config))
}

async fn serve(
    (server, doors): (Server, Option<Doors>),
    (config, sources): (&AgentConfig, &Sources),
    running: &Arc<Running>,
) -> anyhow::Result<()> {
    let socket = &config.paths.socket;
    let states = doors.as_ref().map_or_else(Vec::new, Doors::states);
    let views = Arc::new(Views::new(Arc::clone(running), states));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut sources = sources.clone();
    let mut answers = running.cluster.as_ref().and_then(Cluster::answers);
    let mut retry = Retry::default();
    let mut standby = STANDBY;
    info!(socket = %socket.display(), mode = config.mode.word(), "brink is running");
    let routes = routes(config, running, &views);
    let serving = server.serve(views);
    let streaming = stream(doors, running, routes);
    tokio::pin!(serving, streaming);
    let signal = loop {
        tokio::select! {
            () = &mut streaming => {}
            () = &mut serving => anyhow::bail!("the socket can no longer be served"),
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
            _ = hangup.recv() => {
                let said = news(answers.as_ref(), &sources);
                let taken = read_again(said, &mut sources, running, config);
                // Whoever sends it does not wait for what has failed many times.
                retry = Retry::default();
                retry.note(is_later(&taken), Instant::now());
            }
            said = kubelet_says(&mut answers) => {
                info!("the kubelet says what it goes by; the configuration is read again with that");
                let taken = logged(take_answer(said, &mut sources, running, config));
                tell(&taken, running);
                retry.note(is_later(&taken), Instant::now());
            }
            () = until(retry.due()) => {
                let said = news(answers.as_ref(), &sources);
                let taken = said.map_or(Ok(()), |said| {
                    try_again(said, &mut sources, running, config)
                });
                retry.note(is_later(&taken), Instant::now());
            }
            () = running.shared.guards_end() => {
                anyhow::bail!("the guard has ended; nothing is protected any more");
            }
            () = tokio::time::sleep(standby), if running.awaits_takeover() => {
                standby = take_enforcement_over(running);
            }
        }
    };
    info!(signal, "brink is stopping");
    tokio::select! {
        // The guard goes on until then: whoever asks or follows is still answered.
        () = &mut streaming => {}
        () = &mut serving => {}
        () = running.shared.guards_end() => {}
        () = last_words(running) => {}
    }
    end_stream(running).await;
    Ok(())
}

/// Takes enforcement over where nobody has it; says when to look again.
fn take_enforcement_over(running: &Running) -> Duration {
    match running.try_takeover() {
        Ok(()) => STANDBY,
        Err(error) => {
            warn!(%error, "enforcement cannot be taken over yet");
            STANDBY_AGAIN
        }
    }
}

/// Has the cluster told the last words, and waits for them.
async fn last_words(running: &Running) {
    const MOMENT: Duration = Duration::from_millis(5);
    running.take_leave();
    while !running.has_taken_leave() {
        tokio::time::sleep(MOMENT).await;
    }
}

/// What other parts serve beside events, and what of it anybody may see.
fn routes(config: &AgentConfig, running: &Arc<Running>, views: &Arc<Views>) -> [Routes; 2] {
    let mut public = Routes::default();
    metrics::routes::add(&mut public, running, views);
    let mut routes = public.clone();
    if config.events.page {
        let asked: Arc<dyn Asked> = Arc::clone(views) as _;
        page::routes::add(&mut routes, &asked);
    }
    [routes, public]
}

/// Serves events, where any are told.
async fn stream(doors: Option<Doors>, running: &Running, [routes, public]: [Routes; 2]) {
    match doors {
        Some(doors) => {
            let past = running.telling.past();
            doors.serve(running, past, (routes, public)).await;
        }
        None => std::future::pending().await,
    }
}

/// Lets those who follow see the end of their stream: without it they could not tell it from a broken connection.
async fn end_stream(running: &Running) {
    const MOMENT: Duration = Duration::from_millis(50);
    if let Some(hub) = running.telling.hub() {
        hub.close();
        tokio::time::sleep(MOMENT).await;
    }
}

/// What the kubelet says of itself, when that is new; never where it is not asked.
async fn kubelet_says(answers: &mut Option<Answers>) -> Arc<str> {
    while let Some(receiver) = answers {
        if receiver.changed().await.is_err() {
            *answers = None;
        } else if let Some(said) = receiver.borrow_and_update().clone() {
            return said;
        }
    }
    std::future::pending().await
}

/// What the kubelet said last and is not gone by.
fn news(answers: Option<&Answers>, sources: &Sources) -> Option<Arc<str>> {
    let said = answers?.borrow().clone();
    said.filter(|said| sources.configz.as_ref() != Some(said))
}

/// Whether it is to be tried again by itself: only where all it takes is room.
const fn is_later(taken: &Taken) -> bool {
    matches!(taken, Err(NotTaken::Later))
}

/// Goes by what the kubelet says of itself now; where that cannot be taken over, by what it said before.
fn take_answer(
    said: Arc<str>,
    sources: &mut Sources,
    running: &Running,
    before: &AgentConfig,
) -> Taken {
    let new = Sources {
        configz: Some(said),
        ..sources.clone()
    };
    match take_over(&new, running, before) {
        Ok(()) => {
            *sources = new;
            Ok(())
        }
        Err(NotTaken::Busy) => Err(NotTaken::Later),
        Err(why) => Err(why),
    }
}

/// The same once more. That there still is no room for it was told when there was none for the first time.
fn try_again(
    said: Arc<str>,
    sources: &mut Sources,
    running: &Running,
    before: &AgentConfig,
) -> Taken {
    let taken = take_answer(said, sources, running, before);
    if !is_later(&taken) {
        tell(&taken, running);
    }
    taken
}

/// Reads everything again, with `news` of the kubelet's that could not be taken over before, and has it asked again.
fn read_again(
    news: Option<Arc<str>>,
    sources: &mut Sources,
    running: &Running,
    before: &AgentConfig,
) -> Taken {
    if let Some(cluster) = &running.cluster {
        cluster.ask_again();
    }
    let with_news = news.map(|said| logged(take_answer(said, sources, running, before)));
    let taken = first_or_rest(with_news, || logged(take_over(sources, running, before)));
    tell(&taken, running);
    taken
}

/// What becomes of a reading with news of the kubelet's. Where these are faulty the rest is taken over without them, and what is wrong
/// with them stays told all the same; where there is no room all of it is tried again.
fn first_or_rest(with_news: Option<Taken>, without: impl FnOnce() -> Taken) -> Taken {
    match with_news {
        None => without(),
        Some(Err(NotTaken::Faulty(why))) => {
            let _logged = without();
            Err(NotTaken::Faulty(why))
        }
        Some(taken) => taken,
    }
}

/// Has it in the log where there was no room; of what is faulty it is there already.
fn logged(taken: Taken) -> Taken {
    if let Err(why @ (NotTaken::Busy | NotTaken::Later)) = &taken {
        error!(%why, "the old configuration stays");
    }
    taken
}

/// Tells everybody whether a new configuration was taken over, or why not; a bad one changes nothing.
fn tell(taken: &Taken, running: &Running) {
    let at = ClockPair::now().realtime_ns;
    running.shared.lock().refused = taken.as_ref().err().map(|why| Refused {
        at: guard::now(),
        why: why.to_string(),
    });
    running.shared.counters.reloaded(taken.is_ok(), at);
}

/// Takes it over, or tells why not.
fn take_over(sources: &Sources, running: &Running, before: &AgentConfig) -> Taken {
    // Another node takes a restart: what is written must fit the one that is watched over. So does whether the kubelet is asked.
    let sources = Sources {
        capacities: Some(capacities_of(before)),
        measures_disks: true,
        asks_kubelet: Some(before.kubernetes.asks_kubelet()),
        ..sources.clone()
    };
    let Checked {
        config,
        warnings,
        idle,
        ..
    } = match load(&sources) {
        Ok(checked) => checked,
        Err(faults) => {
            error!(%faults, "the new configuration is not in order; the old one stays");
            return Err(NotTaken::Faulty(faults.to_string()));
        }
    };
    let new = Reconfiguration {
        policy: config.policy.clone(),
        live: live_beside(before, &config),
    };
    if !running.handover.hand_over(new) {
        return Err(NotTaken::Busy);
    }
    // Not before it is taken over: it may be tried many times.
    for warning in warnings.into_iter().chain(idle) {
        warn!(%warning, "configuration");
    }
    for setting in needs_restart(before, &config) {
        warn!(setting, "this setting has changed, and takes a restart");
    }
    running.shared.configure(&config);
    if let Err(error) = running.keep_disks(&config) {
        warn!(%error, "filesystems are not measured");
    }
    running
        .shared
        .lock()
        .kubelets
        .clone_from(&config.kubelets_policy);
    running.reload.leave(Reloaded {
        manifests: config.workloads.manifests.clone(),
        count_processes: uses_pids(&config),
        oom_scores: config.workloads.oom_scores,
        measure_disks: is_wanted(&config.policy),
        rules: config.workloads.cgroups,
        selection: config.selection,
    });
    running.bell.ring();
    info!("the configuration was read again");
    Ok(())
}

/// The live settings of a new configuration, without what follows from settings that take a restart: whoever asks the container
/// runtime goes by the old ones.
fn live_beside(before: &AgentConfig, now: &AgentConfig) -> LiveSettings {
    LiveSettings {
        disks: before.live_settings().disks,
        ..now.live_settings()
    }
}

/// Settings that differ and cannot be taken over by a running agent.
fn needs_restart(before: &AgentConfig, now: &AgentConfig) -> Vec<&'static str> {
    let differs = [
        ("node", before.node != now.node),
        ("podsCgroup", before.pods_cgroup != now.pods_cgroup),
        ("filesystems", before.filesystems != now.filesystems),
        ("runtime", before.runtime != now.runtime),
        ("kubernetes", before.kubernetes != now.kubernetes),
        ("storage", before.storage != now.storage),
        ("paths", before.paths != now.paths),
        ("realtime", before.realtime != now.realtime),
        ("hooks", before.hooks != now.hooks),
        ("events", before.events != now.events),
        ("metrics", before.metrics_listen != now.metrics_listen),
        ("log", before.log != now.log),
        (
            "kernelPrograms",
            before.kernel_programs != now.kernel_programs,
        ),
        (
            "housekeepingInterval",
            before.housekeeping_interval != now.housekeeping_interval,
        ),
    ];
    differs
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use brink_core::node::engine::Disks;
    use tokio::sync::watch;

    use super::*;
    use crate::config::of_text;

    #[tokio::test]
    async fn what_the_kubelet_says_is_heard_and_its_silence_ends_no_wait() {
        let (sender, mut receiver) = watch::channel(None);
        // Nothing was said so far.
        receiver.mark_changed();
        let mut answers: Option<Answers> = Some(receiver);
        let says = async { sender.send_replace(Some("{}".into())) };
        let (said, _nothing) = tokio::join!(kubelet_says(&mut answers), says);
        assert_eq!(&*said, "{}");
        drop(sender);
        let moment = Duration::from_millis(10);
        let waits = tokio::time::timeout(moment, kubelet_says(&mut answers)).await;
        assert!(waits.is_err() && answers.is_none());
    }

    #[test]
    fn what_there_was_no_room_for_is_tried_again_and_what_is_wrong_is_not() {
        let faulty = Err(NotTaken::Faulty("wrong".to_owned()));
        for (taken, expected) in [
            (Ok(()), false),
            (faulty, false),
            (Err(NotTaken::Busy), false),
            (Err(NotTaken::Later), true),
        ] {
            assert_eq!(is_later(&taken), expected, "{taken:?}");
        }
        let (sender, receiver) = watch::channel(Some("{}".into()));
        let mut sources = Sources::default();
        assert_eq!(news(Some(&receiver), &sources).as_deref(), Some("{}"));
        sources.configz = Some("{}".into());
        assert_eq!(news(Some(&receiver), &sources), None);
        drop(sender);
        assert_eq!(news(None, &sources), None);
    }

    #[test]
    fn news_that_are_wrong_stay_refused_though_all_the_rest_is_taken_over() {
        let wrong = || Err(NotTaken::Faulty("wrong".to_owned()));
        let busy = "the guard does not keep up; send SIGHUP again";
        let later = "the guard does not keep up; it is tried again by itself";
        for (with_news, mut rest, expected) in [
            (Some(wrong()), Some(Ok(())), Some("wrong")),
            // What was taken over with the news, or will be tried again with them, is not read once more.
            (Some(Err(NotTaken::Later)), None, Some(later)),
            (Some(Ok(())), None, None),
            (None, Some(Ok(())), None),
            (None, Some(wrong()), Some("wrong")),
            (None, Some(Err(NotTaken::Busy)), Some(busy)),
        ] {
            let taken = first_or_rest(with_news, || rest.take().unwrap());
            assert!(rest.is_none());
            let why = taken.err().map(|why| why.to_string());
            assert_eq!(why.as_deref(), expected);
        }
    }

    #[test]
    fn how_long_images_stay_takes_no_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubelet.yaml");
        let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let of = |age: &str| {
            std::fs::write(&file, format!("{kubelet}imageMinimumGCAge: {age}\n")).unwrap();
            of_text(&format!("kubeletConfig: {}\n", file.display()))
        };
        let (before, now) = (of("2m"), of("10m"));
        assert_eq!(needs_restart(&before, &now), [""; 0]);
        assert_ne!(before.image_min_age, now.image_min_age);
    }

    #[test]
    fn who_keeps_the_filesystems_takes_a_restart_as_what_it_follows_from() {
        let before = of_text("runtime: {reclaim: standalone}\nmode: observe");
        let now = of_text("runtime: {reclaim: always}\nmode: enforce\nlimits: {maxKills: 3}");
        assert_eq!(needs_restart(&before, &now), ["runtime"]);
        let live = live_beside(&before, &now);
        assert_eq!(live.disks, Disks::UnlessKubelets);
        assert_eq!(live.limits, now.limits);
        assert!(live.enforce);
    }
}
