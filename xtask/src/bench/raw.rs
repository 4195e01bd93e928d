//! The raw values as JSON, with all that is needed to judge or repeat them.
use std::{fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    machine::Machine,
    registry::{Outcome, Settings},
};
use crate::when::When;

/// The form of the file; it grows by one when a reader would have to know.
const SCHEMA: u32 = 1;

/// The file's contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    schema: u32,
    /// When it was measured and of which commit, of what is published. Not kept until 2026-11-27.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) when: Option<When>,
    /// Which benchmark.
    pub benchmark: String,
    /// What it measures.
    pub about: String,
    /// Where.
    pub machine: Machine,
    /// Load average of the last minute, before and after.
    pub load: [Option<f64>; 2],
    /// Seed of everything that was random.
    pub seed: u64,
    /// Whether it was the short form.
    pub short: bool,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Results {
    /// The results of one benchmark.
    pub fn new(
        (benchmark, about): (&str, &str),
        settings: &Settings,
        (machine, load): (&Machine, [Option<f64>; 2]),
        outcome: &Outcome,
    ) -> Self {
        Self {
            schema: SCHEMA,
            when: None,
            benchmark: benchmark.to_owned(),
            about: about.to_owned(),
            machine: machine.clone(),
            load,
            seed: settings.seed,
            short: settings.short,
            outcome: outcome.clone(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is of another form.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let context = || format!("reading {}", file.display());
        let text = fs::read_to_string(file).with_context(context)?;
        let found: Self = serde_json::from_str(&text).with_context(context)?;
        anyhow::ensure!(
            found.schema == SCHEMA,
            "{} has schema {}, and {SCHEMA} is known",
            file.display(),
            found.schema
        );
        Ok(found)
    }

    /// Writes the file, and its folder where it is missing.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        let context = || format!("writing {}", file.display());
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        let mut text = serde_json::to_string(self).with_context(context)?;
        text.push('\n');
        fs::write(file, text).with_context(context)?;
        println!("raw values: {}", file.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_file_has_what_is_needed_to_repeat_it() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::read(folder.path());
        let mut outcome = Outcome::default();
        outcome.add("idle", "delay", "ms", vec![1.5, 0.25]);
        outcome.limit_median("idle", "delay", 1.0);
        let settings = Settings {
            short: true,
            seed: 7,
        };
        let file = folder.path().join("new/crossing.json");
        let mut results = Results::new(
            ("crossing", "how late"),
            &settings,
            (&machine, [Some(0.5), None]),
            &outcome,
        );
        results.when = Some(When::from("2026-01-01@3dc94a75+"));
        results.write(&file).unwrap();
        assert_eq!(Results::read(&file).unwrap(), results);
        let found: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let cell =
            json!({"case": "idle", "what": "delay", "unit": "ms", "n": 2, "values": [1.5, 0.25]});
        assert_eq!(found["cells"], json!([cell]));
        let limit = json!({"name": "delay, idle: p50", "unit": "ms", "must": {"atMost": 1.0}, "measured": 0.25});
        assert_eq!(found["limits"], json!([limit]));
        assert_eq!((&found["schema"], &found["seed"]), (&json!(1), &json!(7)));
        assert_eq!(found["machine"]["kernel"], Value::Null);
        assert_eq!(found["when"], "2026-01-01@3dc94a75+");
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.json");
        fs::write(&file, "{}").unwrap();
        assert!(Results::read(&file).is_err());
    }
}
