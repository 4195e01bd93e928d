//! Files of older versions: what is read of them, what is said of them, and what becomes of them.

use super::version::RENAMES;
use super::*;

const OLD: &str = "apiVersion: brink.dev/v1alpha1\nkind: AgentConfiguration\n";

/// Everything that follows from a configuration, wherever it was written.
fn effective(checked: &Checked) -> String {
    let idle: Vec<&str> = checked
        .idle
        .iter()
        .map(|found| found.path.as_str())
        .collect();
    let config = &checked.config;
    format!("{config:?}\n{}\n{idle:?}", to_json(&checked.tree))
}

fn warnings(folder: &Folder) -> Vec<String> {
    let warnings = folder.load().warnings;
    let said = warnings
        .iter()
        .map(|warning| folder.plain(&warning.to_string()));
    said.collect()
}

/// An old file as a new one, which says the same and stays as it is from then on.
#[track_caller]
fn check_migrated(old: &str, new: &str) {
    let migrated = migrate_text("f", old.as_bytes()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(migrated.text, new);
    assert!(!migrated.changes.is_empty());
    let again = migrate_text("f", new.as_bytes()).unwrap();
    assert_eq!((again.text.as_str(), again.changes), (new, vec![]));
    for name in ["config.yaml", "conf.d/1.yaml"] {
        let [before, after] = [old, new].map(|text| Folder::new(&[(name, text)]).load());
        assert_eq!(effective(&before), effective(&after), "{name}");
    }
}

#[test]
fn words_change_where_they_stand_and_everything_else_stays() {
    check_migrated(
        &format!("# Ours.\n{OLD}\nlimits:\n  most: 7   # a few\n  refill: 1m30s\n  burst: 2\n"),
        &format!(
            "# Ours.\n{HEAD}\nlimits:\n  maxKills: 7   # a few\n  refillInterval: 1m30s\n  burst: 2\n"
        ),
    );
    check_migrated(
        &format!(
            "{OLD}limits: {{burst: 3, refill: 1s, most: 20, window: 1m}}\npaths: {{journal: /var/log/most}}\nlog: {{level: debug}}"
        ),
        &format!(
            "{HEAD}limits: {{burst: 3, refillInterval: 1s, maxKills: 20, window: 1m}}\npaths: {{decisionJournal: /var/log/most}}\nlog: {{level: debug}}"
        ),
    );
    check_migrated(
        "{\"apiVersion\": \"brink.dev/v1alpha1\", \"kind\": \"AgentConfiguration\",\n \"limits\": {\"most\": 5}}\n",
        "{\"apiVersion\": \"brink.dev/v1alpha2\", \"kind\": \"AgentConfiguration\",\n \"limits\": {\"maxKills\": 5}}\n",
    );
    check_migrated(
        "\u{feff}apiVersion: 'brink.dev/v1alpha1'\r\nkind: AgentConfiguration\r\n# é\r\nlimits: {\"refill\": 1s, ? most\r\n : 9}\r\n",
        "\u{feff}apiVersion: 'brink.dev/v1alpha2'\r\nkind: AgentConfiguration\r\n# é\r\nlimits: {\"refillInterval\": 1s, ? maxKills\r\n : 9}\r\n",
    );
    // Nothing but the version.
    check_migrated(
        &format!("{OLD}mode: enforce\n"),
        &format!("{HEAD}mode: enforce\n"),
    );
    // A drop-in does not say its version; a null takes a key back.
    check_migrated("paths: {journal: /j}\n", "paths: {decisionJournal: /j}\n");
    check_migrated("limits: {most: null}\n", "limits: {maxKills: null}\n");
    check_migrated(
        "---\nlimits: {<<: {most: 3}}\n",
        "---\nlimits: {<<: {maxKills: 3}}\n",
    );
}

#[test]
fn what_cannot_be_changed_in_place_is_written_anew_and_said() {
    let old = format!("{OLD}# why\nlimits: {{\"mo\\x73t\": 4}}\nlog: {{level: debug}}\n");
    let migrated = migrate_text("f", old.as_bytes()).unwrap();
    assert!(!migrated.keeps_comments);
    assert_eq!(
        migrated.text,
        format!("{HEAD}limits:\n  maxKills: 4\nlog:\n  level: debug\n")
    );
    let without = old.replace("# why\n", "");
    let migrated = migrate_text("f", without.as_bytes()).unwrap();
    assert!(migrated.keeps_comments, "there was none to lose");
}

#[test]
fn an_older_file_is_read_and_told_what_to_write() {
    let folder = Folder::new(&[
        (
            "config.yaml",
            &format!("{OLD}limits:\n  most: 7\n  refill: 2s\npaths: {{stateDir: /s}}\n"),
        ),
        ("conf.d/1.yaml", &format!("{HEAD}limits: {{maxKills: 8}}\n")),
        (
            "conf.d/2.yaml",
            "limits: {refill: 3s}\npaths: {journal: /j}\n",
        ),
        ("conf.d/3.yaml", &format!("{OLD}limits: {{most: null}}\n")),
        ("conf.d/4.yaml", "paths: {stateDir: /t}\n"),
    ]);
    let since = "since brink.dev/v1alpha2; accepted:";
    let expected = [
        "config.yaml:1:13: apiVersion: \"brink.dev/v1alpha1\": an older version, still read; \
         brink config migrate --write config.yaml writes it so; accepted: brink.dev/v1alpha2"
            .to_owned(),
        format!("config.yaml:4:3: limits.most: called maxKills {since} maxKills"),
        format!("config.yaml:5:3: limits.refill: called refillInterval {since} refillInterval"),
        format!("conf.d/2.yaml:1:10: limits.refill: called refillInterval {since} refillInterval"),
        format!("conf.d/2.yaml:2:9: paths.journal: called decisionJournal {since} decisionJournal"),
        "conf.d/3.yaml:1:13: apiVersion: \"brink.dev/v1alpha1\": an older version, still read; \
         brink config migrate --write conf.d/3.yaml writes it so; accepted: brink.dev/v1alpha2"
            .to_owned(),
        format!("conf.d/3.yaml:3:10: limits.most: called maxKills {since} maxKills"),
    ];
    assert_eq!(warnings(&folder), expected);
    let mut sources = folder.sources();
    let checked = load(&sources).unwrap();
    let limits = checked.config.limits;
    assert_eq!(
        (limits.most, limits.refill),
        (30, brink_core::base::Span::from_secs(3))
    );
    let paths = &checked.config.paths;
    assert_eq!(
        (paths.journal.as_deref(), paths.state_dir.as_path()),
        (Some(Path::new("/j")), Path::new("/t"))
    );
    // What is shown is of the newest version, and flags have no other names in any.
    let origin = Origin::Environment("BRINK_JOURNAL");
    sources.overrides = vec![given("journal", &["/of-the-environment"], origin)];
    let shown = load(&sources).unwrap();
    let tree = to_json(&shown.tree);
    assert_eq!(tree["apiVersion"], API_VERSION);
    assert_eq!(tree["paths"]["decisionJournal"], "/of-the-environment");
    let origins = shown.to_json_with_origins().origins;
    assert_eq!(origins["paths.decisionJournal"], "$BRINK_JOURNAL");
    assert_eq!(
        folder.plain(origins["limits.refillInterval"].as_str().unwrap()),
        "conf.d/2.yaml:1:18"
    );
}

#[test]
fn a_name_of_another_version_has_no_place_in_one_that_says_which_it_is() {
    let check = |text: &str, expected: &str| {
        let faults = Folder::new(&[("config.yaml", text)]).faults();
        assert_eq!(faults, [expected], "{text}");
        let said = migrate_text("config.yaml", text.as_bytes()).unwrap_err();
        assert_eq!(said.to_string(), expected, "{text}");
    };
    check(
        &format!("{OLD}limits: {{maxKills: 3}}\n"),
        "config.yaml:3:10: limits.maxKills: unknown key in brink.dev/v1alpha1; \
         accepted: most, or apiVersion: brink.dev/v1alpha2",
    );
    check(
        &format!("{HEAD}paths: {{journal: /j}}\n"),
        "config.yaml:3:9: paths.journal: called decisionJournal since brink.dev/v1alpha2; \
         accepted: decisionJournal",
    );
    check(
        "kind: AgentConfiguration\nlimits: {most: 3, maxKills: 3}\n",
        "config.yaml:2:10: limits.most: the older name of maxKills, which is there too; \
         accepted: maxKills alone",
    );
}

#[test]
fn an_unknown_version_is_refused_and_nothing_else_is_said_of_the_file() {
    let known = "accepted: one of brink.dev/v1alpha1, brink.dev/v1alpha2";
    let newer = format!(
        "a version that this brink does not know; nothing else of it was read; if it was written for a newer brink, \
         install that one, or put back the file from before; {known}"
    );
    for (version, expected) in [
        ("brink.dev/v1alpha3", newer.clone()),
        ("brink.dev/v1", newer),
        ("v1", format!("unknown apiVersion; {known}")),
        ("BRINK.dev/v1alpha1", format!("unknown apiVersion; {known}")),
    ] {
        let text = format!("apiVersion: {version}\nkind: AgentConfiguration\nthresholds: []\n");
        let expected = format!("1:13: apiVersion: \"{version}\": {expected}");
        for name in ["config.yaml", "conf.d/1.conf"] {
            let faults = Folder::new(&[(name, &text)]).faults();
            assert_eq!(faults, [format!("{name}:{expected}")]);
        }
        let said = migrate_text("f", text.as_bytes()).unwrap_err();
        assert_eq!(said.to_string(), format!("f:{expected}"));
    }
    for (text, expected) in [
        (
            KUBELET,
            "f:1:13: apiVersion: \"kubelet.config.k8s.io/v1beta1\": unknown apiVersion",
        ),
        (
            "kind: Scenario\n",
            "f:1:7: kind: \"Scenario\": unknown kind; accepted: AgentConfiguration",
        ),
        ("a: [\n", "f:1:4: not YAML or JSON"),
        (
            "- a\n",
            "f:1:1: the document is a list; accepted: a map of keys",
        ),
        (
            "a: 1\n---\nb: 1\n",
            "f:3:1: a second document; only one is expected here",
        ),
    ] {
        let said = migrate_text("f", text.as_bytes()).unwrap_err().to_string();
        assert!(said.starts_with(expected), "{said}");
    }
}

/// Otherwise nobody could tell what a key means in a drop-in that does not say its version.
#[test]
fn no_name_ever_meant_another_key() {
    for (at, rename) in RENAMES.iter().enumerate() {
        assert!(rename.since > 0 && rename.since < VERSIONS.len());
        for other in RENAMES.iter().skip(at + 1) {
            let of_one_section = rename.section == other.section;
            assert!(!of_one_section || ![other.old, other.new].contains(&rename.old));
            assert!(rename.since <= other.since, "oldest first");
        }
        let shown = Folder::new(&[]).load().tree;
        assert!(shown.get(rename.section).unwrap().get(rename.old).is_none());
    }
}

/// A file of the first version: some of its keys, in one of three forms, with comments or without.
fn old_file(head: bool) -> impl Strategy<Value = String> {
    let optional = proptest::option::of::<std::ops::Range<u32>>;
    let limits = (
        optional(1..60),
        optional(1..9),
        optional(1..60),
        optional(1..9),
    );
    let paths = (optional(0..9), optional(0..9));
    let rest = (
        proptest::option::of("observe|enforce"),
        0..3_u8,
        any::<bool>(),
    );
    (limits, paths, rest).prop_map(move |(limits, paths, (mode, form, comments))| {
        let key = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
        let limits = [
            key("burst", limits.0.map(|count| count.to_string())),
            key("refill", limits.1.map(|count| format!("\"{count}s\""))),
            key(
                "most",
                limits.2.map(|count| {
                    if count == 1 {
                        "null".into()
                    } else {
                        count.to_string()
                    }
                }),
            ),
            key("window", limits.3.map(|count| format!("\"{count}m\""))),
        ];
        let paths = [
            key("stateDir", paths.0.map(|name| format!("\"/run/{name}\""))),
            key(
                "journal",
                paths.1.map(|name| format!("\"/var/log/most/{name}\"")),
            ),
        ];
        let head = if head {
            &["brink.dev/v1alpha1"][..]
        } else {
            &[]
        };
        let top = head.iter().map(|version| ("apiVersion", *version));
        let top = top.chain(mode.iter().map(|mode| ("mode", mode.as_str())));
        written(
            top,
            [
                ("limits", limits.into_iter().flatten().collect()),
                ("paths", paths.into_iter().flatten().collect()),
            ],
            form,
            comments,
        )
    })
}

fn written<'a>(
    top: impl Iterator<Item = (&'a str, &'a str)>,
    sections: [(&str, Vec<(String, String)>); 2],
    form: u8,
    comments: bool,
) -> String {
    let remark = if comments && form < 2 {
        "  # most: {refill"
    } else {
        ""
    };
    let mut parts: Vec<String> = top
        .map(|(key, value)| format!("\"{key}\": \"{value}\""))
        .collect();
    for (name, keys) in sections {
        let keys = keys.iter().map(|(key, value)| match form {
            0 => format!("\n  {key}: {value}{remark}"),
            1 => format!("{key}: {value}"),
            _ => format!("\"{key}\": {value}"),
        });
        let keys: Vec<String> = keys.collect();
        parts.push(match form {
            0 if keys.is_empty() => format!("{name}: {{}}"),
            0 => format!("{name}:{}", keys.concat()),
            1 => format!("{name}: {{{}}}{remark}", keys.join(", ")),
            _ => format!("\"{name}\": {{{}}}", keys.join(",\n\t")),
        });
    }
    if form == 2 {
        format!("{{{}}}", parts.join(", "))
    } else {
        format!("{}\n", parts.join("\n"))
    }
}

proptest! {
    #[test]
    fn a_migrated_file_comes_to_what_the_old_one_came_to(
        base in old_file(true),
        over in any::<bool>().prop_flat_map(old_file),
        flag in any::<bool>(),
    ) {
        let newer = |text: &str| migrate_text("f", text.as_bytes()).unwrap();
        let (new_base, new_over) = (newer(&base), newer(&over));
        prop_assert!(new_base.keeps_comments && new_over.keeps_comments);
        let comments = |text: &str| text.matches('#').count();
        prop_assert_eq!(comments(&new_base.text), comments(&base));
        let come_to = |base: &str, over: &str| {
            let folder = Folder::new(&[("config.yaml", base), ("conf.d/1.yaml", over)]);
            let mut sources = folder.sources();
            if flag {
                let origin = Origin::Flag("--journal".to_owned());
                sources.overrides = vec![given("journal", &["/flag"], origin)];
            }
            load(&sources).map(|checked| effective(&checked)).map_err(|faults| faults.to_string())
        };
        let expected = come_to(&base, &over);
        prop_assert!(expected.is_ok(), "{:?}\n{}\n{}", expected, base, over);
        for (base, over) in [(&new_base.text, &new_over.text), (&new_base.text, &over), (&base, &new_over.text)] {
            prop_assert_eq!(&come_to(base, over), &expected, "{}\n{}", base, over);
        }
        for text in [&new_base.text, &new_over.text] {
            let again = newer(text);
            prop_assert_eq!((&again.text, again.changes.len()), (text, 0));
        }
    }
}
