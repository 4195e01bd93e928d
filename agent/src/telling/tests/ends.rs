//! How the incidents of our own orders end: who else killed, and what was not seen.

use brink_stream::model::incident::{MOST_OTHER_KILLS, OtherKill};

use super::*;

/// The record of an order has who else killed meanwhile, and says so by the sender.
#[test]
fn who_else_killed_while_an_order_was_open_is_in_its_evidence() {
    let (telling, mut reader) = telling();
    telling.ordered(&decided(5, "enforcing"), None);
    telling.tell_waiting();
    let most = u32::try_from(MOST_OTHER_KILLS).unwrap();
    for pid in 0..most + 2 {
        let kill = OtherKill {
            at: Time::new(0, 7),
            pid,
            comm: "web".to_owned(),
            sender_pid: if pid == 1 { 78 } else { 77 },
            sender_comm: "sh".to_owned(),
            signal_code: 0,
        };
        telling.amend(|_| true, |incident| incident.killed_by_other(kill));
    }
    telling.completed(&over(decided(5, "enforcing"), "gone"), None);
    let told = events(&mut reader);
    assert!(!told[0].data.get().contains("otherKills"), "nobody had");
    let closed = incident(&told[1]);
    assert_eq!(closed.other_kills.len(), MOST_OTHER_KILLS);
    assert_eq!(closed.more_other_kills, Some(2));
    let expected = [
        "somebody else killed as well: process 77 (sh) sent SIGKILL to 15 processes, process 0 (web) first",
        "somebody else killed as well: process 78 (sh) sent SIGKILL to 1 process, process 1 (web) first",
        "somebody else killed as well: 2 more processes, which found no room here",
    ];
    assert_eq!(closed.evidence[2..], expected);
}
