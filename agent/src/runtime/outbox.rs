//! Commands that must reach the guard: kept in their order until its queue has room for them.

use std::collections::VecDeque;

use crate::guard::ports::{Command, Port};

/// What is still to be sent. Never more than a few: whoever puts a newer one in takes the older one out first.
#[derive(Default)]
pub(super) struct Outbox(VecDeque<Command>);

impl Outbox {
    /// Adds one behind the others.
    pub(super) fn put(&mut self, command: Command) {
        self.0.push_back(command);
    }

    /// Puts one in the place of all that wait.
    pub(super) fn replace(&mut self, command: Command) {
        self.0.clear();
        self.put(command);
    }

    /// Whether everything has been sent.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends what the queue has room for; false if something stays here.
    pub(super) fn send(&mut self, commands: &Port<Command>) -> bool {
        while let Some(command) = self.0.pop_front() {
            if let Err(refused) = commands.send(command) {
                self.0.push_front(refused);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::input::Control;

    use super::*;
    use crate::guard::ports::Ports;

    #[test]
    fn what_is_refused_is_sent_later_and_in_order() {
        let ports = Ports::new(4, 1).unwrap();
        let mut others = 0;
        while ports.commands.send(Command::Inquire).is_ok() {
            others += 1;
        }
        let mut outbox = Outbox::default();
        outbox.put(Command::NoSampler("first".to_owned()));
        outbox.put(Command::Control(Control::Standby(false)));
        assert!(!outbox.send(&ports.commands));
        // Room for one: the other one stays.
        assert!(matches!(ports.commands.take(), Some(Command::Inquire)));
        assert!(!outbox.send(&ports.commands) && !outbox.is_empty());
        for _ in 1..others {
            assert!(matches!(ports.commands.take(), Some(Command::Inquire)));
        }
        assert!(outbox.send(&ports.commands) && outbox.is_empty());
        assert!(matches!(ports.commands.take(), Some(Command::NoSampler(why)) if why == "first"));
        let last = ports.commands.take();
        assert!(matches!(
            last,
            Some(Command::Control(Control::Standby(false)))
        ));
        assert!(ports.commands.take().is_none());
    }

    #[test]
    fn the_newest_takes_the_place_of_those_before() {
        let ports = Ports::new(4, 1).unwrap();
        let mut outbox = Outbox::default();
        outbox.put(Command::Inquire);
        outbox.replace(Command::Stop);
        assert!(outbox.send(&ports.commands));
        assert!(matches!(ports.commands.take(), Some(Command::Stop)));
        assert!(ports.commands.take().is_none());
    }
}
