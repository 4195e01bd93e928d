//! The truth sampler of the benchmarks, from user space: an independent witness of when memory crossed.
//!
//! Not part of the agent: nothing here is linked into it unless it is called.

use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::SocketFilter;
use brink_abi::Plain;
use brink_abi::truth::{Crossing, TRUTH_RESET, TRUTH_START, TruthOrder, TruthResult, TruthWatch};

use super::call::{done, program, run};
use super::coverage::Settings;
use super::error::{ProbeError, Refusal};
use super::load::{alone, chain, take};
use super::pod::Pod;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../ebpf/prebuilt/brink-truth.bpf.o");

const NAME: &str = "truth";

/// The judge's own program and timer. Dropping it ends both.
pub struct Truth {
    object: Ebpf,
    order: Array<MapData, Pod<TruthOrder>>,
    result: Array<MapData, Pod<TruthResult>>,
    crossings: Array<MapData, Pod<Crossing>>,
    nodes: Vec<u32>,
}

/// What the judge is to watch.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// nanoseconds between ticks; 50,000 for a benchmark
    pub period_ns: u64,
    /// bytes
    pub capacity: u64,
    /// bytes of free memory the zones do not own up to, from the reply to [`super::Probe::arm_node`]
    pub deferred: u64,
    /// at most as many as the sampler takes
    pub watches: &'a [TruthWatch],
}

impl Truth {
    /// Loads the judge.
    ///
    /// # Errors
    /// [`ProbeError`] when the object, its maps or its program cannot be loaded.
    pub fn load(settings: &Settings) -> Result<Self, ProbeError> {
        let mut object = alone(OBJECT, settings)?;
        program::<SocketFilter>(&mut object, NAME)?
            .load()
            .map_err(|error| ProbeError::Object(chain(&error)))?;
        Ok(Self {
            order: take(&mut object, "ORDER")?,
            result: take(&mut object, "RESULT")?,
            crossings: take(&mut object, "CROSSINGS")?,
            nodes: settings.nodes.clone(),
            object,
        })
    }

    /// Starts judging.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] when there are too many watches, or the counters are not found.
    pub fn start(&mut self, order: &Order<'_>) -> Result<(), ProbeError> {
        let mut given = TruthOrder {
            op: TRUTH_START,
            period_ns: order.period_ns,
            capacity: i64::try_from(order.capacity).unwrap_or(i64::MAX),
            deferred: i64::try_from(order.deferred).unwrap_or(i64::MAX),
            ..TruthOrder::ZERO
        };
        let refused = ProbeError::Refused {
            what: NAME,
            why: Refusal::TooMany,
        };
        let (count, node_count) = (order.watches.len(), self.nodes.len());
        let (Some(watches), Some(nodes)) = (
            given.watches.get_mut(..count),
            given.nodes.get_mut(..node_count),
        ) else {
            return Err(refused);
        };
        watches.copy_from_slice(order.watches);
        nodes.copy_from_slice(&self.nodes);
        given.count = u32::try_from(count).unwrap_or(u32::MAX);
        given.node_count = u32::try_from(node_count).unwrap_or(u32::MAX);
        self.obey(&given)
    }

    /// Forgets every crossing and keeps judging. What a tick was about to write may stay: look a tick later.
    ///
    /// # Errors
    /// [`ProbeError`] when the map or the program cannot be used.
    pub fn reset(&mut self) -> Result<(), ProbeError> {
        let Pod(order) = self.order.get(&0, 0).map_err(map("ORDER"))?;
        self.obey(&TruthOrder {
            op: TRUTH_RESET,
            ..order
        })
    }

    /// Ticks, cost and gaps.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn result(&self) -> Result<TruthResult, ProbeError> {
        self.result
            .get(&0, 0)
            .map(|Pod(found)| found)
            .map_err(map("RESULT"))
    }

    /// What was seen of one watch.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when there is no such watch.
    pub fn crossing(&self, watch: u32) -> Result<Crossing, ProbeError> {
        self.crossings
            .get(&watch, 0)
            .map(|Pod(found)| found)
            .map_err(map("CROSSINGS"))
    }

    fn obey(&mut self, order: &TruthOrder) -> Result<(), ProbeError> {
        self.order.set(0, Pod(*order), 0).map_err(map("ORDER"))?;
        done(NAME, run(program(&mut self.object, NAME)?, NAME)?)
    }
}

fn map(name: &'static str) -> impl Fn(aya::maps::MapError) -> ProbeError {
    move |error| ProbeError::Map { name, error }
}
