//! The published schemas, and a check that an output keeps to them: the words of JSON Schema that ours use, and no others.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One schema, with what it refers to in the folder it is from.
#[derive(Debug)]
pub struct Schema {
    folder: PathBuf,
    root: Value,
}

impl Schema {
    /// The published schema of that name: `status` is `docs/schemas/status.schema.json`, and `events/event` lies in a folder of
    /// its own.
    ///
    /// # Panics
    /// When there is none, or it is no JSON.
    #[expect(
        clippy::panic,
        reason = "a test stops where its schema is not as it must be"
    )]
    pub fn published(name: &str) -> Self {
        // Of this file's own package, whichever includes it: both are one level below the top, or two.
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folders = package.ancestors().map(|above| above.join("docs/schemas"));
        let folder = folders.into_iter().find(|folder| folder.is_dir());
        let folder =
            folder.unwrap_or_else(|| panic!("no docs/schemas above {}", package.display()));
        Self::read(folder, &format!("{name}.schema.json"))
    }

    #[expect(
        clippy::panic,
        reason = "a test stops where its schema is not as it must be"
    )]
    fn read(folder: PathBuf, file: &str) -> Self {
        let path = folder.join(file);
        let root = fs::read_to_string(&path)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        let root = root.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // What it refers to lies beside it.
        let folder = path.parent().map_or(folder, Path::to_path_buf);
        Self { folder, root }
    }

    /// Where a value does not keep to it, and in which word; empty if it does.
    pub fn violations(&self, value: &Value) -> Vec<String> {
        self.of(&self.root, value, "")
    }

    fn of(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let words = schema.as_object().into_iter().flatten();
        words
            .flat_map(|(word, wanted)| self.word(schema, word, wanted, value, at))
            .collect()
    }

    #[expect(
        clippy::panic,
        reason = "a test stops where its schema is not as it must be"
    )]
    fn word(
        &self,
        schema: &Value,
        word: &str,
        wanted: &Value,
        value: &Value,
        at: &str,
    ) -> Vec<String> {
        let keeping = |one: &&Value| self.of(one, value, at).is_empty();
        let holds = match word {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => return self.referred(wanted, value, at),
            "properties" => return self.properties(wanted, value, at),
            "items" => return self.items(wanted, value, at),
            "additionalProperties" if wanted.is_object() => {
                return self.others(schema, wanted, value, at);
            }
            "type" => list(wanted).any(|name| is_of(name, value)),
            "const" => value == wanted,
            "enum" => list(wanted).any(|one| one == value),
            "anyOf" => list(wanted).any(|one| keeping(&one)),
            "oneOf" => return self.one_of(wanted, value, at),
            "required" => list(wanted).all(|key| value.get(key.as_str().unwrap_or("")).is_some()),
            "additionalProperties" if wanted == false => value.as_object().is_none_or(|map| {
                map.keys()
                    .all(|key| schema["properties"].get(key).is_some())
            }),
            other => panic!("{other} is no word of ours"),
        };
        if holds {
            return Vec::new();
        }
        let mut shown = value.to_string();
        shown.truncate(200);
        vec![format!("{at}: {word}: {shown}")]
    }

    #[expect(
        clippy::panic,
        reason = "a test stops where its schema is not as it must be"
    )]
    fn referred(&self, target: &Value, value: &Value, at: &str) -> Vec<String> {
        let target = target.as_str().unwrap_or("");
        let (file, pointer) = target.split_once('#').unwrap_or((target, ""));
        let other = (!file.is_empty()).then(|| Self::read(self.folder.clone(), file));
        let within = other.as_ref().unwrap_or(self);
        let found = within.root.pointer(pointer);
        let found = found.unwrap_or_else(|| panic!("{target} leads nowhere"));
        within.of(found, value, at)
    }

    fn properties(&self, known: &Value, value: &Value, at: &str) -> Vec<String> {
        let known = known.as_object().into_iter().flatten();
        let present = known.filter_map(|(key, schema)| Some((key, schema, value.get(key)?)));
        present
            .flat_map(|(key, schema, inner)| self.of(schema, inner, &format!("{at}.{key}")))
            .collect()
    }

    /// Whatever is not named in `properties`.
    fn others(&self, schema: &Value, wanted: &Value, value: &Value, at: &str) -> Vec<String> {
        let pairs = value.as_object().into_iter().flatten();
        let others = pairs.filter(|(key, _)| schema["properties"].get(key).is_none());
        others
            .flat_map(|(key, inner)| self.of(wanted, inner, &format!("{at}.{key}")))
            .collect()
    }

    fn items(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let items = value.as_array().into_iter().flatten().enumerate();
        items
            .flat_map(|(index, item)| self.of(schema, item, &format!("{at}[{index}]")))
            .collect()
    }

    /// Exactly one: otherwise what is wrong with the one that comes nearest.
    fn one_of(&self, all: &Value, value: &Value, at: &str) -> Vec<String> {
        let tries: Vec<Vec<String>> = list(all).map(|one| self.of(one, value, at)).collect();
        match tries.iter().filter(|tried| tried.is_empty()).count() {
            1 => Vec::new(),
            0 => tries.into_iter().min_by_key(Vec::len).unwrap_or_default(),
            several => vec![format!("{at}: oneOf: {several} fit")],
        }
    }
}

/// A list's members, or what is no list as the only one.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    match value.as_array() {
        Some(all) => all.as_slice(),
        None => std::slice::from_ref(value),
    }
    .iter()
}

#[expect(
    clippy::panic,
    reason = "a test stops where its schema is not as it must be"
)]
fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap_or("") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    }
}

/// Asserts that a line or a file of JSON keeps to the published schema of that name.
///
/// # Panics
/// When it does not.
#[track_caller]
#[expect(clippy::panic, reason = "this is an assertion")]
pub fn assert_keeps_to(name: &str, text: &str) {
    let value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
    let found = Schema::published(name).violations(&value);
    assert!(found.is_empty(), "{name}: {found:#?}\n{value:#}");
}
