//! The container runtime's interface as Rust: messages by prost, and for each call what is asked, where, and what is answered.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use prost_build::{Config, Module, Service, ServiceGenerator};

use super::Files;
use crate::workspace;

/// What is written by hand.
const FOLDER: &str = "agent/cri/proto";
const FILE: &str = "runtime.proto";
/// What is made of it.
const MADE: &str = "runtime_v1.rs";

/// `agent/cri/src/generated`.
pub(super) fn make() -> anyhow::Result<Files> {
    let folder = workspace::root().join(FOLDER);
    let read = protox::compile([FILE], [&folder]);
    let read = read.map_err(|error| anyhow::anyhow!("{FOLDER}/{FILE}: {error:?}"))?;
    let mut config = Config::new();
    config.service_generator(Box::new(Calls));
    let modules = read.file.into_iter().map(|file| {
        let package = Module::from_protobuf_package_name(file.package());
        (package, file)
    });
    let made = config.generate(modules.collect())?;
    let mut made = made.into_values();
    let (Some(text), None) = (made.next(), made.next()) else {
        bail!("{FOLDER}/{FILE} is more than one package");
    };
    let head = format!("//! Made from `{FILE}` by `cargo xtask gen`.\n\n");
    // Prost's own comments, as our lints have them.
    let text = text.replace("ProtoBuf", "`ProtoBuf`");
    let text = formatted(&format!("{head}{text}"))?;
    Ok(Files::from([(MADE.to_owned(), text.into_bytes())]))
}

/// What a call is, as the crate's own trait has it: a client of our own needs no more of a service.
struct Calls;

impl ServiceGenerator for Calls {
    fn generate(&mut self, service: Service, text: &mut String) {
        for method in service.methods {
            let own = format!(
                "impl crate::call::Call for {} {{
                     const PATH: &'static str = \"/{}.{}/{}\";
                     type Answer = {};
                 }}\n",
                method.input_type,
                service.package,
                service.proto_name,
                method.proto_name,
                method.output_type
            );
            text.push_str(&own);
        }
    }
}

/// As `cargo fmt` would have it.
fn formatted(text: &str) -> anyhow::Result<String> {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.arg("--config-path").arg(workspace::root());
    rustfmt.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = rustfmt.spawn().context("starting rustfmt")?;
    let mut input = child.stdin.take().context("rustfmt without an input")?;
    input
        .write_all(text.as_bytes())
        .context("telling rustfmt")?;
    drop(input);
    let answer = child.wait_with_output().context("waiting for rustfmt")?;
    if !answer.status.success() {
        bail!("rustfmt: {}", answer.status);
    }
    String::from_utf8(answer.stdout).context("what rustfmt says")
}
