//! What a node changes on its machine outside the cluster's own folder, and how all of it is undone.
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{state::State, supply::Bundle};
use crate::workspace::stdout_of;

/// The address of the API server, of the kubelet, and of the service that pods find the API under: it lies on the loopback
/// interface and in the range that is set apart for tests of networks, so that it is nobody else's.
pub(super) const ADDRESS: &str = "198.18.0.1";
/// The addresses of services, of which that is the first.
pub(super) const SERVICES: &str = "198.18.0.0/24";
/// The addresses of pods, and the one that the other end of each pod's line has.
pub(super) const PODS: &str = "198.18.1.0/24";
const GATEWAY: &str = "198.18.1.1";
/// Settings that the kubelet and a pod's network change.
const SETTINGS: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
];
/// The ports that the cluster has on its address: the API server's and the kubelet's.
const PORTS: [u16; 2] = [443, 10250];
/// An interface that is there for a moment.
const TRIAL: &str = "brink-trial";
const SETTINGS_FOLDER: &str = "/proc/sys";
/// Where a kubelet and a containerd keep what they have. The node sees folders of the cluster there, and nobody else does.
const OF_NODE: [(&str, &str); 6] = [
    ("/var/lib/kubelet", "kubelet"),
    ("/var/lib/containerd", "containerd"),
    ("/run/containerd", "run"),
    ("/var/log/pods", "logs-of-pods"),
    ("/var/log/containers", "logs-of-containers"),
    ("/var/lib/cni", "network"),
];
const BUSYBOX: &str = "busybox";
/// How long the kernel may take to take away the lines of the pods.
const PATIENCE: Duration = Duration::from_secs(20);

/// The folder that the node sees at `place`.
pub(super) fn folder_of(folder: &Path, place: &str) -> PathBuf {
    let own = OF_NODE.iter().find(|(at, _)| *at == place);
    folder
        .join("node")
        .join(own.map_or("other", |(_, own)| own))
}

/// The folders of the node, each with the place where it sees it.
pub(super) fn binds(folder: &Path) -> Vec<(PathBuf, &'static str)> {
    OF_NODE
        .iter()
        .map(|(place, _)| (folder_of(folder, place), *place))
        .collect()
}

/// Notes what is there, and makes the places and the address.
///
/// # Errors
/// When one of them cannot be made.
pub(super) fn prepare(state: &mut State, folder: &Path, bundle: &Bundle) -> anyhow::Result<()> {
    // `down` needs it, and the cache may be emptied at any time.
    fs::copy(bundle.program(BUSYBOX), folder.join(BUSYBOX)).context("copying busybox")?;
    for name in SETTINGS {
        let path = Path::new(SETTINGS_FOLDER).join(name);
        // What this kernel has not got, nobody changes.
        if let Ok(value) = fs::read_to_string(&path) {
            state.settings.insert(path, value.trim().to_owned());
        }
    }
    for (own, place) in binds(folder) {
        fs::create_dir_all(&own).with_context(|| format!("making {}", own.display()))?;
        state.folders.extend(missing(Path::new(place)));
    }
    state.write(folder)?;
    for place in &state.folders {
        fs::create_dir_all(place).with_context(|| format!("making {}", place.display()))?;
    }
    if has_address(folder)? {
        bail!(
            "an interface has {ADDRESS} already, and the cluster needs it: is there another cluster?"
        );
    }
    stdout_of(ip(folder).args(["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"]))
        .context("giving the loopback interface the cluster's address")?;
    require_ports()?;
    require_lines(folder)
}

/// Whoever listens on a port of every address has it of ours too.
fn require_ports() -> anyhow::Result<()> {
    for port in PORTS {
        TcpListener::bind((ADDRESS, port)).with_context(|| {
            format!("port {port} of {ADDRESS} cannot be had: end what listens on {port} of every address (ss -ltnp)")
        })?;
    }
    Ok(())
}

/// Tries what every pod gets: a line with two ends.
fn require_lines(folder: &Path) -> anyhow::Result<()> {
    stdout_of(ip(folder).args(["link", "add", TRIAL, "type", "veth"]))
        .context("this kernel gives no pairs of virtual interfaces (veth), which the network of pods is made of")?;
    stdout_of(ip(folder).args(["link", "del", TRIAL])).map(drop)
}

/// Undoes what was noted, when nobody of the cluster runs any more.
///
/// # Errors
/// When something stays as the cluster made it.
pub(super) fn restore(state: &State) -> anyhow::Result<()> {
    if state.is_of_this_boot() {
        for (path, value) in &state.settings {
            fs::write(path, value).with_context(|| format!("setting {} back", path.display()))?;
        }
    }
    for place in state.folders.iter().rev() {
        match fs::remove_dir(place) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                eprintln!(
                    "cluster: leaving {}: somebody else has put something there",
                    place.display()
                );
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", place.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes the address away, and waits until the lines of the pods are gone, as they go with their network namespaces.
///
/// # Errors
/// When they stay.
pub(super) fn clear_network(folder: &Path) -> anyhow::Result<()> {
    // Left by an `up` that was killed between two steps.
    if Path::new("/sys/class/net").join(TRIAL).exists() {
        stdout_of(ip(folder).args(["link", "del", TRIAL]))
            .context("removing a line that was tried")?;
    }
    let own = format!("{ADDRESS}/32");
    if has_address(folder)? {
        stdout_of(ip(folder).args(["address", "del", &own, "dev", "lo"]))
            .with_context(|| format!("taking {own} from the loopback interface"))?;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let left = interfaces_with(folder, GATEWAY)?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("these interfaces of pods stay: {}", left.join(", "));
        }
        sleep(Duration::from_millis(50));
    }
}

/// Whether the loopback interface has the cluster's address.
///
/// # Errors
/// When nobody can tell.
pub(super) fn has_address(folder: &Path) -> anyhow::Result<bool> {
    Ok(!interfaces_with(folder, ADDRESS)?.is_empty())
}

fn interfaces_with(folder: &Path, address: &str) -> anyhow::Result<Vec<String>> {
    let listed =
        stdout_of(ip(folder).args(["-o", "address", "show"])).context("listing addresses")?;
    Ok(with_address(&listed, address))
}

/// Of lines like `1: lo    inet 127.0.0.1/8 scope host lo`, the names of the interfaces with that address.
fn with_address(listed: &str, address: &str) -> Vec<String> {
    let one = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let name = fields.next()?;
        let mut found = fields.filter_map(|field| field.split('/').next());
        found.any(|field| field == address).then(|| name.to_owned())
    };
    listed.lines().filter_map(one).collect()
}

/// The cluster's own `ip`, or the system's where the cluster has none any more.
fn ip(folder: &Path) -> Command {
    let busybox = folder.join(BUSYBOX);
    let mut command = if busybox.is_file() {
        let mut command = Command::new(busybox);
        command.arg("ip");
        command
    } else {
        Command::new("ip")
    };
    command.env("LC_ALL", "C");
    command
}

/// The folders on the way to `place` that are not there yet, from the outmost.
fn missing(place: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = place
        .ancestors()
        .take_while(|above| !above.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_their_address() {
        let listed = "1: lo    inet 127.0.0.1/8 scope host lo\n1: lo    inet 198.18.0.1/32 scope global lo\n\
                      7: veth12@if2    inet 198.18.1.1/32 scope global veth12\n";
        assert_eq!(with_address(listed, ADDRESS), ["lo"]);
        assert_eq!(with_address(listed, GATEWAY), ["veth12@if2"]);
        assert!(with_address(listed, "198.18.1.10").is_empty());
    }

    #[test]
    fn only_folders_that_were_not_there_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let [there, below] = ["a", "a/b/c"].map(|name| folder.path().join(name));
        fs::create_dir(&there).unwrap();
        assert_eq!(missing(&below), [folder.path().join("a/b"), below.clone()]);
        fs::create_dir_all(&below).unwrap();
        let state = State {
            folders: vec![folder.path().join("a/b"), below.clone()],
            ..State::default()
        };
        restore(&state).unwrap();
        assert!(there.exists() && !folder.path().join("a/b").exists());
        restore(&state).unwrap();
    }

    #[test]
    fn what_somebody_else_put_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("kubelet");
        fs::create_dir_all(place.join("pki")).unwrap();
        let state = State {
            folders: vec![place.clone()],
            ..State::default()
        };
        restore(&state).unwrap();
        assert!(place.join("pki").exists());
    }
}
