//! Incidents for the page: a full one with its recording, an almost empty one, and one whose names are attacks.

use brink_stream::model::incident::Incident;
use serde_json::{Value, json};

/// A mebibyte.
const MIB: u64 = 1 << 20;

/// A name that is markup, script, and letters that turn the direction of writing.
pub(crate) const HOSTILE: &str = "</script><script>window.attacked=1</script><img src=x onerror=window.attacked=2>\u{202e}\u{7}'\"";

/// How [`HOSTILE`] is to be seen.
pub(crate) const HOSTILE_SHOWN: &str = "</script><script>window.attacked=1</script><img src=x onerror=window.attacked=2>\\u{202e}\\u{7}'\"";

/// Everything is known.
pub(crate) fn full() -> Value {
    let mut incident = read(include_str!("incident-full.json"));
    incident["recording"] = json!({"value": recording()});
    incident
}

/// Almost nothing is known yet.
pub(crate) fn bare() -> Value {
    read(include_str!("incident-bare.json"))
}

/// The full one about another workload.
pub(crate) fn about(id: &str, cause: &str, namespace: &str, name: &str) -> Value {
    let mut incident = read(include_str!("incident-full.json"));
    incident["id"] = json!(id);
    incident["cause"] = json!(cause);
    incident["workload"]["value"]["namespace"] = json!(namespace);
    incident["workload"]["value"]["name"] = json!(name);
    incident
}

/// The full one with [`HOSTILE`] in the place of every text that comes from outside.
pub(crate) fn hostile() -> Value {
    let mut incident = full();
    incident["id"] = json!("3f2a-66");
    incident["evidence"] = json!([HOSTILE]);
    for victim in incident["victims"].as_array_mut().unwrap() {
        victim["comm"] = json!(HOSTILE);
        victim["argv"] = json!({"value": [HOSTILE, HOSTILE]});
        victim["cgroup"] = json!({"value": HOSTILE});
    }
    for key in [
        "namespace",
        "name",
        "uid",
        "container",
        "containerId",
        "qos",
        "owner",
    ] {
        incident["workload"]["value"][key] = json!(HOSTILE);
    }
    for key in ["comm", "senderComm"] {
        incident["otherKills"][0][key] = json!(HOSTILE);
    }
    let root = &mut incident["forkRoot"]["value"];
    root["comm"] = json!(HOSTILE);
    root["argv"] = json!({"value": [HOSTILE, HOSTILE]});
    root["parent"]["value"]["comm"] = json!(HOSTILE);
    incident["trigger"]["value"]["comm"] = json!(HOSTILE);
    incident["trigger"]["value"]["kernelStack"] = json!({"value": [HOSTILE]});
    incident["limit"]["value"]["cgroup"] = json!(HOSTILE);
    incident["cgroups"]["value"][0]["path"] = json!(HOSTILE);
    incident["memoryStat"]["value"][HOSTILE] = json!(1);
    incident["topOfNode"]["value"][0]["comm"] = json!(HOSTILE);
    for key in [
        "namespace",
        "name",
        "cgroup",
        "qos",
        "preference",
        "preferenceBy",
        "refusal",
    ] {
        incident["workloads"]["value"]["lines"][0][key] = json!(HOSTILE);
    }
    for key in ["mode", "memoryPolicy", "pressureTransition"] {
        incident["configuration"]["value"][key] = json!(HOSTILE);
    }
    incident["configuration"]["value"]["thresholds"][0] = json!(HOSTILE);
    incident["configuration"]["value"]["parts"][0]["minReclaim"] = json!(HOSTILE);
    incident["recording"]["value"]["others"][0]["path"] = json!(HOSTILE);
    incident["course"]["end"] = json!(HOSTILE);
    incident["decision"] = json!({"value": {"why": [HOSTILE], HOSTILE: HOSTILE}});
    incident
}

/// As the agent reads and writes it.
pub(crate) fn typed(incident: &Value) -> Incident {
    serde_json::from_value(incident.clone()).unwrap()
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A minute in which a cgroup grows up to its limit of 256 MiB.
fn recording() -> Value {
    let node = |step: u64| {
        let grown = (step / 20).min(200) * MIB;
        json!({
            "beforeMs": 60_000 - step * 10, "available": 3300 * MIB - grown, "headroom": 3600 * MIB - grown,
            "anon": 4000 * MIB + grown, "file": 2600 * MIB, "stallUs": step * step / 50, "reclaims": step / 3, "forks": 1000 + step / 7,
        })
    };
    let cgroup = |step: u64| {
        let grown = (step * 136 / 600) * MIB;
        json!({"beforeMs": 60_000 - step * 100, "usage": 120 * MIB + grown, "workingSet": 110 * MIB + grown, "anon": 90 * MIB + grown, "file": 20 * MIB})
    };
    json!({
        "node": (0..=6000).map(node).collect::<Vec<_>>(),
        "cgroup": (0..=600).map(cgroup).collect::<Vec<_>>(),
        "others": [{"path": "/kubepods.slice/other", "points": (0..=600).map(cgroup).collect::<Vec<_>>()}],
    })
}
