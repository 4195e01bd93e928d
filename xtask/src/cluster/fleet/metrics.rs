//! What an API server says of itself on its page of metrics.
use std::{collections::BTreeMap, time::Instant};

/// Whose requests are those of the fleet alone: the flow of service accounts that are no controllers'.
const FLOW: &str = "service-accounts";
/// What the fleet asks for.
const RESOURCES: [&str; 3] = ["pods", "nodes", "events"];

/// One look at it.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Instant,
    /// Requests to the resources of a fleet, by everybody: `PATCH nodes/status 200`. Watches are counted when they end.
    pub(super) requests: BTreeMap<String, f64>,
    /// Requests of service accounts that were taken up, but for watches; none where the server does not tell flows apart.
    pub(super) dispatched: Option<f64>,
    /// Those that were refused because there were too many.
    pub(super) rejected: Option<f64>,
    /// Watches that are open, of pods and of nodes, everybody's.
    pub(super) watches: [f64; 2],
    /// Memory of the server, in bytes.
    pub(super) resident: Option<f64>,
    /// Its time on processors, in seconds.
    pub(super) processor: Option<f64>,
    /// Its descriptors, and how many it may have.
    pub(super) files: [Option<f64>; 2],
}

impl Sample {
    /// Out of the page.
    pub(super) fn of(page: &str) -> Self {
        let mut sample = Self {
            at: Instant::now(),
            requests: BTreeMap::new(),
            dispatched: None,
            rejected: None,
            watches: [0.0; 2],
            resident: None,
            processor: None,
            files: [None; 2],
        };
        page.lines()
            .filter_map(Line::of)
            .for_each(|line| sample.take(&line));
        sample
    }

    fn take(&mut self, line: &Line<'_>) {
        let value = line.value;
        let add = |sum: &mut Option<f64>| *sum = Some(sum.unwrap_or_default() + value);
        match line.name {
            "apiserver_request_total" if RESOURCES.contains(&line.label("resource")) => {
                let below = line.label("subresource");
                let slash = if below.is_empty() { "" } else { "/" };
                let key = format!(
                    "{} {}{slash}{below} {}",
                    line.label("verb"),
                    line.label("resource"),
                    line.label("code")
                );
                *self.requests.entry(key).or_default() += value;
            }
            "apiserver_flowcontrol_dispatched_requests_total" if line.is_of_fleet() => {
                add(&mut self.dispatched);
            }
            "apiserver_flowcontrol_rejected_requests_total" if line.is_of_fleet() => {
                add(&mut self.rejected);
            }
            // The newer name, and that of before 1.23. A watch of one object, by its name, goes as a GET of it.
            "apiserver_longrunning_requests" | "apiserver_longrunning_gauge"
                if ["WATCH", "GET"].contains(&line.label("verb"))
                    && line.label("subresource").is_empty() =>
            {
                match line.label("resource") {
                    "pods" => self.watches[0] += value,
                    "nodes" => self.watches[1] += value,
                    _ => {}
                }
            }
            "process_resident_memory_bytes" => self.resident = Some(value),
            "process_cpu_seconds_total" => self.processor = Some(value),
            "process_open_fds" => self.files[0] = Some(value),
            "process_max_fds" => self.files[1] = Some(value),
            _ => {}
        }
    }
}

/// A line of the page: `name{label="value",…} number`.
struct Line<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Self> {
        // There are tens of thousands of others.
        let is_ours = [
            "apiserver_request_total",
            "apiserver_flow",
            "apiserver_longr",
            "process_",
        ];
        if !is_ours.iter().any(|begin| line.starts_with(begin)) {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}')?),
            None => (series, ""),
        };
        // None of the values that are looked at has a comma or a quotation mark in it.
        let labels = labels.split(',').filter_map(|label| {
            let (name, value) = label.split_once('=')?;
            Some((name, value.trim_matches('"')))
        });
        Some(Self {
            name,
            labels: labels.collect(),
            value: value.parse().ok()?,
        })
    }

    fn label(&self, name: &str) -> &'a str {
        let found = self.labels.iter().find(|(own, _)| *own == name);
        found.map_or("", |(_, value)| value)
    }

    fn is_of_fleet(&self) -> bool {
        [self.label("flowSchema"), self.label("flow_schema")].contains(&FLOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 1.20 has them, and a newer one.
    const PAGE: &str = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",contentType="application/json",dry_run="",group="",resource="nodes",scope="cluster",subresource="status",verb="PATCH",version="v1"} 7
apiserver_request_total{code="200",component="apiserver",contentType="",dry_run="",group="",resource="nodes",scope="cluster",subresource="status",verb="PATCH",version="v1"} 2
apiserver_request_total{code="200",resource="leases",subresource="",verb="GET"} 9
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 1e+03
apiserver_flowcontrol_dispatched_requests_total{flowSchema="service-accounts",priorityLevel="workload-low"} 12
apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts",priority_level="workload-low"} 3
apiserver_flowcontrol_dispatched_requests_total{flowSchema="exempt",priorityLevel="exempt"} 99
apiserver_flowcontrol_rejected_requests_total{flowSchema="service-accounts",priorityLevel="workload-low",reason="queue-full"} 4
apiserver_longrunning_gauge{component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 1003
apiserver_longrunning_gauge{resource="pods",scope="namespace",verb="WATCH"} 1
apiserver_longrunning_gauge{resource="pods",scope="namespace",subresource="log",verb="GET"} 6
apiserver_longrunning_requests{resource="nodes",scope="cluster",verb="WATCH"} 2
apiserver_longrunning_requests{resource="nodes",scope="resource",subresource="",verb="GET"} 1000
apiserver_longrunning_requests{resource="nodes",scope="cluster",verb="CONNECT"} 5
process_resident_memory_bytes 3.5e+08
process_cpu_seconds_total 12.25
process_open_fds 40
process_max_fds 20000
"#;

    #[test]
    fn the_figures_of_a_fleet_are_read_whatever_the_servers_age() {
        let sample = Sample::of(PAGE);
        let requests: Vec<_> = sample
            .requests
            .iter()
            .map(|(key, n)| (key.as_str(), *n))
            .collect();
        assert_eq!(
            requests,
            [("PATCH nodes/status 200", 9.0), ("POST events 201", 1000.0)]
        );
        assert_eq!(
            (sample.dispatched, sample.rejected),
            (Some(15.0), Some(4.0))
        );
        assert_eq!(
            sample.watches.map(|open| open.to_string()),
            ["1004", "1002"]
        );
        assert_eq!(
            (sample.resident, sample.processor, sample.files),
            (Some(3.5e8), Some(12.25), [Some(40.0), Some(20_000.0)])
        );
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let sample = Sample::of("process_cpu_seconds_total many\napiserver_request_total{\n");
        assert_eq!((sample.processor, sample.dispatched), (None, None));
        assert!(sample.requests.is_empty());
    }
}
