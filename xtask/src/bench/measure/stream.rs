//! Many small events through the hub and the service on a socket: what their readers get, how soon, and in how much memory.
//!
//! Hub, service and readers are this process, so that its memory is all of theirs.
use std::{
    path::Path,
    sync::Arc,
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_host::clock::monotonic_ns;
use brink_stream::{
    hub::{Hub, Identity, Limits},
    model::{
        data::Pressure,
        event::{Draft, Event, Time},
        kind::Kind,
    },
    serve::{Door, Service},
};
use brink_tests::lines::{Lines, number_of};

use super::super::registry::{Measured, Outcome, Settings};
use super::{
    latency, memory,
    units::{between, mebibytes, millis, signed},
};

/// Readers, and events a second.
const FLOWS: [(usize, u32); 2] = [(1, 100_000), (10, 10_000)];
/// Every so many milliseconds that millisecond's events are told.
const BEAT: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// Of every so many events the time is taken.
const TIMED: u64 = 100;

const DELAY: &str = "told to read";
const LOST: &str = "told to a reader as lost";
const RATE: &str = "told";
const GROWTH: &str = "growth";
const UNCOUNTED: &str = "neither read nor told as lost";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let mut outcome = Outcome::default();
    for (readers, rate) in FLOWS {
        flow(&mut outcome, settings, (readers, rate))?;
    }
    latency::with_and_without(&mut outcome, settings)?;
    Ok(Measured::Ran(outcome))
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for flow in FLOWS {
        let case = case(flow);
        let least = settings.figure(0.9, 0.99) * f64::from(flow.1);
        outcome.least_median(&case, RATE, least);
        outcome.limit_median(&case, GROWTH, 1.0);
        outcome.limit_median(&case, LOST, settings.figure(5.0, 0.1));
        outcome.limit_sum(&case, UNCOUNTED, 0.0);
    }
    latency::hold_beside(outcome, settings);
}

fn case((readers, rate): (usize, u32)) -> String {
    let plural = if readers == 1 { "" } else { "s" };
    format!("{readers} reader{plural}, {rate} events a second")
}

/// What one reader got.
#[derive(Debug, Default)]
struct Read {
    delays: Vec<f64>,
    /// Events.
    had: u64,
    /// Those it was told of as lost.
    lost: u64,
    /// Numbers that it never heard of.
    uncounted: u64,
}

fn flow(
    outcome: &mut Outcome,
    settings: &Settings,
    (count, rate): (usize, u32),
) -> anyhow::Result<()> {
    // Until every buffer has its size, and the flow that counts.
    let seconds = if settings.short { [1, 1] } else { [2, 20] };
    let [warming, length] = seconds.map(Duration::from_secs);
    let case = case((count, rate));
    let folder = tempfile::Builder::new().prefix("brink-bench-").tempdir()?;
    let socket = folder.path().join("events.sock");
    let hub = hub();
    let server = serve(hub.clone(), &socket)?;
    let readers = (0..count).map(|_| follow(&socket));
    let readers: Vec<_> = readers.collect::<anyhow::Result<_>>()?;
    tell(&hub, rate, warming)?;
    let before = memory::resident(std::process::id())?;
    let (told, took) = tell(&hub, rate, length)?;
    let after = memory::resident(std::process::id())?;
    let numbered = hub.numbering().last;
    hub.close();
    let mut reads = Vec::new();
    for reader in readers {
        let read = reader.join();
        reads.push(read.map_err(|_| anyhow::anyhow!("a reader panicked"))??);
    }
    drop(server);
    let growth = mebibytes(signed(after) - signed(before));
    let rate_told = f64::from(u32::try_from(told)?) / took.as_secs_f64();
    outcome.add(&case, RATE, "1/s", vec![rate_told]);
    outcome.add(&case, GROWTH, "MiB", vec![growth]);
    let numbers = |of: fn(&Read) -> u64| {
        let each = reads.iter().map(of);
        each.map(|number| f64::from(u32::try_from(number).unwrap_or(u32::MAX)))
            .collect::<Vec<_>>()
    };
    let lost = numbers(|read| read.lost);
    let had = numbers(|read| read.had);
    let lost_of_all = 100.0 * lost.iter().sum::<f64>() / (lost.iter().chain(&had)).sum::<f64>();
    let uncounted = reads.iter().map(|read| {
        let missed = numbered.saturating_sub(read.had + read.lost);
        f64::from(u32::try_from(missed.max(read.uncounted)).unwrap_or(u32::MAX))
    });
    outcome.add(&case, UNCOUNTED, "", uncounted.collect());
    outcome.add(&case, LOST, "%", vec![lost_of_all]);
    let delays = reads.into_iter().flat_map(|read| read.delays);
    outcome.add(&case, DELAY, "ms", delays.collect());
    Ok(())
}

fn hub() -> Hub {
    let identity = Identity {
        node: "bench".to_owned(),
        boot_id: "0b1e1ed0-1de5-4a11-8b1e-55ed1decade5".to_owned(),
    };
    Hub::new(identity, 0, Limits::default())
}

fn now() -> Time {
    let now = i64::try_from(monotonic_ns()).unwrap_or(i64::MAX);
    Time::new(now / 1000, now)
}

/// A thread that serves the hub as the agent does; it ends with what is given back.
fn serve(hub: Hub, socket: &Path) -> anyhow::Result<Server> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_io().enable_time().build()?;
    let door = {
        let _inside = runtime.enter();
        Door::unix(socket)?
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("server".to_owned());
    let thread = thread.spawn(move || {
        runtime.block_on(async {
            let served = Arc::new(Service::new(hub, now)).serve(vec![door]);
            tokio::select! {
                () = served => {}
                _ = stopped => {}
            }
        });
    })?;
    Ok(Server(Some((stop, thread))))
}

struct Server(Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<()>)>);

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // What it died of stands on stderr, and its readers have failed.
            let _died = thread.join();
        }
    }
}

fn follow(socket: &Path) -> anyhow::Result<JoinHandle<anyhow::Result<Read>>> {
    let lines = Lines::ask(socket, "since=0&follow=1", PATIENCE)?;
    Ok(std::thread::spawn(move || read(lines)))
}

fn read(mut lines: Lines) -> anyhow::Result<Read> {
    let mut read = Read::default();
    let mut last = 0;
    while let Some((at, line)) = lines.take()? {
        let number = number_of(line).context("a line without a number")?;
        if number == last + 1 && !number.is_multiple_of(TIMED) {
            read.had += 1;
            last = number;
            continue;
        }
        let event: Event = serde_json::from_slice(line)?;
        if event.of == Kind::Loss {
            read.lost += number.saturating_sub(last);
        } else {
            let told = u64::try_from(event.at.monotonic_ns)?;
            read.delays.push(millis(between(told, at)));
            read.uncounted += number.saturating_sub(last + 1);
            read.had += 1;
        }
        last = number;
    }
    Ok(read)
}

/// Tells events at a pace: how many, and how long it took.
fn tell(hub: &Hub, rate: u32, length: Duration) -> anyhow::Result<(u64, Duration)> {
    let data = Pressure {
        conditions: vec!["MemoryPressure".to_owned()],
    };
    let began = Instant::now();
    let (mut told, mut elapsed) = (0, Duration::ZERO);
    while elapsed < length {
        let due = u64::try_from(elapsed.as_nanos() * u128::from(rate) / 1_000_000_000)?;
        while told < due {
            hub.tell(Draft::new(Kind::Pressure, now(), None, &data)?);
            told += 1;
        }
        sleep(BEAT);
        elapsed = began.elapsed();
    }
    Ok((told, elapsed))
}
