//! What plugins say and fail to say.

use std::path::Path;

use super::*;

/// Longer than any plugin here takes, and than others of these tests keep the turn.
const AMPLE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> ExecConfig {
    ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".to_owned()),
        command: Some("sh".to_owned()),
        args: Some(Vec::from(["-c".to_owned(), script.to_owned()])),
        ..ExecConfig::default()
    }
}

fn said(script: &str, bound: Duration) -> String {
    ask(&shell(script), None, bound).unwrap_err().to_string()
}

/// Waits until the process whose number is in a file is gone.
fn is_gone(file: &Path) -> bool {
    let pid = fs::read_to_string(file).unwrap();
    let place = Path::new("/proc").join(pid.trim());
    let is_dead = || {
        let stat = fs::read_to_string(place.join("stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        is_dead()
    })
}

#[test]
fn an_answer_is_read_as_json_and_as_yaml() {
    let expected = Credential {
        token: Some("abc".to_owned()),
        valid_until: Some("2030-01-02T03:04:05Z".parse().unwrap()),
        ..Credential::default()
    };
    let json = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false},
        "status":{"token":"abc","expirationTimestamp":"2030-01-02T03:04:05Z"}}"#;
    let yaml = "kind: ExecCredential\nstatus:\n  token: abc\n  expirationTimestamp: 2030-01-02T03:04:05Z\n";
    for text in [json, yaml] {
        assert_eq!(understand(text.as_bytes()).unwrap(), expected, "{text}");
    }
    for never in ["\"9999-12-31T23:59:59Z\"", "null"] {
        let text = format!("{{\"status\":{{\"token\":\"a\",\"expirationTimestamp\":{never}}}}}");
        let found = understand(text.as_bytes()).unwrap();
        assert_eq!(found.valid_until, None, "{text}");
    }
    for text in [
        "",
        "7",
        "{}",
        "{\"status\":{\"token\":[]}}",
        "\u{0}",
        "{\"status\":{\"token\":\"a\",\"expirationTimestamp\":\"soon\"}}",
    ] {
        let found = understand(text.as_bytes());
        assert!(
            matches!(found, Err(PluginError::NotUnderstood)),
            "{text} {found:?}"
        );
    }
    for text in [
        "{\"status\":{}}",
        "{\"status\":{\"token\":\" \"}}",
        "{\"status\":{\"clientKeyData\":\"a\"}}",
    ] {
        let found = understand(text.as_bytes());
        assert!(matches!(found, Err(PluginError::Empty)), "{text} {found:?}");
    }
}

#[test]
fn a_plugin_is_told_what_is_asked_and_given_its_variables() {
    let _alone = ALONE.blocking_lock();
    let mut exec = shell(r#"printf '{"status":{"token":"%s"}}' "$WHO""#);
    let variable = [("name", "WHO"), ("value", "me")];
    let variable = variable.map(|(key, value)| (key.to_owned(), value.to_owned()));
    exec.env = Some(Vec::from([variable.into()]));
    let found = ask(&exec, None, AMPLE).unwrap();
    assert_eq!(found.token.as_deref(), Some("me"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("question");
    let script = format!(
        r#"printf %s "$KUBERNETES_EXEC_INFO" > {}; echo '{{"status":{{"token":"a"}}}}'"#,
        file.display()
    );
    let cluster = ExecAuthCluster {
        server: Some("https://a".to_owned()),
        ..ExecAuthCluster::default()
    };
    ask(&shell(&script), Some(&cluster), AMPLE).unwrap();
    let question: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(question["kind"], "ExecCredential");
    assert_eq!(question["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(question["spec"]["interactive"], false);
    assert_eq!(question["spec"]["cluster"]["server"], "https://a");
}

#[test]
fn a_plugin_that_hangs_is_given_up_and_killed_with_what_it_has_started() {
    let _alone = ALONE.blocking_lock();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // With an output that both hold open, with one that is closed, and with one that outlives the plugin.
    for (before, after) in [("", "; wait"), ("exec >&-; ", "; wait"), ("", "")] {
        let script = format!("{before}sleep 300 & echo $! > {}{after}", file.display());
        let began = Instant::now();
        let found = said(&script, Duration::from_secs(5));
        assert!(began.elapsed() < Duration::from_mins(1), "{script}");
        assert!(found.contains("has not answered within 5 s"), "{found}");
        assert!(is_gone(&file), "{script}");
    }
}

#[test]
fn what_a_plugin_does_wrong_is_said() {
    let _alone = ALONE.blocking_lock();
    assert!(said("exit 3", AMPLE).contains("exit status: 3"));
    assert!(said("echo secret", AMPLE).contains("ExecCredential"));
    assert!(!said("echo secret", AMPLE).contains("secret"));
    let endless = said(
        "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
        AMPLE,
    );
    assert_eq!(endless, "has answered with more than 256 KiB");
    let mut exec = shell("");
    exec.command = Some("/nowhere/plugin".to_owned());
    let missing = ask(&exec, None, AMPLE).unwrap_err().to_string();
    assert!(
        missing.contains("No such file") && missing.contains("exec.command"),
        "{missing}"
    );
    exec.command = Some("a\0b".to_owned());
    assert!(matches!(ask(&exec, None, AMPLE), Err(PluginError::Io(_))));
    exec.interactive_mode = Some(ExecInteractiveMode::Always);
    assert!(matches!(
        ask(&exec, None, AMPLE),
        Err(PluginError::Interactive)
    ));
    exec.command = None;
    assert!(matches!(
        ask(&exec, None, AMPLE),
        Err(PluginError::NoCommand)
    ));
}

#[test]
fn none_is_started_beside_one_that_runs() {
    let _alone = ALONE.blocking_lock();
    let turn = Turn::wait(AMPLE).unwrap();
    let found = said("exit 3", Duration::from_millis(50));
    assert!(found.contains("none is started beside another"), "{found}");
    drop(turn);
    assert!(said("exit 3", AMPLE).contains("exit status: 3"));
}
