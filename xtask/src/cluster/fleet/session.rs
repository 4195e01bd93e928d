//! A simulation from its cluster to its report; what was made in the server is removed, also after a failure.
use std::{fs, path::Path};

use anyhow::{Context as _, anyhow, bail};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};

use super::{
    super::{pki::Pki, restart, test, up},
    Args,
    asked::Counter,
    descriptors, page,
    phases::{Found, Stage},
    report::{Report, SCHEMA, Setting},
    scene::Scene,
    tables,
};
use crate::{Verdict, bench::machine::Machine, workspace};

/// Threads that serve connections, and those that wait for disks and names for them.
const WORKERS: usize = 2;
const WAITING: usize = 16;

pub(super) fn run(args: &Args, folder: &Path) -> anyhow::Result<Verdict> {
    descriptors::raise(args.agents)?;
    let is_ours = args.kubeconfig.is_none() && !up::is_up(folder)?;
    if is_ours && !test::own(&["cluster", "up"])? {
        test::down()?;
        bail!("without a cluster there is nothing to ask; the reason stands above");
    }
    let found = simulate(args, folder);
    if is_ours {
        test::down()?;
    }
    let report = found?;
    print!("\n{}", tables::of(&report));
    let file = if args.publish {
        workspace::root().join(page::RAW)
    } else {
        workspace::root().join(&args.out).join("raw.json")
    };
    write(&report, &file)?;
    if args.publish {
        page::publish(workspace::root())?;
    }
    let is_reached = report
        .limits()
        .iter()
        .all(crate::bench::registry::Limit::is_reached);
    Ok(Verdict::from_holds(is_reached))
}

fn write(report: &Report, file: &Path) -> anyhow::Result<()> {
    let context = || format!("writing {}", file.display());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    let mut text = serde_json::to_string(report).with_context(context)?;
    text.push('\n');
    fs::write(file, text).with_context(context)?;
    println!("raw values: {}", file.display());
    Ok(())
}

fn simulate(args: &Args, folder: &Path) -> anyhow::Result<Report> {
    let counter = Counter::new();
    tracing::subscriber::set_global_default(counter.clone()).context("counting requests")?;
    let own = args.kubeconfig.is_none().then_some(folder);
    let kubeconfig = args
        .kubeconfig
        .clone()
        .unwrap_or_else(|| Pki::of(folder).admin());
    let agents = tempfile::Builder::new().prefix("brink-fleet-").tempdir()?;
    let machine = Machine::read(Path::new("/"));
    let before = load();
    let runtime = runtime()?;
    // An agent's tasks keep to one thread; their connections are served by the others.
    let found = LocalSet::new().block_on(&runtime, async {
        let scene = Scene::reach(&kubeconfig).await?;
        let server = scene.version().await?;
        let stage = Stage {
            args,
            scene: &scene,
            counter: &counter,
            own,
            folder: agents.path(),
        };
        let found = tokio::select! {
            found = stage.run() => found,
            interrupted = interruption() => Err(interrupted),
        };
        let removed = remove(&scene, own).await;
        // What went wrong first says more.
        let found = found?;
        removed?;
        Ok::<_, anyhow::Error>((server, found))
    });
    runtime.shutdown_background();
    let (server, found) = found?;
    let setting = Setting {
        agents: args.agents,
        pods: args.pods,
        evicting: args.evicting(),
        seed: args.seed,
        away: own.map(|_| args.away),
    };
    let mut report = report(
        (machine, [before, load()]),
        (server, setting),
        found,
        &counter,
    );
    // A folder of this run says nothing to anybody.
    let config = agents.path().join("kubeconfig").display().to_string();
    let warnings = std::mem::take(&mut report.warnings).into_iter();
    let named = warnings.map(|(line, times)| (line.replace(&config, "of the account"), times));
    report.warnings = named.collect();
    Ok(report)
}

fn report(
    (machine, load): (Machine, [Option<f64>; 2]),
    (server, setting): (String, Setting),
    found: Found,
    counter: &Counter,
) -> Report {
    Report {
        schema: SCHEMA,
        machine,
        load,
        server,
        setting,
        phases: found.phases,
        own: found.own,
        servers: found.servers,
        connections: found.connections,
        reopened: found.reopened,
        books: found.books,
        left_conditions: found.left_conditions,
        warnings: counter.counts().warnings,
    }
}

/// Takes away what was made; a server of ours that is away comes back for that.
async fn remove(scene: &Scene, own: Option<&Path>) -> anyhow::Result<()> {
    println!("fleet: everything is removed");
    if let Some(folder) = own {
        let folder = folder.to_owned();
        tokio::task::spawn_blocking(move || restart::ensure(&folder)).await??;
    }
    let removed = scene.remove().await;
    removed
        .inspect_err(|error| eprintln!("fleet: not everything is removed: {error:#}"))
        .context("nodes of the label brink.dev/fleet, or the namespace brink-fleet, may be left; the next run removes them")
}

fn runtime() -> anyhow::Result<Runtime> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(WAITING)
        .enable_all()
        .build();
    runtime.context("a runtime for the agents")
}

/// Somebody wants an end.
async fn interruption() -> anyhow::Error {
    let [Ok(mut terminate), Ok(mut interrupt)] =
        [SignalKind::terminate(), SignalKind::interrupt()].map(signal)
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    anyhow!("interrupted")
}

/// Load average of the last minute.
fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
