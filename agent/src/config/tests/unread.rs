//! Files that are named and cannot be read: told where they are named, and nobody waits for one.

use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;

fn pipe(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path(name);
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    path
}

#[test]
fn a_file_of_the_kubelets_that_is_not_there_is_told_at_the_key_that_names_it() {
    for (key, what) in [
        ("kubeletConfig", "cannot be read: No such file"),
        ("kubeletConfigDir", "cannot be listed: No such file"),
    ] {
        let text = format!("{HEAD}{key}: /nonexistent/kubelet\n");
        let said = Folder::new(&[("config.yaml", &text)]).faults();
        assert_eq!(said.len(), 1, "{said:#?}");
        let column = key.len() + 3;
        let place = format!("config.yaml:3:{column}: {key}: \"/nonexistent/kubelet\": {what}");
        assert!(said[0].starts_with(&place), "{said:#?}");
        assert!(!said[0].contains("relative path"), "{said:#?}");
    }
    let mut sources = Folder::new(&[]).sources();
    let origin = Origin::Flag("--kubelet-config".to_owned());
    sources.overrides = vec![given("kubelet-config", &["nonexistent.yaml"], origin)];
    let said = load(&sources).unwrap_err().to_string();
    let expected =
        "--kubelet-config: kubeletConfig: \"nonexistent.yaml\": cannot be read: No such file";
    assert!(said.starts_with(expected), "{said}");
    assert!(
        said.contains("a relative path counts from the folder in which brink is started"),
        "{said}"
    );
}

#[test]
fn nobody_waits_for_a_pipe_to_say_something() {
    let folder = Folder::new(&[]);
    let file = pipe(&folder, "config.yaml");
    let problem = "config.yaml: cannot be read: this is a pipe, on which a reader may wait for ever; accepted: a regular file";
    assert_eq!(folder.faults(), [problem]);
    let checked = check::check(&folder.sources()).unwrap_err().to_string();
    assert!(checked.contains("this is a pipe"), "{checked}");
    let migrated = migrate(&file).unwrap_err().to_string();
    assert!(migrated.contains("this is a pipe"), "{migrated}");

    let folder = Folder::new(&[]);
    let named = pipe(&folder, "kubelet.yaml");
    let text = format!("{HEAD}kubeletConfig: {}\n", named.display());
    fs::write(folder.path("config.yaml"), text).unwrap();
    let said = folder.faults();
    assert!(
        said.len() == 1
            && said[0].starts_with("config.yaml:3:16: kubeletConfig: ")
            && said[0].ends_with("may wait for ever; accepted: a regular file"),
        "{said:#?}"
    );
}

#[test]
fn what_is_no_file_among_drop_ins_is_told_and_the_null_device_says_nothing() {
    let folder = Folder::new(&[("kubelet.d/README", ""), ("conf.d/README", "")]);
    let named = folder.path("kubelet.d");
    let text = format!("{HEAD}kubeletConfigDir: {}\n", named.display());
    fs::write(folder.path("config.yaml"), text).unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.path("conf.d/masked.yaml")).unwrap();
    assert_eq!(folder.load().warnings, []);
    fs::create_dir(folder.path("conf.d/1.yaml")).unwrap();
    pipe(&folder, "conf.d/2.conf");
    pipe(&folder, "kubelet.d/3.conf");
    assert_eq!(
        folder.faults(),
        [
            "conf.d/1.yaml: cannot be read: Is a directory (os error 21); accepted: a regular file",
            "conf.d/2.conf: cannot be read: this is a pipe, on which a reader may wait for ever; accepted: a regular file",
            "kubelet.d/3.conf: cannot be read: this is a pipe, on which a reader may wait for ever; accepted: a regular file",
        ]
    );
}

#[test]
fn the_null_device_and_what_a_shell_hands_over_are_read() {
    let text = format!("{HEAD}mode: enforce\n");
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
    drop(writer);
    let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
    let handed = format!("/dev/fd/{number}");
    for (file, mode) in [
        ("/dev/null", RunMode::Observe),
        (handed.as_str(), RunMode::Enforce),
    ] {
        let sources = Sources {
            config: Some(file.into()),
            ..Folder::new(&[]).sources()
        };
        let checked = load(&sources).unwrap_or_else(|faults| panic!("{file}: {faults}"));
        assert_eq!(checked.config.mode, mode, "{file}");
    }
    let socket = Folder::new(&[]);
    let _open = std::os::unix::net::UnixListener::bind(socket.path("config.yaml")).unwrap();
    let said = socket.faults();
    assert!(
        said[0].contains("this is a device or a socket"),
        "{said:#?}"
    );
}
