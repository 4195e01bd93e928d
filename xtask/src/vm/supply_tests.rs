//! What serves where the archive has lost something, and what is taken from it.
use super::*;

/// An archive that nothing can be fetched from, and apt's list of what it had.
const NOWHERE: &str = "file:/nowhere";
const LIST: &str = "_nowhere_dists_trixie_main_binary-amd64_Packages";
/// What apt says of it.
const LOST: &str = "file:/nowhere trixie Release";

/// The list is one for the architecture that guests have.
fn has_apt() -> bool {
    let is_there = || Command::new("apt-cache").arg("--version").output().is_ok();
    cfg!(target_arch = "x86_64") && is_there()
}

/// A package of the list.
fn listed(name: &str, depends: &str) -> String {
    let digest = "0".repeat(64);
    format!(
        "Package: {name}\nVersion: 1\nArchitecture: amd64\nDepends: {depends}\nFilename: a.deb\nSize: 1\nSHA256: {digest}\n"
    )
}

fn image(release: u32) -> String {
    format!("linux-image-6.12.{release}-cloud-amd64")
}

/// The names of what is taken from an archive with this list.
fn chosen(list: &[String]) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let apt = Apt::of_mirror(folder.path(), NOWHERE.to_owned()).unwrap();
    let suites = apt.suites(&["trixie"]).unwrap();
    fs::write(folder.path().join("lists").join(LIST), list.join("\n")).unwrap();
    let names = |packages: Vec<Package>| packages.into_iter().map(|package| package.name);
    choose_kernel(&suites)
        .map(|packages| names(packages).collect())
        .map_err(|error| error.to_string())
}

#[test]
fn a_kernel_that_has_vanished_is_replaced_by_the_newest_of_its_series() {
    if !has_apt() {
        brink_tests::skip!("needs apt on x86_64");
    }
    let meta = listed(NEWEST_KERNEL, &image(100));
    let [older, old, new] = [9, 90, 100].map(|release| listed(&image(release), "kmod"));
    let check = |list: &[&String], expected: Option<&[String]>| {
        let list: Vec<String> = list.iter().map(|each| (*each).clone()).collect();
        let nothing = || "trixie has no whole kernel of the cloud flavour".to_owned();
        assert_eq!(
            chosen(&list),
            expected.map(<[_]>::to_vec).ok_or_else(nothing)
        );
    };
    check(&[&meta, &older, &new, &old], Some(&[image(100)]));
    check(&[&meta, &older, &old], Some(&[image(90)]));
    check(&[&older], Some(&[image(9)]));
    check(&[&meta], None);
    // Since 7.0 a kernel is several packages, and one alone is of no use.
    let modules = "linux-modules-6.12.100-cloud-amd64".to_owned();
    let split = listed(&image(100), &format!("kmod, {modules}"));
    let part = listed(&modules, "kmod");
    check(&[&meta, &split, &part, &old], Some(&[image(100), modules]));
    check(&[&meta, &split, &old], Some(&[image(90)]));
    check(&[&meta, &split], None);
}

#[test]
fn what_the_archive_does_not_give_the_cache_gives_and_else_it_is_said() {
    if !has_apt() {
        brink_tests::skip!("needs apt on x86_64");
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path()).unwrap();
    let apt = Apt::of_mirror(&cache.apt(), NOWHERE.to_owned()).unwrap();
    let mut supply = Supply {
        cache,
        apt,
        told: Vec::new(),
    };
    let lost = supply.kernel(Series::V6_12).unwrap_err();
    assert!(format!("{lost:#}").contains(LOST), "{lost:#}");
    assert!(supply.told.is_empty());

    let package = Package {
        name: image(90),
        version: "1".to_owned(),
        sha256: "1".repeat(64),
        depends: Vec::new(),
    };
    let packages = [package];
    supply.cache.add(&packages, make_kernel).unwrap();
    supply.cache.choose("6.12", &packages).unwrap();
    let kernel = supply.kernel(Series::V6_12).unwrap();
    assert_eq!(fs::read_to_string(&kernel.image).unwrap(), "a kernel");
    assert!(supply.told[0].contains(LOST), "{:?}", supply.told);
    // The packages are told apart by what they are for: another series has nothing.
    assert!(supply.kernel(Series::V6_1).is_err());
}

/// Puts a package with a kernel into a folder, as a download does.
fn make_kernel(folder: &Path) -> anyhow::Result<()> {
    let tree = tempfile::tempdir()?;
    for (file, text) in [
        (
            "DEBIAN/control",
            "Package: a\nVersion: 1\nArchitecture: amd64\nMaintainer: a\nDescription: a\n",
        ),
        ("boot/vmlinuz-6.12.90-cloud-amd64", "a kernel"),
    ] {
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, text)?;
    }
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "--build"])
        .arg(tree.path());
    stdout_of(build.arg(folder.join("a.deb"))).map(drop)
}

#[test]
fn qemu_is_of_a_release_that_has_a_good_one() {
    let of = |name: &str| suites_of_system(&format!("ID=debian\nVERSION_CODENAME={name}\n"));
    assert_eq!(of("bookworm").unwrap().last(), Some(&"bookworm-backports"));
    assert_eq!(of("\"trixie\"").unwrap().last(), Some(&"trixie"));
    let refused = of("bullseye").unwrap_err().to_string();
    assert!(refused.contains("bullseye"), "{refused}");
    assert!(suites_of_system("").is_err());
}

#[test]
fn a_kernels_own_packages_are_followed() {
    for own in [
        "linux-image-6.1.0-50-cloud-amd64",
        "linux-modules-7.2.12+deb14-cloud-amd64",
    ] {
        assert!(is_of_kernel(own), "{own}");
    }
    for other in ["linux-base", "linux-image-6.1.0-50-cloud-amd64-dbg", "kmod"] {
        assert!(!is_of_kernel(other), "{other}");
    }
}
