//! The runner of live tests ends what does not end and finds what is left behind.
use std::{
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use xtask::test::process::{Ended, adopt_orphans, run};

/// What is left over is taken to be the command's, so the commands here run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run_script(script: &str, deadline: Duration) -> anyhow::Result<Ended> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    adopt_orphans()?;
    run(Command::new("sh").args(["-c", script]), deadline)
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn both_streams_and_the_status_are_kept() -> anyhow::Result<()> {
    let ended = run_script("echo out; echo err >&2; exit 3", LONG)?;
    let mut lines: Vec<&str> = ended.output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
    assert!(ended.left.is_empty());
    Ok(())
}

#[test]
fn the_deadline_ends_the_command_and_what_it_started() -> anyhow::Result<()> {
    let ended = run_script("sleep 61 & echo $!; sleep 62", Duration::from_millis(300))?;
    assert!(
        ended.status.is_none() && ended.elapsed < Duration::from_secs(30),
        "{ended:?}"
    );
    let pid = ended.output.trim();
    assert!(
        !pid.is_empty() && !std::path::Path::new("/proc").join(pid).exists(),
        "{ended:?}"
    );
    assert!(
        ended
            .fault()
            .is_some_and(|fault| fault.contains("deadline"))
    );
    Ok(())
}

#[test]
fn an_orphan_in_a_session_of_its_own_is_found_and_killed() -> anyhow::Result<()> {
    let ended = run_script("setsid sleep 63 & exit 0", LONG)?;
    assert!(ended.status.is_some_and(|status| status.success()));
    assert_eq!(ended.left.len(), 1, "{ended:?}");
    assert!(ended.left[0].ends_with("(sleep)"), "{ended:?}");
    assert!(
        ended
            .fault()
            .is_some_and(|fault| fault.contains("left processes behind"))
    );
    Ok(())
}

#[test]
fn a_child_that_follows_in_time_is_not_left_behind() -> anyhow::Result<()> {
    let ended = run_script("sleep 0.1 & exit 0", LONG)?;
    assert!(ended.fault().is_none(), "{ended:?}");
    Ok(())
}
