//! How the kernel of a guest is booted: with all it has, or without something, for the few tests that are about that.
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How a kernel is booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Boot {
    /// with everything it has
    Whole,
    /// without the memory controller and pressure information
    Bare,
    /// without pressure information alone
    NoPsi,
}

impl Boot {
    /// All of them, in the order in which each kernel is booted: what has few tests first, for the others take all the time there is.
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::NoPsi, Self::Whole];

    /// What the kernel is told.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Bare => "psi=0 cgroup_disable=memory",
            Self::NoPsi => "psi=0",
        }
    }

    /// As an option of the guest's first process, and in the names of folders and suites; empty for the ordinary one.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Bare => "bare",
            Self::NoPsi => "no-psi",
        }
    }

    /// A name with that of the boot before it, if it is not the ordinary one.
    pub(super) fn before(self, name: &str) -> String {
        format!("{} {name}", self.name()).trim_start().to_owned()
    }

    /// The same behind it.
    pub(super) fn behind(self, name: &str) -> String {
        format!("{name} {}", self.name()).trim_end().to_owned()
    }

    /// The boot of a test, by the module that it is in.
    pub(super) fn of_test(name: &str) -> Self {
        match name.split_once("::") {
            Some(("bare", _)) => Self::Bare,
            Some(("no_psi", _)) => Self::NoPsi,
            _ => Self::Whole,
        }
    }
}

/// One of something for each boot, in the order of [`Boot::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ByBoot<T>([T; Boot::ALL.len()]);

impl<T> ByBoot<T> {
    pub(super) fn new(of: impl FnMut(Boot) -> T) -> Self {
        Self(Boot::ALL.map(of))
    }

    pub(super) fn of(&self, boot: Boot) -> &T {
        let [bare, no_psi, whole] = &self.0;
        match boot {
            Boot::Whole => whole,
            Boot::Bare => bare,
            Boot::NoPsi => no_psi,
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Boot, &T)> {
        Boot::ALL.into_iter().zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ordinary guest takes whatever time there is: behind it nothing would ever be booted.
    #[test]
    fn the_guests_with_few_tests_come_first() {
        let names = ByBoot::new(Boot::name);
        let order: Vec<(Boot, &str)> = names.iter().map(|(boot, name)| (boot, *name)).collect();
        let expected = [
            (Boot::Bare, "bare"),
            (Boot::NoPsi, "no-psi"),
            (Boot::Whole, ""),
        ];
        assert_eq!(order, expected);
        for boot in Boot::ALL {
            assert_eq!(*names.of(boot), boot.name());
        }
    }
}
