//! The command line of `cargo xtask`: one variant a command, one module a variant.
use clap::{Parser, Subcommand};

#[cfg(feature = "bench")]
use crate::bench::peers;
use crate::{
    Verdict, bench, ci, cluster, deb, deny, ebpf, fuzz, generate, image, monitoring, test, tidy, vm,
};

/// The project's automation.
#[derive(Debug, Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check layering, `unsafe`, file heads, sizes and wording of the tree
    Tidy(tidy::Args),
    /// Run everything that can be tested here, live-kernel tests as root included
    Test(test::Args),
    /// Write the generated files, or check that they are fresh
    Gen(generate::Args),
    /// Build the kernel objects anew and write them, or check that they are what the sources make
    Ebpf(ebpf::Args),
    /// Check dependencies: bans, licences, sources, and advisories where the database is reachable
    Deny(deny::Args),
    /// Run the live tests on the kernels that people run, in virtual machines
    Vm(vm::Args),
    /// What a virtual machine of `cargo xtask vm` runs as its first process
    #[command(hide = true)]
    Guest(vm::guest::Args),
    /// What a virtual machine of `cargo xtask bench --peers` runs
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    Compare,
    /// A model of the kubelet, for `cargo xtask bench --peers`
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    KubeletModel(peers::kubelet::Args),
    /// A real Kubernetes on this machine, for tests: built, started, tested on and removed
    Cluster(cluster::Args),
    /// Make the image of a container, from nothing but the agent's static program
    Image(image::Args),
    /// Make the package of Debian's
    Deb(deb::Args),
    /// Check metrics, alert rules and dashboard against each other and with promtool
    Monitoring(monitoring::Args),
    /// Measure, and compare with the figures that must be reached
    Bench(bench::Args),
    /// Run the entry points of what is read from outside under libFuzzer
    Fuzz(fuzz::Args),
    /// Every check of the project, in the order and with the settings of CI
    Ci(ci::Args),
}

impl Cli {
    /// Runs the chosen command.
    ///
    /// # Errors
    /// When the command could not do its work; a check that fails is `Ok(Verdict::Failed)`.
    pub fn run(self) -> anyhow::Result<Verdict> {
        match self.command {
            Command::Tidy(args) => tidy::run(&args),
            Command::Test(args) => test::run(&args),
            Command::Gen(args) => generate::run(&args),
            Command::Ebpf(args) => ebpf::run(&args),
            Command::Deny(args) => deny::run(&args),
            Command::Vm(args) => vm::run(&args),
            Command::Guest(args) => vm::guest::run(&args),
            #[cfg(feature = "bench")]
            Command::Compare => peers::inside::run(),
            #[cfg(feature = "bench")]
            Command::KubeletModel(args) => peers::kubelet::run(&args),
            Command::Cluster(args) => cluster::run(&args),
            Command::Image(args) => image::run(&args),
            Command::Deb(args) => deb::run(&args),
            Command::Monitoring(args) => monitoring::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Fuzz(args) => fuzz::run(&args),
            Command::Ci(args) => ci::run(&args),
        }
    }
}
