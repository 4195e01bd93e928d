//! Which kernel programs load and attach on this kernel, and why the others do not, as JSON.

use std::process::ExitCode;

use brink_host::probe::programs::{Family, Hook};
use brink_host::probe::{Coverage, Facts, Probe, Roots, Wishes, coverage};
use serde_json::{Value, json};

/// Any period will do: without one the recorder's programs are not wanted.
const NODE_PERIOD_NS: u64 = 10_000_000;

fn main() -> ExitCode {
    let facts = Facts::gather(&Roots::default());
    let wishes = Wishes {
        forensics: true,
        ..Wishes::default().recording(NODE_PERIOD_NS)
    };
    let settings = coverage::settings(&facts, wishes.clone());
    let programs = match Probe::load(&facts, &settings) {
        Ok(probe) => described(probe.coverage(), None),
        // Nothing runs, whatever the facts let hope for.
        Err(error) => described(&coverage::decide(&facts, &wishes), Some(&error.to_string())),
    };
    println!("{programs}");
    ExitCode::SUCCESS
}

/// Each program with why it does not run; `failure` is of all of them.
fn described(coverage: &Coverage, failure: Option<&str>) -> Value {
    let programs = coverage.programs().map(|(program, state)| {
        let absence = state.as_ref().err().map(ToString::to_string);
        json!({
            "family": family(program.family),
            "name": program.name,
            "hook": hook(program.hook),
            "absent": absence.or_else(|| failure.map(str::to_owned)),
        })
    });
    programs.collect()
}

fn family(family: Family) -> &'static str {
    match family {
        Family::Sampler => "sampler",
        Family::Reclaim => "reclaim",
        Family::Oom => "oom",
        Family::Process => "process",
        Family::Cgroup => "cgroup",
        Family::Forensics => "forensics",
        Family::Recorder => "recorder",
    }
}

/// The hook in the words of libbpf's section names.
fn hook(hook: Hook) -> String {
    match hook {
        Hook::TestRun => "bpf_timer".to_owned(),
        Hook::Call => "raw_tp".to_owned(),
        Hook::Typed(tracepoint, _) => format!("tp_btf/{tracepoint}"),
        Hook::Classic(category, name) => format!("tp/{category}/{name}"),
        Hook::Tasks => "iter/task".to_owned(),
        Hook::Entry(function) => format!("fentry/{function}"),
    }
}
