//! The package of Debian's: what is in it, and what becomes of a machine that it is installed on and taken off again.
#![cfg(test)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use brink_tests::skip;

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

/// Installs, changes the configuration, updates, removes and purges, on this machine's own system in a layer that goes again.
const LIFE: &str = r#"set -eu
package=$1 work=$2
mount -t tmpfs -o size=256M nodev "$work"
mkdir "$work/upper" "$work/inner" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/inner" "$work/root"
cp "$package" "$work/root/brink.deb"
on() { chroot "$work/root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
echo mounted
on dpkg --install /brink.deb >/dev/null
on test -x /usr/bin/brink
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
    if !rustix::process::geteuid().is_root() {
        skip!("needs root");
    }
    if !is_there("dpkg-deb") || !is_there("dpkg") {
        skip!("needs dpkg");
    }
    let folder = tempfile::tempdir().unwrap();
    let package = xtask::deb::write(&program(folder.path()), folder.path()).unwrap();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut life = Command::new("unshare");
    life.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        LIFE,
        "sh",
    ]);
    let ended = output(life.arg(&package).arg(&work));
    let out = String::from_utf8_lossy(&ended.stdout);
    if !out.starts_with("mounted\n") {
        let why = String::from_utf8_lossy(&ended.stderr);
        skip!(
            "needs a mount namespace with an overlay of this system: {}",
            why.trim()
        );
    }
    let expected = "mounted
installed: installed
mode: enforce
removed: configuration and journal stay
purged
";
    assert_eq!(
        said(&ended),
        expected,
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert!(!Path::new("/brink.deb").exists(), "the layer did not go");
}
