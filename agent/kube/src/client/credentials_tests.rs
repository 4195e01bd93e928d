//! What a kubeconfig may say, and what it may not.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::client::Origin;
use crate::client::plugin::ALONE;

/// Longer than anything here takes.
const AMPLE: Duration = Duration::from_secs(20);

/// A kubeconfig in a folder of its own.
struct Written {
    folder: tempfile::TempDir,
    access: Access,
}

impl Written {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, text).unwrap();
        let access = Access::new(Some(path), None, None);
        Self { folder, access }
    }

    fn of(cluster: &Value, user: &Value) -> Self {
        let config = json!({
            "current-context": "a",
            "clusters": [{"name": "a", "cluster": cluster}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": user}],
        });
        Self::new(config.to_string())
    }

    fn user(user: &Value) -> Self {
        Self::of(&json!({"server": "http://127.0.0.1:1"}), user)
    }

    fn beside(self, name: &str, text: &str) -> Self {
        fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    fn prepared(&self) -> Prepared {
        prepare(&self.access, AMPLE).ok().unwrap()
    }

    fn token(&self) -> Option<String> {
        let token = self.prepared().config.auth_info.token;
        token.map(|token| token.expose_secret().to_owned())
    }

    /// What is said of it, by the way that everybody takes.
    async fn refusal(&self) -> String {
        let error = self.access.connect().await.err().unwrap().to_string();
        assert!(error.contains(&self.access.in_words()), "{error}");
        error
    }
}

#[tokio::test]
async fn a_server_without_scheme_or_host_is_refused() {
    let long = format!("https://a/{}", "b".repeat(LONGEST_SERVER));
    for server in [
        "127.0.0.1:1",
        "mailto:x",
        "/path",
        "*",
        "ftp://a",
        long.as_str(),
    ] {
        let said = Written::of(&json!({ "server": server }), &json!({}))
            .refusal()
            .await;
        assert!(
            said.contains("server: ") && said.contains("https://HOST:PORT"),
            "{said}"
        );
        assert!(said.len() < 1024, "{said}");
    }
    for server in [
        "http://127.0.0.1:1",
        "HTTPS://a",
        "https://[::1]:6443/proxy/",
    ] {
        Written::of(&json!({ "server": server }), &json!({})).prepared();
    }
}

#[tokio::test]
async fn a_token_that_is_no_header_is_refused_by_the_name_of_its_place() {
    let check = async |written: Written, place: &str| {
        let said = written.refusal().await;
        assert!(
            said.contains(place) && said.contains("line break"),
            "{said}"
        );
        assert!(!said.contains("secret"), "{said}");
    };
    check(Written::user(&json!({"token": "secret\ndef"})), "token").await;
    check(Written::user(&json!({"token": "secret\u{1}def"})), "token").await;
    let provider =
        json!({"auth-provider": {"name": "oidc", "config": {"id-token": "secret\ndef"}}});
    check(Written::user(&provider), "token").await;
    let file = Written::user(&json!({"tokenFile": "its"})).beside("its", "secret\ndef");
    check(file, "tokenFile /").await;
    let answer = r#"printf %s '{"status":{"token":"secret\ndef"}}'"#;
    let plugin = json!({"exec": {"command": "sh", "args": ["-c", answer]}});
    check(Written::user(&plugin), "plugin's token").await;
    // In a block scalar every line break counts.
    let text = "
current-context: a
clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users:
- name: a
  user:
    token: |
      abc
      def
";
    check(Written::new(text), "token").await;
    let written = Written::new(text.replace("      def\n", ""));
    assert_eq!(written.token().as_deref(), Some("abc"));
}

#[tokio::test]
async fn blanks_around_a_token_are_none_of_it() {
    let token = |user: Value| Written::user(&user).beside("its", " abc\r\n").token();
    assert_eq!(token(json!({"token": "abc\n"})).as_deref(), Some("abc"));
    assert_eq!(token(json!({"tokenFile": "its"})).as_deref(), Some("abc"));
    assert_eq!(token(json!({"token": " \n"})), None);
    let plain = Written::user(&json!({"tokenFile": "its"})).beside("its", "abc");
    let user = plain.prepared().config.auth_info;
    let path = plain.folder.path().join("its");
    assert_eq!(
        user.token_file.as_deref(),
        path.to_str(),
        "read again every minute"
    );
    assert!(user.token.is_none());
    let empty = Written::user(&json!({"tokenFile": "its"})).beside("its", "\n");
    assert!(empty.refusal().await.contains("it is empty"));
}

#[tokio::test]
async fn a_plugin_says_who_asks_where_nothing_else_does() {
    let answer = r#"printf %s '{"status":{"token":"abc\n","clientCertificateData":"c","clientKeyData":"k",
        "expirationTimestamp":"2030-01-02T03:04:05Z"}}'"#;
    let plugin = json!({"command": "sh", "args": ["-c", answer]});
    let prepared = Written::user(&json!({ "exec": plugin })).prepared();
    let user = prepared.config.auth_info;
    assert_eq!(user.token.unwrap().expose_secret(), "abc");
    assert_eq!(user.client_certificate_data.as_deref(), Some("Yw=="));
    assert_eq!(user.client_key_data.unwrap().expose_secret(), "aw==");
    assert!(user.exec.is_none(), "the library would run it again");
    let until = "2030-01-02T03:04:05Z".parse().unwrap();
    assert_eq!(prepared.valid_until, Some(until));
    let missing = json!({"command": "/nowhere/plugin"});
    for other in [
        json!({"token": "a"}),
        json!({"username": "a", "password": "b"}),
    ] {
        let mut user = other;
        user["exec"] = missing.clone();
        let prepared = Written::user(&user).prepared();
        assert!(prepared.config.auth_info.exec.is_none());
    }
    let said = Written::user(&json!({ "exec": missing })).refusal().await;
    assert!(
        said.contains("the credential plugin /nowhere/plugin cannot be run"),
        "{said}"
    );
}

#[tokio::test]
async fn a_plugin_that_hangs_keeps_nobody_else_waiting() {
    let _alone = ALONE.lock().await;
    let plugin = json!({"command": "sleep", "args": ["300"]});
    let written = Written::user(&json!({ "exec": plugin }));
    let connects = written.access.connect_within(Duration::from_secs(3));
    tokio::pin!(connects);
    tokio::select! {
        biased;
        _ = &mut connects => panic!("others on this runtime wait for the plugin"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    let said = connects.await.err().unwrap().to_string();
    assert!(
        said.contains("the credential plugin sleep has not answered within 3 s"),
        "{said}"
    );
    assert!(said.contains(&written.access.in_words()), "{said}");
}

#[tokio::test]
async fn files_that_a_kubeconfig_names_are_read_here_and_only_if_they_are_files() {
    let cluster = json!({"server": "https://a", "certificate-authority": "one"});
    let written = Written::of(&cluster, &json!({})).beside("one", "no certificate");
    assert!(written.prepared().config.root_cert.is_some());
    let user = json!({"client-certificate": "one", "client-key": "two"});
    let written = Written::user(&user).beside("one", "c").beside("two", "k");
    let user = written.prepared().config.auth_info;
    assert_eq!(user.client_certificate_data.as_deref(), Some("Yw=="));
    assert_eq!(user.client_key_data.unwrap().expose_secret(), "aw==");
    for field in ["client-certificate", "client-key", "tokenFile"] {
        for path in ["/dev/zero", "missing"] {
            let said = Written::user(&json!({ field: path })).refusal().await;
            assert!(said.contains(field) && said.contains(path), "{said}");
        }
    }
}

#[tokio::test]
async fn a_pipe_is_no_kubeconfig_and_nobody_waits_for_its_writer() {
    let written = Written::new("");
    let path = written.folder.path().join("config");
    fs::remove_file(&path).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert!(written.refusal().await.contains("no regular file"));
    assert_ne!(written.access.origin().await.unwrap(), Origin::NONE);
    let named = Written::user(&json!({ "tokenFile": path }));
    assert!(named.refusal().await.contains("no regular file"));
}

#[tokio::test]
async fn what_is_no_text_is_refused_and_utf_16_is_read() {
    for bytes in [b"\xff\xfe\0".as_slice(), b"\xfe\xff\0", b"\xff\xfe\0\xd8"] {
        assert!(Written::new(bytes).refusal().await.contains("UTF-16"));
    }
    assert!(Written::new(b"a: \xff").refusal().await.contains("UTF-8"));
    let huge = Written::new(vec![b'#'; (1 << 20) + 1]);
    assert!(huge.refusal().await.contains("larger than 1024 KiB"));
    let plain = Written::user(&json!({"token": "abc"}));
    let text = fs::read_to_string(plain.folder.path().join("config")).unwrap();
    let units = text.encode_utf16().flat_map(u16::to_be_bytes);
    let wide: Vec<u8> = [0xfe, 0xff].into_iter().chain(units).collect();
    assert_eq!(Written::new(wide).token().as_deref(), Some("abc"));
}

#[tokio::test]
async fn what_the_library_would_not_stand_is_refused() {
    let groups = vec!["a"; MOST_HEADERS + 1];
    let said = Written::user(&json!({ "as": "a", "as-groups": groups }))
        .refusal()
        .await;
    assert!(said.contains("1025"), "{said}");
    let extra: Value = (0..=MOST_HEADERS)
        .map(|key| (key.to_string(), json!(["a"])))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let said = Written::user(&json!({ "as": "a", "as-user-extra": extra }))
        .refusal()
        .await;
    assert!(said.contains("1025"), "{said}");
    let provider = json!({"auth-provider": {"name": "gcp", "config": {"cmd-path": "sleep", "cmd-args": "300"}}});
    let said = Written::user(&provider).refusal().await;
    assert!(said.contains("auth-provider gcp"), "{said}");
}

/// The library says these itself; that it does so is held here, since a later one may not.
#[tokio::test]
async fn what_cannot_be_used_otherwise_is_an_error_too() {
    let server = "https://127.0.0.1:1";
    let users = [
        json!({"as": "a\nb"}),
        json!({"as": "a", "as-groups": ["a\nb"]}),
        json!({"as": "a", "as-user-extra": {"a\nb": ["c\nd"]}}),
        json!({"client-certificate-data": "?"}),
        json!({"client-certificate-data": "Yw==", "client-key-data": "aw=="}),
        json!({"auth-provider": {"name": "azure"}}),
    ];
    for user in users {
        let written = Written::of(&json!({ "server": server }), &user);
        assert!(written.access.connect().await.is_err(), "{user}");
    }
    let clusters = [
        json!({ "server": "https://a b" }),
        json!({ "server": "" }),
        json!({}),
        json!({ "server": server, "proxy-url": "a b" }),
        json!({ "server": server, "proxy-url": "gopher://a" }),
        json!({ "server": server, "tls-server-name": "a b" }),
        json!({ "server": server, "certificate-authority-data": "?" }),
    ];
    for cluster in clusters {
        let written = Written::of(&cluster, &json!({}));
        assert!(written.access.connect().await.is_err(), "{cluster}");
    }
}
