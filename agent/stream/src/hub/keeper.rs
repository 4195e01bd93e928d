//! The thread that reserves numbers ahead, so that whoever tells never waits for a file.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::warn;

use super::{Numbers, Shared, State};

/// How long after a failure it is tried again, and looked whether another agent has let go of the file.
const AGAIN: Duration = Duration::from_secs(1);
/// It writes one short file; the memory of a whole ordinary stack would be locked.
const STACK: usize = 128 << 10;

pub(super) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("brink-numbers".to_owned())
        .stack_size(STACK)
        .spawn(move || keep(&shared))
}

fn keep(shared: &Shared) {
    let mut state = shared.lock();
    while !state.is_closed {
        state = reserve(shared, state);
    }
}

/// Reserves if it is time to, or waits until it is. The hub is not locked meanwhile.
fn reserve<'a>(shared: &'a Shared, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    let last = state.last;
    let due = state.numbers.as_ref().map(|reserved| &reserved.numbers);
    let Some(store) = due
        .filter(|numbers| numbers.is_low(last))
        .map(Numbers::store)
    else {
        let woken = shared.reserve.wait(state);
        return woken.unwrap_or_else(PoisonError::into_inner);
    };
    drop(state);
    let written = store.reserve_after(last);
    state = shared.lock();
    let Some(reserved) = &mut state.numbers else {
        return state;
    };
    match written {
        Ok(until) => {
            reserved.numbers.take_over(until);
            reserved.failed = None;
            if reserved.numbers.is_kept() {
                return state;
            }
        }
        Err(error) => {
            if reserved.failed.is_none() {
                warn!(%error, "numbers of events cannot be reserved; after a crash they may be given again");
            }
            reserved.failed = Some(error.to_string());
        }
    }
    if state.is_closed {
        return state;
    }
    let woken = shared.reserve.wait_timeout(state, AGAIN);
    woken.unwrap_or_else(PoisonError::into_inner).0
}
