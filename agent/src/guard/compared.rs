//! What the kernel's programs compare with a limit on tasks: whose tasks, and which limit, as far as they were told.

/// The counter of a cgroup: the cgroup's id, and the number of its file.
pub(super) type Counter = (u64, u64);

/// What the programs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To count the tasks of the counter that the change is for.
    Counter,
    /// To tell when there are more than so many; none, or zero, for never.
    Limit(Option<u32>),
}

/// What they compare.
#[derive(Debug)]
pub(super) struct Compared {
    /// The counter; none for the machine's threads.
    counter: Option<Counter>,
    /// Whether what is compared is what the node has.
    is_node: bool,
    /// The limit, zero for none; none where it is not known.
    limit: Option<u32>,
}

impl Compared {
    /// Programs that were told nothing yet compare the machine's threads.
    pub(super) const fn new() -> Self {
        Self {
            counter: None,
            is_node: true,
            limit: None,
        }
    }

    /// Whether what is compared is what the node has.
    pub(super) const fn is_node(&self) -> bool {
        self.is_node
    }

    /// Has the tasks of this counter compared, or the machine's threads. The limit that stands was for what was compared before,
    /// and goes first. A refusal leaves the machine's threads, which are not what this node has: it is tried again each time.
    pub(super) fn count(&mut self, counter: Option<Counter>, mut tell: impl FnMut(Told) -> bool) {
        if self.is_node && counter == self.counter {
            return;
        }
        self.limit = tell(Told::Limit(None)).then_some(0);
        self.is_node = tell(Told::Counter);
        self.counter = counter.filter(|_| self.is_node);
    }

    /// Has this limit compared. Told again for the same it would come again.
    pub(super) fn limit(&mut self, limit: Option<u32>, tell: impl FnOnce(Option<u32>) -> bool) {
        let limit = limit.filter(|_| self.is_node).unwrap_or(0);
        if self.limit != Some(limit) {
            self.limit = tell(Some(limit)).then_some(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Option<Counter> = Some((7, 70));

    /// What the programs have, which obey or not.
    struct Programs {
        compared: Compared,
        told: Vec<Told>,
        obeys: bool,
    }

    impl Programs {
        fn new() -> Self {
            Self {
                compared: Compared::new(),
                told: Vec::new(),
                obeys: true,
            }
        }

        fn count(&mut self, counter: Option<Counter>) -> Vec<Told> {
            let Self {
                compared,
                told,
                obeys,
            } = self;
            compared.count(counter, |what| {
                told.push(what);
                *obeys || what != Told::Counter
            });
            std::mem::take(told)
        }

        fn limit(&mut self, limit: u32) -> Vec<Told> {
            let Self { compared, told, .. } = self;
            compared.limit(Some(limit), |limit| {
                told.push(Told::Limit(limit));
                true
            });
            std::mem::take(told)
        }
    }

    #[test]
    fn a_limit_is_told_once_and_anew_for_another_counter() {
        let mut programs = Programs::new();
        assert_eq!(programs.count(None), [], "as it was loaded");
        assert_eq!(programs.limit(40), [Told::Limit(Some(40))]);
        assert_eq!(programs.limit(40), []);
        let change = [Told::Limit(None), Told::Counter];
        assert_eq!(programs.count(GROUP), change);
        assert_eq!(programs.count(GROUP), []);
        assert_eq!(programs.limit(40), [Told::Limit(Some(40))]);
        assert_eq!(programs.count(Some((7, 71))), change, "off and on again");
    }

    #[test]
    fn where_a_counter_is_refused_no_limit_of_before_is_compared_with_the_machines_threads() {
        let mut programs = Programs::new();
        programs.count(GROUP);
        programs.limit(40);
        programs.obeys = false;
        let refused = [Told::Limit(None), Told::Counter];
        assert_eq!(programs.count(Some((7, 71))), refused);
        assert!(!programs.compared.is_node());
        assert_eq!(programs.limit(40), []);
        programs.obeys = true;
        assert_eq!(programs.count(Some((7, 71))), refused, "tried again");
        assert!(programs.compared.is_node());
        assert_eq!(programs.limit(40), [Told::Limit(Some(40))]);
    }
}
