//! A group of a test's own, bounded, in whatever cgroup layout the machine has, gone when the test is.

use std::path::Path;

use brink_host::HostError;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{CgroupDir, Controller, Layout};

/// The machine's layout and a group of our own in it, named so that `cargo xtask test` finds it if the test dies.
#[derive(Debug)]
pub struct Sandbox {
    /// Where the controllers are.
    pub layout: Layout,
    /// The group, in the hierarchy of each controller and in the v2 tree.
    pub group: OwnedCgroup,
}

impl Sandbox {
    /// Makes a group for these controllers, bounded to so many bytes if it has the memory controller.
    ///
    /// # Errors
    /// [`HostError`] when the machine has not got the controllers, or we have not got the right.
    pub fn new(controllers: &[Controller], bytes: u64) -> Result<Self, HostError> {
        let layout = Layout::detect(Path::new("/"))?;
        let group = OwnedCgroup::create(&layout, "test", controllers)?;
        if controllers.contains(&Controller::Memory) {
            group.limit_memory(&layout, bytes)?;
        }
        Ok(Self { layout, group })
    }

    /// The group in the hierarchy of a controller.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] when it was not made for it.
    pub fn dir(&self, controller: Controller) -> Result<&CgroupDir, HostError> {
        self.group
            .dir(&self.layout, controller)
            .ok_or_else(|| HostError::Unsupported {
                what: "the group",
                why: format!("not made for {controller}"),
            })
    }
}
