//! `brink demo`: a real crossing on the real kernel, in cgroups of its own.

use std::io::{self, Write as _};
use std::time::Duration;

use brink_core::base::Quantity;

use super::exit::{CliError, Exit};
use super::options::FormatArgs;
use super::output::{Data, Format};
use crate::config::RunMode;
use crate::demo::{self, Outcome, Show, WorkloadState};
use crate::doctor::rights;
use crate::record::page;
use crate::record::text::unsigned;
use crate::terminal::{Paint, is_coloured, painted};

/// The smallest node that three workloads fit in, and the largest that harms nobody.
const SIZES: std::ops::RangeInclusive<u64> = 96 << 20..=4 << 30;
/// Characters of a bar.
const BAR: u16 = 30;

/// Options of `brink demo`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink demo
  brink demo --size 512Mi -o json

Three workloads run inside one bounded control group; one of them leaks, and is the one that goes. It takes some \
seconds and a minute at most, needs root, and leaves nothing behind.")]
pub struct Args {
    /// Memory of the bounded group that plays the node
    #[arg(
        long,
        default_value = "256Mi",
        value_name = "SIZE",
        allow_hyphen_values = true
    )]
    pub size: String,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Runs the demonstration.
///
/// # Errors
/// What keeps it from running.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let bytes = size(&args.size)?;
    if !rustix::process::geteuid().is_root() {
        let error = anyhow::anyhow!(
            "the demonstration makes cgroups and loads kernel programs, which takes root: {}",
            rights(RunMode::Enforce).found
        );
        return Err(CliError::new(Exit::Denied, error).advise("run it with sudo"));
    }
    let mut data = Data::new();
    let outcome = match args.format.output {
        Format::Text => demo::run(bytes, &mut Terminal::new())?,
        Format::Json => demo::run(bytes, &mut Silent)?,
    };
    match args.format.output {
        Format::Json => data.json(&outcome)?,
        Format::Text => print(&mut data, &outcome)?,
    }
    data.flush()?;
    Ok(if outcome.is_as_promised() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

fn size(text: &str) -> Result<u64, CliError> {
    let wrong = || {
        let error = anyhow::anyhow!("--size {text:?} is not a size from 96Mi to 4Gi");
        CliError::new(Exit::Usage, error).advise("write it as 256Mi or 1Gi")
    };
    let quantity: Quantity = text.parse().map_err(|_| wrong())?;
    let bytes = u64::try_from(quantity.value())
        .ok()
        .filter(|bytes| SIZES.contains(bytes));
    bytes.ok_or_else(wrong)
}

fn print(data: &mut Data, outcome: &Outcome) -> Result<(), CliError> {
    data.print("\n")?;
    data.print(&page(&outcome.decision, data.style()))?;
    data.print("\n")?;
    for survivor in &outcome.survivors {
        let fate = if survivor.alive {
            "lives"
        } else {
            "DIED, and should not have"
        };
        data.print(&format!("{} {fate}\n", survivor.name))?;
    }
    if outcome.left_behind.is_empty() {
        data.print("nothing is left behind: programs unloaded, cgroups removed\n")?;
    } else {
        data.print(&format!(
            "LEFT BEHIND: {}\n",
            outcome.left_behind.join(", ")
        ))?;
    }
    Ok(())
}

/// Shows nothing: the outcome says it all.
struct Silent;

/// Shows progress as talk on stderr; on a terminal the bars are drawn in place.
struct Terminal {
    /// Whether bars can be drawn over the ones before.
    redraws: bool,
    colour: bool,
    drawn: bool,
}

impl Terminal {
    fn new() -> Self {
        let stderr = io::stderr();
        let redraws = io::IsTerminal::is_terminal(&stderr);
        Self {
            redraws,
            colour: is_coloured(&stderr),
            drawn: false,
        }
    }

    fn line(&self, text: &str, paint: Option<Paint>) -> io::Result<()> {
        let text = paint.map_or_else(
            || text.to_owned(),
            |paint| painted(text, paint, self.colour),
        );
        writeln!(io::stderr(), "{text}")
    }
}

impl Show for Terminal {
    fn begin(&mut self, bytes: u64, threshold: u64) -> io::Result<()> {
        self.line(
            "brink demo: a real crossing on the real kernel",
            Some(Paint::Strong),
        )?;
        self.line(
            &format!(
                "  the node is a cgroup of {}; hard threshold memory.available<{}",
                unsigned(bytes),
                unsigned(threshold)
            ),
            None,
        )
    }

    fn agent(&mut self, standing: &str) -> io::Result<()> {
        self.line(&format!("  the agent enforces: {standing}"), None)
    }

    fn workloads(&mut self, workloads: &[WorkloadState]) -> io::Result<()> {
        for workload in workloads {
            let usage = workload
                .usage
                .map_or_else(|| "nothing".to_owned(), unsigned);
            let text = format!(
                "  {:<11} requests {:>7}, uses {usage:>7}",
                workload.name,
                unsigned(workload.request)
            );
            self.line(&text, None)?;
        }
        self.line("\nThe leaker starts to leak.", Some(Paint::Strong))
    }

    fn progress(
        &mut self,
        elapsed: Duration,
        workloads: &[WorkloadState],
        available: Option<u64>,
    ) -> io::Result<()> {
        let mut stderr = io::stderr();
        let most = workloads
            .iter()
            .filter_map(|workload| workload.usage)
            .sum::<u64>();
        let most = most + available.unwrap_or(0);
        if !self.redraws {
            return Ok(());
        }
        if self.drawn {
            write!(stderr, "\x1b[{}A", workloads.len() + 1)?;
        }
        self.drawn = true;
        for workload in workloads {
            let usage = workload.usage.unwrap_or(0);
            writeln!(
                stderr,
                "  {:<11} {:>7} {}\x1b[K",
                workload.name,
                unsigned(usage),
                bar(usage, most)
            )?;
        }
        let left = available.unwrap_or(0);
        let seconds = elapsed.as_secs_f64();
        writeln!(
            stderr,
            "  {:<11} {:>7} {}  {seconds:.1}s\x1b[K",
            "available",
            unsigned(left),
            bar(left, most)
        )
    }
}

impl Show for Silent {
    fn begin(&mut self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn agent(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn workloads(&mut self, _: &[WorkloadState]) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: Duration, _: &[WorkloadState], _: Option<u64>) -> io::Result<()> {
        Ok(())
    }
}

fn bar(amount: u64, most: u64) -> String {
    let filled = (amount.min(most) * u64::from(BAR))
        .checked_div(most)
        .unwrap_or(0);
    let filled = usize::try_from(filled).unwrap_or(0);
    format!("{:<width$}", "#".repeat(filled), width = usize::from(BAR))
}
