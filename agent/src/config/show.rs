//! Showing a configuration in force, and where each value comes from.

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::document::{Node, Value, path_to, to_yaml};
use super::load::Checked;
use super::margin::Raised;

/// A configuration in force with the place of every value, as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Shown<'a> {
    /// The configuration, as it could be written into a file.
    pub config: &'a Node,
    /// For each value, by its path, where it comes from.
    pub origins: Map<String, Json>,
    /// The kubelet's thresholds that were raised.
    pub raised: Vec<ShownRaised>,
}

/// One raised threshold.
#[derive(Clone, Debug, Serialize)]
pub struct ShownRaised {
    /// Its path.
    pub path: String,
    /// The kubelet's value.
    pub kubelet: String,
    /// Ours.
    pub ours: String,
}

impl Checked {
    /// As YAML that could be a file; with `origin`, where each value comes from in comments.
    /// Raised thresholds have both values there in any case.
    pub fn to_yaml(&self, origin: bool) -> String {
        to_yaml(&self.tree, &|node| self.remark(node, origin))
    }

    /// As JSON with origins.
    pub fn to_json_with_origins(&self) -> Shown<'_> {
        let mut origins = Map::new();
        leaves(&self.tree, &mut |node| {
            let place = Json::String(self.origins.describe(node.site));
            origins.insert(path_to(&self.tree, node), place);
        });
        let raised = self.config.raised.iter().map(|raised| ShownRaised {
            path: format!("{}.{}", raised.key, raised.signal),
            kubelet: raised.kubelet.clone(),
            ours: raised.ours.clone(),
        });
        Shown {
            config: &self.tree,
            origins,
            raised: raised.collect(),
        }
    }

    fn remark(&self, node: &Node, origin: bool) -> Option<String> {
        if matches!(&node.value, Value::Map(entries) if !entries.is_empty())
            || matches!(&node.value, Value::List(items) if !items.is_empty())
        {
            return None;
        }
        let place = origin.then(|| self.origins.describe(node.site));
        match (self.raised(node), place) {
            (Some(raised), place) => {
                let margin = format!("the kubelet's {}, raised", raised.kubelet);
                Some(place.map_or(margin.clone(), |place| format!("{margin}; {place}")))
            }
            (None, place) => place,
        }
    }

    fn raised(&self, node: &Node) -> Option<&Raised> {
        let mut all = self.config.raised.iter();
        all.find(|raised| {
            let map = self.tree.get(raised.key);
            let shown = map.and_then(|map| map.get(&raised.signal));
            shown.is_some_and(|shown| std::ptr::eq(shown, node))
        })
    }
}

fn leaves<'a>(node: &'a Node, see: &mut impl FnMut(&'a Node)) {
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            for entry in entries {
                leaves(&entry.node, see);
            }
        }
        Value::List(items) if !items.is_empty() => {
            for item in items {
                leaves(item, see);
            }
        }
        _ => see(node),
    }
}
