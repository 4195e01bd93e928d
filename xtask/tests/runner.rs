//! The runner of live tests ends what does not end and finds what is left behind.
use std::{
    env,
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use brink_tests::skip;
use xtask::{
    process::{Ended, adopt_orphans, run},
    test::libtest,
};

/// What is left over is taken to be the command's, so the commands here run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Set for the samples below when the runner's own tests start them.
const SAMPLE: &str = "BRINK_RUN_SAMPLE";

fn run_alone(command: &mut Command, deadline: Duration) -> anyhow::Result<Ended> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    adopt_orphans()?;
    run(command, deadline)
}

fn run_script(script: &str, deadline: Duration) -> anyhow::Result<Ended> {
    run_alone(Command::new("sh").args(["-c", script]), deadline)
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
            .is_some_and(|fault| fault.contains("left behind"))
    );
    Ok(())
}

#[test]
fn a_child_that_follows_in_time_is_not_left_behind() -> anyhow::Result<()> {
    let ended = run_script("sleep 0.1 & exit 0", LONG)?;
    assert!(ended.fault().is_none(), "{ended:?}");
    Ok(())
}

/// Whoever waits for process ids would wait for ever.
#[test]
fn orphans_that_end_are_reaped_at_once() -> anyhow::Result<()> {
    let script = "pid=$(sh -c 'sleep 0.1 > /dev/null & echo $!')
        until [ ! -e /proc/$pid ]; do sleep 0.01; done";
    let ended = run_script(script, LONG)?;
    assert!(ended.fault().is_none(), "{ended:?}");
    Ok(())
}

#[test]
fn a_test_that_skips_itself_is_read_as_skipped() -> anyhow::Result<()> {
    for sample in ["samples::skips", "samples::skips_with_result"] {
        let mut command = Command::new(env::current_exe()?);
        command.env(SAMPLE, "1").args(["--exact", sample]);
        let ended = run_alone(&mut command, LONG)?;
        let outcome = libtest::read(&ended.output).unwrap_or_default();
        assert_eq!((outcome.passed, outcome.failed), (0, 0), "{ended:?}");
        let skip = outcome
            .skipped
            .first()
            .map(|skip| (skip.test.as_str(), skip.reason.as_str()));
        assert_eq!(skip, Some((sample, "needs a sample of 1")));
    }
    Ok(())
}

/// Tests to be run by the test above; by themselves they have nothing to do.
mod samples {
    use super::*;

    #[test]
    fn skips() {
        if env::var_os(SAMPLE).is_some() {
            skip!("needs a sample of {}", 1);
        }
    }

    #[test]
    fn skips_with_result() -> Result<(), String> {
        if env::var_os(SAMPLE).is_some() {
            skip!("needs a sample of {}", 1);
        }
        Ok(())
    }
}
