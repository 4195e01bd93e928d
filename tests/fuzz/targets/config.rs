//! The agent's configuration in all its layers, and the kubelet's own.

use brink::config::check::check;
use brink::config::{Checked, Override, SETTINGS, Sources, load, migrate_text};
use brink_core::node::policy::Capacities;

use crate::Taken;
use crate::bundle::Bundle;
use crate::scratch::Scratch;

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// `config`, drop-ins `config.d/…`, `kubelet` with `kubelet.d/…`, and `flags`, a line each.
pub(crate) fn config(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        folder.clear();
        let files = Bundle::split("config", bytes);
        let sources = write(folder, &files, bytes);
        let loaded = load(&sources);
        match &loaded {
            Ok(checked) => check_shown(folder, checked),
            Err(faults) => {
                assert!(!faults.list.is_empty() && faults.list.len() <= 500);
                assert!(!faults.to_string().is_empty());
            }
        }
        check_migrated(folder, &files, (&sources, loaded.as_ref().ok()));
        // The same, unless the file says that it is the kubelet's.
        let outcome = check(&sources);
        match &outcome {
            Ok(outcome) => assert!(outcome.thresholds.len() <= 32),
            Err(faults) => assert!(!faults.to_string().is_empty()),
        }
        Taken::from_accepted(loaded.is_ok() || outcome.is_ok())
    })
}

fn write(folder: &Scratch, files: &Bundle<'_>, bytes: &[u8]) -> Sources {
    let config = files.get("config").unwrap_or_default();
    let mut overrides = Vec::new();
    for (name, bytes) in files.below("config.d/") {
        folder.write(&format!("config.d/{name}"), bytes);
    }
    for (name, bytes) in files.below("kubelet.d/") {
        folder.write(&format!("kubelet.d/{name}"), bytes);
    }
    // No input names a file of this machine that is read as a configuration. Folders that one names are looked for, and mounts
    // below its root.
    let names_files = bytes.windows(7).any(|word| word == b"kubelet");
    if names_files || files.get("kubelet").is_some() {
        let kubelet = folder.write("kubelet", files.get("kubelet").unwrap_or_default());
        folder.write("kubelet.d/0.conf.off", b"");
        overrides.extend(flag("kubelet-config", &kubelet.to_string_lossy()));
        overrides.extend(flag(
            "kubelet-config-dir",
            &folder.join("kubelet.d").to_string_lossy(),
        ));
    }
    let flags = files.get("flags").unwrap_or_default();
    let flags = String::from_utf8_lossy(flags);
    let given = flags.lines().filter_map(|line| line.split_once('='));
    let given = given.filter(|(name, _)| !name.starts_with("kubelet-config"));
    overrides.extend(
        given
            .take(SETTINGS.len())
            .filter_map(|(name, text)| flag(name, text)),
    );
    folder.write("config.d/0.off", b"");
    Sources {
        config: Some(folder.write("config", config)),
        config_dir: Some(folder.join("config.d")),
        overrides,
        capacities: Some(Capacities::default()),
        ..Sources::default()
    }
}

fn flag(name: &str, text: &str) -> Option<Override> {
    Override::of_flag(name, text, &format!("--{name}"))
}

/// What is shown of a configuration is one, with the same thresholds.
fn check_shown(folder: &Scratch, checked: &Checked) {
    let shown = checked.to_yaml(false);
    assert!(checked.to_yaml(true).len() >= shown.len());
    let json = serde_json::to_string(&checked.to_json_with_origins());
    assert!(json.is_ok_and(|json| !json.is_empty()));
    let again = load(&Sources {
        config: Some(folder.write("shown", shown.as_bytes())),
        capacities: Some(Capacities::default()),
        ..Sources::default()
    });
    let thresholds = |checked: &Checked| -> Vec<String> {
        let all = checked.config.policy.thresholds().iter();
        all.map(|threshold| format!("{threshold:?}")).collect()
    };
    match again {
        Ok(again) => {
            assert_eq!(thresholds(&again), thresholds(checked), "{shown}");
            assert_eq!(again.config.mode, checked.config.mode);
            assert_eq!(again.config.memory_policy, checked.config.memory_policy);
        }
        Err(faults) => assert!(shown.is_empty(), "{shown}\nis refused: {faults}"),
    }
}

/// In the newest version all files come to the same, and stay as they are from then on.
fn check_migrated(
    folder: &Scratch,
    files: &Bundle<'_>,
    (sources, loaded): (&Sources, Option<&Checked>),
) {
    let newest = |name: &str, bytes: &[u8]| {
        let migrated = migrate_text(name, bytes).ok()?;
        let again = migrate_text(name, migrated.text.as_bytes());
        let stays = |again: &str| again == migrated.text;
        assert!(again.is_ok_and(|again| stays(&again.text) && again.changes.is_empty()));
        Some(folder.write(name, migrated.text.as_bytes()))
    };
    folder.write("migrated.d/0.off", b"");
    let config = files.get("config").unwrap_or_default();
    let Some(config) = newest("migrated", config) else {
        return;
    };
    for (name, bytes) in files.below("config.d/") {
        if newest(&format!("migrated.d/{name}"), bytes).is_none() {
            return;
        }
    }
    let again = load(&Sources {
        config: Some(config),
        config_dir: Some(folder.join("migrated.d")),
        ..sources.clone()
    });
    let shown = again.as_ref().map(|again| again.to_yaml(false)).ok();
    assert_eq!(shown, loaded.map(|loaded| loaded.to_yaml(false)));
}
