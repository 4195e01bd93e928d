//! The kernel's own word on whose limit was hit: `oom_memcg=` in its log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::thread;
use std::time::Duration;

use brink_stream::model::incident::{Cause, Incident};

/// The kernel writes ten reports of OOMs in five seconds at most; after this it writes again.
const QUIET: Duration = Duration::from_secs(6);

/// The kernel's log from now on, where it may be read.
pub(crate) struct Log(Option<File>);

impl Log {
    pub(crate) fn from_now() -> Self {
        let mut options = File::options();
        options.read(true).custom_flags(nonblocking());
        let file = options.open("/dev/kmsg").ok();
        Self(file.and_then(|mut file| file.seek(SeekFrom::End(0)).is_ok().then_some(file)))
    }

    /// Compares whose limit an incident names with the kernel's own word. Every kernel that we serve has it; where others' kills
    /// have used up what it writes, somebody is killed once more by `again`.
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
        if let Some(logged) = self.limit_of(told.victims[0].pid) {
            assert_eq!(logged, word(told), "the kernel's own word: {told:#?}");
            return Ok(());
        }
        thread::sleep(QUIET);
        let told = again();
        let logged = self.limit_of(told.victims[0].pid);
        let logged = logged.unwrap_or_else(|| panic!("the kernel has no line on it: {told:#?}"));
        assert_eq!(logged, word(&told), "the kernel's own word: {told:#?}");
        Ok(())
    }

    /// `oom_memcg=` of the kill of a process, `global_oom` for the node's, if the log has its line: the kernel writes only so
    /// many in a time.
    fn limit_of(&mut self, pid: u32) -> Option<String> {
        let file = self.0.as_mut()?;
        let wanted = format!(",pid={pid},");
        let mut record = vec![0; 8192];
        loop {
            // One record a read; what was overwritten meanwhile is skipped, and the end is an error.
            let length = match file.read(&mut record) {
                Ok(length) => length,
                Err(error) if error.raw_os_error() == Some(EPIPE) => continue,
                Err(_) => return None,
            };
            let line = String::from_utf8_lossy(&record[..length]).into_owned();
            if line.contains(&wanted) {
                let limit = line.split(',').find_map(|word| match word {
                    "global_oom" => Some(word),
                    _ => word.strip_prefix("oom_memcg="),
                });
                return limit.map(str::to_owned);
            }
        }
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
