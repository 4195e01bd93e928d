//! The package of Debian's: what is in it, and what becomes of a machine that it is installed on and taken off again.
#![cfg(test)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use brink_tests::skip;
use serde_json::Value;

/// The least that is a static program by its head; nothing here runs it.
fn program(folder: &Path) -> PathBuf {
    let mut bytes = vec![0_u8; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18] = 62;
    let path = folder.join("brink");
    fs::write(&path, bytes).unwrap();
    path
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{out}{error}");
    out.into_owned()
}

fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|answer| answer.status.success())
}

#[test]
fn the_package_has_what_a_machine_needs_and_is_the_same_again() {
    if !is_there("dpkg-deb") {
        skip!("needs dpkg-deb");
    }
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let packages = folders
        .each_ref()
        .map(|folder| xtask::deb::write(&program(folder.path()), folder.path()).unwrap());
    let [package, again] = packages.each_ref().map(|path| fs::read(path).unwrap());
    assert_eq!(package, again);
    let name = packages[0].file_name().unwrap().to_str().unwrap();
    assert_eq!(
        name,
        format!("brink_{}_amd64.deb", env!("CARGO_PKG_VERSION"))
    );
    let ask = |word: &str| {
        said(&output(
            Command::new("dpkg-deb").arg(word).arg(&packages[0]),
        ))
    };
    let listed = ask("--contents");
    for (file, mode) in [
        ("./usr/bin/brink", "-rwxr-xr-x"),
        ("./usr/lib/systemd/system/brink.service", "-rw-r--r--"),
        ("./etc/brink/config.yaml", "-rw-r--r--"),
        ("./etc/brink/conf.d/", "drwxr-xr-x"),
        ("./usr/share/man/man1/brink-run.1.gz", "-rw-r--r--"),
        (
            "./usr/share/bash-completion/completions/brink",
            "-rw-r--r--",
        ),
        ("./usr/share/zsh/vendor-completions/_brink", "-rw-r--r--"),
        (
            "./usr/share/fish/vendor_completions.d/brink.fish",
            "-rw-r--r--",
        ),
        ("./usr/share/doc/brink/copyright", "-rw-r--r--"),
        ("./usr/share/doc/brink/changelog.gz", "-rw-r--r--"),
    ] {
        let line = listed
            .lines()
            .find(|line| line.ends_with(&format!(" {file}")));
        let line = line.unwrap_or_else(|| panic!("no {file} in\n{listed}"));
        assert!(line.starts_with(&format!("{mode} root/root ")), "{line}");
    }
    assert!(
        listed.contains(" ./usr/bin/kubectl-brink -> brink\n"),
        "{listed}"
    );
    let fields = ask("--field");
    assert!(
        !fields.contains("@VERSION@") && !fields.contains("@SIZE@"),
        "{fields}"
    );
    assert!(fields.contains("Architecture: amd64"), "{fields}");
    // A static program depends on nothing.
    assert!(!fields.contains("Depends:"), "{fields}");
    let unpacked = tempfile::tempdir().unwrap();
    let mut unpack = Command::new("dpkg-deb");
    unpack
        .arg("--raw-extract")
        .arg(&packages[0])
        .arg(unpacked.path());
    said(&output(&mut unpack));
    let read = |path: &str| fs::read_to_string(unpacked.path().join(path)).unwrap();
    assert_eq!(read("DEBIAN/conffiles"), "/etc/brink/config.yaml\n");
    let unit = read("usr/lib/systemd/system/brink.service");
    assert!(unit.contains("\nExecStart=/usr/bin/brink run\n"), "{unit}");
    assert!(!unit.contains("/usr/local"), "{unit}");
    for script in ["postinst", "prerm", "postrm"] {
        let path = unpacked.path().join("DEBIAN").join(script);
        said(&output(Command::new("sh").arg("-n").arg(path)));
    }
}

/// Where a package's files lie, unpacked below a folder with all that dpkg alone reads.
fn unpacked(package: &Path, folder: &Path) -> PathBuf {
    let tree = folder.join("tree");
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("--raw-extract").arg(package).arg(&tree);
    said(&output(&mut unpack));
    tree
}

/// What lintian would look at beyond that.
#[test]
fn its_fields_files_and_scripts_are_as_debian_asks() {
    if !is_there("dpkg-deb") {
        skip!("needs dpkg-deb");
    }
    let folder = tempfile::tempdir().unwrap();
    let package = xtask::deb::write(&program(folder.path()), folder.path()).unwrap();
    let tree = unpacked(&package, folder.path());
    let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap();

    let control = read("DEBIAN/control");
    let field = |name: &str| {
        let mut lines = control.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in\n{control}"))
    };
    let words = ["Package", "Version", "Section", "Priority"].map(field);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(words, ["brink", version, "admin", "optional"]);
    let (name, address) = field("Maintainer").split_once(" <").unwrap();
    assert!(!name.is_empty() && address.contains('@') && address.ends_with('>'));
    assert!(field("Installed-Size").parse::<u32>().unwrap() > 0);
    let synopsis = field("Description");
    assert!(
        synopsis.len() < 80 && !synopsis.ends_with('.'),
        "{synopsis}"
    );
    let (_, rest) = control.split_once(synopsis).unwrap();
    let is_of_it = |line: &str| line.starts_with(' ') && line.len() <= 80;
    assert!(!rest.trim().is_empty(), "{control}");
    assert!(rest.lines().skip(1).all(is_of_it), "{control}");

    let listed = said(&output(
        Command::new("dpkg-deb").arg("--contents").arg(&package),
    ));
    let places = ["usr/bin/", "usr/lib/systemd/", "usr/share/", "etc/"];
    let mut configured = Vec::new();
    for line in listed.lines() {
        let mode = line.split(' ').next().unwrap();
        let (_, path) = line.rsplit_once(" ./").unwrap();
        let is_way = |place: &&str| place.starts_with(path) || path.starts_with(*place);
        assert!(places.iter().any(is_way), "{line}");
        // Neither the set-user-ID bit nor a way for others to write; what a link's own mode is means nothing.
        let is_sober = !mode.contains(['s', 't']) && mode.as_bytes()[8] == b'-';
        assert!(mode.starts_with('l') || is_sober, "{line}");
        if path.starts_with("etc/") && !path.ends_with('/') {
            configured.push(path);
        }
    }
    let conffiles = read("DEBIAN/conffiles");
    let kept = conffiles.lines().filter_map(|line| line.strip_prefix('/'));
    assert_eq!(configured, kept.collect::<Vec<&str>>());

    // dpkg calls them for more than there is to do.
    for (script, word) in [
        ("postinst", "abort-remove"),
        ("prerm", "upgrade"),
        ("postrm", "upgrade"),
    ] {
        let path = tree.join("DEBIAN").join(script);
        assert!(read(&format!("DEBIAN/{script}")).starts_with("#!/bin/sh\nset -e\n"));
        let done = output(Command::new("sh").arg(path).args([word, version]));
        assert_eq!((said(&done).as_str(), &*done.stderr), ("", &b""[..]));
    }
}

/// The static agent that the tests in guests were built with, if they were.
fn agent() -> Option<PathBuf> {
    let own = env::current_exe().unwrap();
    // Ours is in debug/deps of the same folder.
    let target = own.ancestors().nth(3).unwrap();
    let agent = target.join("vm/x86_64-unknown-linux-gnu/guest/brink");
    agent.is_file().then_some(agent)
}

#[test]
fn the_program_in_it_runs_by_the_configuration_that_comes_with_it() {
    if !is_there("dpkg-deb") {
        skip!("needs dpkg-deb");
    }
    let Some(agent) = agent() else {
        skip!("needs a static agent, which `cargo xtask vm` builds");
    };
    let folder = tempfile::tempdir().unwrap();
    let package = xtask::deb::write(&agent, folder.path()).unwrap();
    let tree = unpacked(&package, folder.path());
    let run = |words: &[&str]| {
        let mut program = Command::new(tree.join("usr/bin/brink"));
        program.env("BRINK_CONFIG", tree.join("etc/brink/config.yaml"));
        output(program.args(words))
    };
    let version = format!("brink {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(said(&run(&["--version"])), version);
    let checked = run(&["config", "check"]);
    said(&checked);
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "");
    // With code 3 something is amiss with this machine, which is not the package's fault.
    let doctor = run(&["doctor", "-o", "json"]);
    assert!(matches!(doctor.status.code(), Some(0 | 3)), "{doctor:?}");
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(report["configuredMode"], "observe");
    for check in report["checks"].as_array().unwrap() {
        let is_ours = check["id"].as_str().unwrap().starts_with("config.");
        assert!(!is_ours || check["state"] != "failed", "{check:#}");
    }
}

/// Installs it on this machine's own system, in a layer that goes again.
const LAYER: &str = r#"set -eu
package=$1 work=$2
mount -t tmpfs -o size=256M nodev "$work"
mkdir "$work/upper" "$work/inner" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/inner" "$work/root"
cp "$package" "$work/root/brink.deb"
on() { chroot "$work/root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
echo mounted
on dpkg --install /brink.deb >/dev/null
"#;

/// What `script` says where the package is installed; `Err` is why it cannot be here.
fn installed(script: &str) -> Result<String, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root".to_owned());
    }
    if !is_there("dpkg-deb") || !is_there("dpkg") {
        return Err("needs dpkg".to_owned());
    }
    let folder = tempfile::tempdir().unwrap();
    let package = xtask::deb::write(&program(folder.path()), folder.path()).unwrap();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut layer = Command::new("unshare");
    layer.args(["--mount", "--propagation", "private", "sh", "-c"]);
    layer.arg(format!("{LAYER}{script}")).arg("sh");
    let ended = output(layer.arg(&package).arg(&work));
    let [out, error] = [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text));
    let Some(said) = out.strip_prefix("mounted\n") else {
        return Err(format!(
            "needs a mount namespace with an overlay of this system: {}",
            error.trim()
        ));
    };
    assert!(ended.status.success(), "{out}{error}");
    assert!(!Path::new("/brink.deb").exists(), "the layer did not go");
    Ok(said.to_owned())
}

/// Changes the configuration, updates, removes and purges.
const LIFE: &str = r#"on test -x /usr/bin/brink
on test -d /etc/brink/conf.d
echo "installed: $(on dpkg-query --show --showformat '${db:Status-Status}' brink)"
echo "mode: enforce" >>"$work/root/etc/brink/config.yaml"
on dpkg --install /brink.deb >/dev/null
tail -n 1 "$work/root/etc/brink/config.yaml"
mkdir -p "$work/root/var/lib/brink/events"
on dpkg --remove brink >/dev/null
if on test -e /usr/bin/brink; then echo "the program stays"; fi
on test -e /etc/brink/config.yaml && on test -d /var/lib/brink && echo "removed: configuration and journal stay"
on dpkg --purge brink >/dev/null
if on test -e /etc/brink/config.yaml || on test -e /var/lib/brink; then echo "something stays"; else echo purged; fi
"#;

#[test]
fn it_is_installed_updated_and_purged_without_a_trace() {
    let said = match installed(LIFE) {
        Ok(said) => said,
        Err(reason) => skip!("{reason}"),
    };
    let expected = "installed: installed
mode: enforce
removed: configuration and journal stay
purged
";
    assert_eq!(said, expected);
}

/// Warnings of the unit are faults, and those of others on this machine are nobody's here.
const UNIT: &str = r#"if ! on systemd-analyze --help 2>/dev/null | grep -q -e --recursive-errors; then echo unasked; exit; fi
on systemd-analyze verify --man=no --recursive-errors=no /usr/lib/systemd/system/brink.service
echo "in order"
"#;

#[test]
fn its_unit_is_in_order_for_systemd() {
    let said = match installed(UNIT) {
        Ok(said) => said,
        Err(reason) => skip!("{reason}"),
    };
    if said == "unasked\n" {
        skip!("needs the systemd-analyze of systemd 250 or a newer one");
    }
    assert_eq!(said, "in order\n");
}
