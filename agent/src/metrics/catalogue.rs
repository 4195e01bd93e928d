//! Every family of metrics: name, kind, labels and meaning. `docs/metrics.md` has the same list, and a test holds it there.

use brink_core::node::metrics::SIGNAL_LABEL;

use super::exposition::{Family, Kind};

const SIGNAL: &[&str] = &[SIGNAL_LABEL];
const THRESHOLD: &[&str] = &[SIGNAL_LABEL, "type"];

macro_rules! families {
    ($($name:ident = $kind:ident $text:literal $labels:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $name: Family = Family {
                name: $text,
                kind: Kind::$kind,
                labels: $labels,
                help: $help,
            };
        )*
        /// Every family, in the order of the page.
        pub const ALL: &[&Family] = &[$(&$name),*];
    };
}

families! {
    AVAILABLE = Gauge "brink_signal_available" SIGNAL, "What is left of a signal: bytes, inodes or process ids.";
    CAPACITY = Gauge "brink_signal_capacity" SIGNAL, "Out of how much that is left.";
    QUANTITY = Gauge "brink_threshold_quantity" THRESHOLD, "The amount below which a threshold is crossed, in the units of its signal.";
    OBSERVED = Gauge "brink_threshold_observed" THRESHOLD, "Whether the signal of a threshold is observed here; without that it is never met.";
    MET = Gauge "brink_threshold_met" THRESHOLD, "Whether a threshold is met, minimum reclaim included.";
    HELD = Gauge "brink_threshold_held" &[SIGNAL_LABEL, "type", "reason"], "A threshold that is due and not acted on, and why.";
    CROSSED = Counter "brink_threshold_crossings" THRESHOLD, "How often a threshold was crossed.";
    CONDITION = Gauge "brink_condition" &["condition"], "Whether a condition of the node holds.";
    HEADROOM = Gauge "brink_memory_headroom_bytes" &[], "Memory that could still be allocated, swap not counted.";
    SWAP = Gauge "brink_usable_swap_bytes" &[], "Swap that could still be used, as of the latest reading.";
    AGE = Gauge "brink_figures_age_seconds" &[], "Age of the latest reading of the node.";
    STALLED = Counter "brink_memory_pressure_stall_seconds" &["kind"], "Time in which some task, or all of them, waited for memory (PSI), since boot.";
    WORKLOADS = Gauge "brink_workloads" &[], "Workloads watched over.";
    PROTECTED = Gauge "brink_workloads_protected" &[], "Those of them that are never evicted.";
    BROKEN = Gauge "brink_manifests_broken" &[], "Manifest files that are not in order: their pods are unknown, or as they were when the file last was.";
    STORAGE = Gauge "brink_storage_folders" &[], "Folders of workloads that are measured; nothing where there are none.";
    STORAGE_UNKNOWN = Gauge "brink_storage_folders_unknown" &[], "Those of them that the last round could not measure, or not wholly, 16 at most, and one more where no runtime tells of writable layers.";
    STORAGE_AGE = Gauge "brink_storage_round_age_seconds" &[], "Time since all of them had been measured.";

    FILESYSTEM = Gauge "brink_filesystem_known" &["filesystem"], "Whether a filesystem answers and can be written to; without that its thresholds are never met. Nothing where none is on a filesystem.";
    RUNTIME = Gauge "brink_runtime_connected" &[], "Whether the container runtime answers; nothing where there is none, or no threshold on a filesystem.";
    RECLAIMS = Counter "brink_node_reclaims" &["result"], "How often the container runtime was asked for what it can give back: sufficient if no threshold on a filesystem was met afterwards, insufficient otherwise.";
    RECLAIMED = Counter "brink_node_reclaim_removed" &["kind"], "Dead containers and unused images that were removed.";
    RECLAIMED_BYTES = Counter "brink_node_reclaim_freed_bytes" &[], "What filesystems had more after that than before.";

    EVICTIONS = Counter "brink_evictions" &[SIGNAL_LABEL, "mode"], "Workloads evicted (enforce), or that would have been (observe; told again every 30 s while it lasts), by signal or by limit of local storage.";
    STATS_AGE = Histogram "brink_eviction_stats_age_seconds" SIGNAL, "Age of the observation that a decision rested on.";
    STAGE = Histogram "brink_eviction_stage_seconds" &["stage"], "Time that one stage of an eviction took.";
    WAY = Histogram "brink_signal_to_kill_seconds" &[], "From the sample below a threshold to the first SIGKILL, of orders without a grace.";
    ENDS = Counter "brink_orders_ended" &["end"], "Orders that are over, by why.";
    OPEN = Gauge "brink_order_open" &[], "Whether an order is open.";
    FREED = Counter "brink_eviction_freed_bytes" &[], "Memory that came back from victims.";
    OOM_KILLS = Counter "brink_oom_kills" &["scope"], "Processes killed by the kernel itself, by what was short of memory; absent where the kernel program `mark_victim` does not run.";

    MODE = Gauge "brink_mode" &["mode"], "One for enforcing, or for why orders are only observed; zero for the others.";
    RUNG = Gauge "brink_rung" &["rung"], "One for what carries the signals, zero for the others.";
    TURNED = Gauge "brink_guard_pass_age_seconds" &[], "Time since the guard began its latest housekeeping pass.";
    LOST = Counter "brink_guard_queue_lost" &["queue"], "What found no room in a queue to or from the guard.";
    PROGRAM = Gauge "brink_kernel_program_running" &["program", "family"], "Whether a kernel program runs.";
    SKIPPED = Counter "brink_kernel_program_skipped" &["program", "family"], "Times that the kernel left a program out because it ran on that processor already: what it had to tell then is told by nobody.";
    SEEN = Counter "brink_ring_events_seen" &["ring"], "Occasions to send a record from the kernel; sent, dropped and filtered together.";
    SENT = Counter "brink_ring_events_sent" &["ring"], "Records that were sent from the kernel.";
    DROPPED = Counter "brink_ring_events_dropped" &["ring"], "Records that found the ring full.";
    FILTERED = Counter "brink_ring_events_filtered" &["ring"], "Occasions that were not worth a record.";
    TICKS = Counter "brink_sampler_ticks" &[], "Ticks of the sampler in the kernel.";
    BUSY = Counter "brink_sampler_busy_seconds" &[], "Time that those took.";
    LONGEST = Gauge "brink_sampler_longest_tick_seconds" &[], "The longest of them.";
    MAPS = Gauge "brink_bpf_maps_bytes" &[], "Kernel memory of the maps of the kernel programs.";

    EVENTS = Counter "brink_events" &["type"], "Events told, by kind.";
    INCIDENTS = Counter "brink_incidents" &["cause"], "Incidents that were opened, by what killed as it was known then.";
    EVENTS_LOST = Counter "brink_event_losses" &["place"], "What the event stream was told to have lost, by where.";
    EVENT_JOURNAL = Gauge "brink_event_journal" &["state"], "One for how the event journal stands, zero for the others; nothing where none is kept.";
    EVENT_JOURNAL_BYTES = Gauge "brink_event_journal_bytes" &[], "Bytes of the event journal's files.";
    EVENT_JOURNAL_WAITING = Gauge "brink_event_journal_waiting" &[], "Events that wait for the event journal.";
    OUTLET = Gauge "brink_event_outlet_failing" &["outlet"], "Whether another way out of events fails now: what it cannot hand out is lost once it is too late.";
    RECORDER_BUSY = Counter "brink_recorder_timer_busy_seconds" &[], "Time that the flight recorder's timer in the kernel took.";
    RECORDER = Gauge "brink_recorder_period_seconds" &["of"], "From one point of the flight recorder to the next; nothing where it does not run.";
    RECORDER_OVERWRITTEN = Counter "brink_recorder_points_overwritten" &[], "Points of the cgroups near their limit that were overwritten before the flight recorder read them; nothing where it does not run.";
    RECORDER_LEFT_OUT = Gauge "brink_recorder_cgroups_left_out" &[], "Cgroups that the flight recorder has no room for; nothing where it does not run.";

    KUBERNETES = Gauge "brink_kubernetes_connected" &[], "Whether the API server is reached and the pods of this node are up to date; nothing where they are not asked for.";
    KUBERNETES_PODS = Gauge "brink_kubernetes_pods" &[], "Pods of this node that are known from the API.";
    KUBERNETES_AGE = Gauge "brink_kubernetes_state_age_seconds" &[], "Time since those were last known to be up to date.";
    KUBERNETES_FAILURES = Counter "brink_kubernetes_failures" &[], "Attempts to reach the API server that have failed.";
    KUBERNETES_UNTOLD = Gauge "brink_kubernetes_untold" &[], "Evictions and kills of the kernel's that the API is still to be told of.";
    KUBELET_CONFIGZ = Gauge "brink_kubelet_configz_known" &[], "Whether the kubelet said what it goes by when it was asked last; nothing where it is not asked.";

    BUILD = Info "brink_build" &["version"], "Version of the agent.";
    RELOADED = Gauge "brink_config_last_reload_successful" &[], "Whether the configuration was taken over when it was read last.";
    RELOADED_AT = Gauge "brink_config_last_reload_timestamp_seconds" &[], "When that was, in seconds since 1970.";
    CPU = Counter "process_cpu_seconds" &[], "Time that all threads of the agent spent on a processor.";
    RESIDENT = Gauge "process_resident_memory_bytes" &[], "Resident memory of the agent.";
    STARTED = Gauge "process_start_time_seconds" &[], "When the agent was started, in seconds since 1970.";
    FILES = Gauge "process_open_fds" &[], "Open file descriptors of the agent.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_words_are_in_order() {
        let names: BTreeSet<&str> = ALL.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), ALL.len(), "a name is used twice");
        for family in ALL {
            let is_plain = |text: &str| {
                text.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            assert!(is_plain(family.name), "{}", family.name);
            assert!(
                family.labels.iter().all(|label| is_plain(label)),
                "{}",
                family.name
            );
            let endings = ["_total", "_info", "_count", "_sum", "_bucket"];
            assert!(
                !endings.iter().any(|end| family.name.ends_with(end)),
                "{}",
                family.name
            );
            assert!(!family.help.contains(['\\', '"', '\n']), "{}", family.help);
            assert!(family.help.ends_with('.'), "{}", family.help);
        }
    }
}
