//! Pages of other parts: a path and who answers there.

use std::sync::Arc;

use super::{Reply, Request};

/// Answers a request at once: it runs where all others are served, and must not block.
pub type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// Paths and who answers there.
#[derive(Clone, Default)]
pub struct Routes {
    list: Vec<(&'static str, Handler)>,
}

impl Routes {
    /// Answers at `path`; with `/*` at its end, at every path below it, which the handler finds in the request. What was added
    /// first comes first.
    pub fn add(&mut self, path: &'static str, handler: Handler) {
        self.list.push((path, handler));
    }

    /// Every path, in the order in which they were added.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        self.list.iter().map(|(path, _)| *path)
    }

    pub(super) fn find(&self, path: &str) -> Option<&Handler> {
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => path.len() > start.len() && path.starts_with(start),
            None => path == pattern,
        };
        let found = self.list.iter().find(|(pattern, _)| fits(pattern));
        found.map(|(_, handler)| handler)
    }
}
