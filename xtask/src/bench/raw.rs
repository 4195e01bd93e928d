//! The raw values as JSON, with all that is needed to judge or repeat them.
use std::{fs, path::Path};

use anyhow::Context as _;
use serde::Serialize;

use super::{
    machine::Machine,
    registry::{Cell, Settings},
};

/// The form of the file; it grows by one when a reader would have to know.
const SCHEMA: u32 = 1;

/// The file's contents.
#[derive(Debug, Serialize)]
pub struct Results<'a> {
    schema: u32,
    benchmark: &'a str,
    kernel: Option<&'a str>,
    machine: &'a Machine,
    seed: u64,
    short: bool,
    cells: Vec<CellResults<'a>>,
}

#[derive(Debug, Serialize)]
struct CellResults<'a> {
    cell: &'a str,
    unit: &'a str,
    n: usize,
    values: &'a [f64],
}

impl<'a> Results<'a> {
    /// The results of one benchmark.
    pub fn new(
        benchmark: &'a str,
        settings: &Settings,
        machine: &'a Machine,
        cells: &'a [Cell],
    ) -> Self {
        let results = |cell: &'a Cell| CellResults {
            cell: &cell.name,
            unit: cell.unit,
            n: cell.values.len(),
            values: &cell.values,
        };
        Self {
            schema: SCHEMA,
            benchmark,
            kernel: machine.kernel.as_deref(),
            machine,
            seed: settings.seed,
            short: settings.short,
            cells: cells.iter().map(results).collect(),
        }
    }
}

/// Writes the file, and its folder where it is missing.
///
/// # Errors
/// When one of them cannot be written.
pub fn write(file: &Path, results: &Results<'_>) -> anyhow::Result<()> {
    let context = || format!("writing {}", file.display());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    let mut text = serde_json::to_string(results).with_context(context)?;
    text.push('\n');
    fs::write(file, text).with_context(context)?;
    println!("raw values: {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_file_has_what_is_needed_to_repeat_it() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::read(folder.path());
        let cells = [Cell {
            name: "a, idle".to_owned(),
            unit: "ms",
            values: vec![1.5, 0.25],
        }];
        let settings = Settings {
            short: true,
            seed: 7,
        };
        let file = folder.path().join("new/crossing.json");
        write(
            &file,
            &Results::new("crossing", &settings, &machine, &cells),
        )
        .unwrap();
        let found: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let cell = json!({"cell": "a, idle", "unit": "ms", "n": 2, "values": [1.5, 0.25]});
        assert_eq!(found["cells"], json!([cell]));
        assert_eq!((&found["schema"], &found["seed"]), (&json!(1), &json!(7)));
        assert_eq!(
            (&found["kernel"], &found["short"]),
            (&Value::Null, &json!(true))
        );
        assert_eq!(
            found["machine"]["architecture"],
            json!(std::env::consts::ARCH)
        );
    }
}
