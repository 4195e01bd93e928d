//! The kernel's own word on whose limit was hit, and by what allocation: `oom_memcg=`, `gfp_mask=` and `order=` in its log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::thread;
use std::time::Duration;

use brink_stream::model::incident::{Cause, Incident};

/// The kernel writes ten reports of OOMs in five seconds at most; after this it writes again.
const QUIET: Duration = Duration::from_secs(6);

/// What the kernel has written of a kill.
#[derive(Debug)]
struct Report {
    /// `oom_memcg=`, `global_oom` for the node's.
    limit: String,
    /// `gfp_mask=` and `order=` of the line before.
    asked: Option<(String, i32)>,
}

/// The kernel's log from now on, where it may be read.
pub(crate) struct Log(Option<File>);

impl Log {
    pub(crate) fn from_now() -> Self {
        let mut options = File::options();
        options.read(true).custom_flags(nonblocking());
        let file = options.open("/dev/kmsg").ok();
        Self(file.and_then(|mut file| file.seek(SeekFrom::End(0)).is_ok().then_some(file)))
    }

    /// Compares whose limit and which allocation an incident names with the kernel's own word. Every kernel that we serve has it;
    /// where others' kills have used up what it writes, somebody is killed once more by `again`.
    ///
    /// # Errors
    /// When the log may not be read.
    pub(crate) fn agrees(
        &mut self,
        told: &Incident,
        again: impl FnOnce() -> Incident,
    ) -> Result<(), String> {
        if self.0.is_none() {
            return Err("/dev/kmsg may not be read".to_owned());
        }
        if let Some(logged) = self.report_of(told.victims[0].pid) {
            compare(&logged, told);
            return Ok(());
        }
        thread::sleep(QUIET);
        let told = again();
        let logged = self.report_of(told.victims[0].pid);
        let logged = logged.unwrap_or_else(|| panic!("the kernel has no line on it: {told:#?}"));
        compare(&logged, &told);
        Ok(())
    }

    /// What is written of the kill of a process, if it is: the kernel writes only so many in a time.
    fn report_of(&mut self, pid: u32) -> Option<Report> {
        let file = self.0.as_mut()?;
        let wanted = format!(",pid={pid},");
        let mut asked = None;
        let mut record = vec![0; 8192];
        loop {
            // One record a read; what was overwritten meanwhile is skipped, and the end is an error.
            let length = match file.read(&mut record) {
                Ok(length) => length,
                Err(error) if error.raw_os_error() == Some(EPIPE) => continue,
                Err(_) => return None,
            };
            let line = String::from_utf8_lossy(&record[..length]).into_owned();
            asked = allocation(&line).or(asked);
            if line.contains(&wanted) {
                let limit = line.split(',').find_map(|word| match word {
                    "global_oom" => Some(word),
                    _ => word.strip_prefix("oom_memcg="),
                });
                return limit.map(|limit| Report {
                    limit: limit.to_owned(),
                    asked,
                });
            }
        }
    }
}

/// What was asked for, from `… invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0`.
fn allocation(line: &str) -> Option<(String, i32)> {
    let (_, rest) = line.split_once(" invoked oom-killer: gfp_mask=")?;
    let (gfp, rest) = rest.split_once('(')?;
    let (_, rest) = rest.split_once(", order=")?;
    let order = rest.split(',').next()?.parse().ok()?;
    Some((gfp.to_owned(), order))
}

#[track_caller]
fn compare(logged: &Report, told: &Incident) {
    assert_eq!(logged.limit, word(told), "the kernel's own word: {told:#?}");
    // Where no program tells of the decision, nobody knows what was asked for.
    let trigger = told.trigger.value();
    let asked = trigger.and_then(|trigger| trigger.gfp.value().zip(trigger.order.value()));
    if let Some((gfp, order)) = asked {
        let asked = Some((gfp.clone(), *order));
        assert_eq!(logged.asked, asked, "the kernel's own word: {told:#?}");
    }
}

const EPIPE: i32 = 32;

const fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

/// What the kernel writes of such an incident.
fn word(told: &Incident) -> &str {
    match (told.cause, told.limit.value()) {
        (Cause::GlobalOom, _) => "global_oom",
        (_, Some(limit)) => &limit.cgroup,
        (_, None) => panic!("no limit is told: {told:#?}"),
    }
}
