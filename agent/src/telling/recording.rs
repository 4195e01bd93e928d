//! The flight recorder's part in what is told: the minute before each incident, and limits that will soon be reached.

use std::sync::Arc;

use brink_core::base::Moment;
use brink_stream::model::data::LimitImminent;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Incident, Recording};
use brink_stream::model::kind::Kind;

use super::Telling;
use super::workloads::{Key, subject};
use crate::recorder::Recorder;
use crate::recorder::book::Wanted;
use crate::recorder::tracked::Warning;

impl Telling {
    /// Lets every incident have its minute before from this recorder, as long as that runs. Only the first one counts.
    pub fn record_with(&self, recorder: &Arc<Recorder>) {
        if let Some(inner) = self.inner() {
            let _only_one = inner.recorder.set(Ok(Arc::downgrade(recorder)));
        }
    }

    /// Has every incident say why it has no minute before: nothing can record it.
    pub fn record_nothing(&self, why: Missing) {
        if let Some(inner) = self.inner() {
            let _only_one = inner.recorder.set(Err(why));
        }
    }

    /// Tells that a cgroup will soon be at its limit.
    pub fn limit_imminent(&self, at: Moment, warning: &Warning) {
        let Some(inner) = self.inner() else {
            return;
        };
        let of = inner.workloads();
        let known = of.iter().flatten();
        let groups = known.flat_map(|(key, workload)| {
            let groups = workload.cgroups.iter();
            groups.map(move |group| (group.as_str(), key))
        });
        let subject = concerned(&warning.cgroup, groups).map(subject);
        drop(of);
        let data = LimitImminent {
            cgroup: warning.cgroup.to_string(),
            usage: warning.usage,
            limit: warning.limit,
            growth: warning.forecast.growth,
            time_to_limit_ms: warning.forecast.time_to_limit_ms,
        };
        self.say(Kind::LimitImminent, at, subject, &data);
    }

    /// Adds the minute before to an incident that has none yet, or why there is none. `group` is the id of the first victim's memory
    /// cgroup, where it is known.
    pub(super) fn record(&self, incident: &mut Incident, group: Option<u64>) {
        if incident.recording == Field::Missing(Missing::NotApplicable) {
            return;
        }
        if incident.recording.value().is_none()
            && let Some(recording) = self.recording(incident, group)
        {
            incident.recording = recording;
        }
    }

    fn recording(&self, incident: &Incident, group: Option<u64>) -> Option<Field<Recording>> {
        let recorder = match self.inner()?.recorder.get()? {
            Ok(recorder) => recorder.upgrade()?,
            Err(why) => return Some(Field::Missing(*why)),
        };
        let at = Moment::from_nanos(incident.at.monotonic_ns);
        let victim = incident.victims.first();
        let own = victim.and_then(|victim| victim.cgroup.value());
        let (path, id) = match own {
            Some(own) => (Some(own.clone()), group),
            None => (self.workloads_cgroup(incident), None),
        };
        let wanted = path.as_deref().map(|path| Wanted { path, id });
        Some(Field::Value(recorder.cut(at, wanted)))
    }

    /// The first cgroup of the victim's workload.
    fn workloads_cgroup(&self, incident: &Incident) -> Option<String> {
        let identity = incident.workload.value()?;
        let of = self.inner()?.workloads();
        let mut known = of.iter().flatten();
        let same = known.find(|((namespace, name, uid), _)| {
            (namespace, name, uid) == (&identity.namespace, &identity.name, &identity.uid)
        });
        same.and_then(|(_, workload)| workload.cgroups.first().cloned())
    }
}

/// Whose limit it is: the workload that the cgroup is, or is part of; or the only one that is part of it.
fn concerned<'a>(
    cgroup: &str,
    groups: impl Iterator<Item = (&'a str, &'a Key)>,
) -> Option<&'a Key> {
    let is_within = |inner: &str, outer: &str| {
        let below = inner.strip_prefix(outer);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    let mut inside = None;
    let mut several = false;
    for (group, key) in groups {
        if is_within(cgroup, group) {
            return Some(key);
        }
        if is_within(group, cgroup) {
            several |= inside.is_some_and(|known| known != key);
            inside = Some(key);
        }
    }
    inside.filter(|_| !several)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_concerns_whoever_it_belongs_to() {
        let key = |name: &str| ("ns".to_owned(), name.to_owned(), String::new());
        let (web, db, log) = (key("web"), key("db"), key("log"));
        let groups = [
            ("/pods/web", &web),
            ("/pods/db/a", &db),
            ("/pods/db/b", &db),
            ("/pods/db2", &log),
        ];
        let check = |cgroup: &str, expected: Option<&Key>| {
            assert_eq!(concerned(cgroup, groups.into_iter()), expected, "{cgroup}");
        };
        check("/pods/web", Some(&web));
        check("/pods/web/main", Some(&web));
        check("/pods/db", Some(&db));
        check("/pods/db2", Some(&log));
        check("/pods", None);
        check("/other", None);
    }
}
