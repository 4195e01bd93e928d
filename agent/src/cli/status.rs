//! `brink status`: signals, thresholds, rung, mode, and the order that is open.

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};
use super::output::{Data, Format};
use crate::control::protocol::{Answer, Question, Status, ThresholdState};
use crate::record::text::amount;

/// Options of `brink status`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink status
  brink status --watch
  brink status --check || echo 'a threshold is crossed, or no agent answers'")]
pub struct Args {
    /// End with code 3 if a threshold is crossed
    #[arg(long)]
    pub check: bool,
    /// Go on, one status a second
    #[arg(short, long, conflicts_with = "check")]
    pub watch: bool,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints what it says.
///
/// # Errors
/// When no agent answers.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    loop {
        let Answer::Status(status) = put(&args.socket.socket, &Question::Status)? else {
            return Err(unexpected());
        };
        let mut data = Data::new();
        match args.format.output {
            Format::Json if args.watch => data.json_line(&status)?,
            Format::Json => data.json(&status)?,
            Format::Text => print(&mut data, &status)?,
        }
        data.flush()?;
        if !args.watch {
            let crossed = args.check && status.thresholds.iter().any(|threshold| threshold.met);
            return Ok(if crossed {
                Exit::Crossed
            } else {
                Exit::Success
            });
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

fn print(data: &mut Data, status: &Status) -> Result<(), CliError> {
    let mode = match status.mode.as_str() {
        "enforcing" => "enforcing".to_owned(),
        reason => format!("observing only ({reason})"),
    };
    data.print(&format!(
        "brink {} is {mode}, memory policy {}\n",
        status.version, status.memory_policy
    ))?;
    let rung = status.rung.as_deref().unwrap_or("not known yet");
    let scheduling = status.scheduling.as_deref().unwrap_or("not known yet");
    data.print(&format!(
        "rung {rung}, guard {scheduling}, since {}\n",
        status.started.wall
    ))?;
    for reason in &status.rung_reasons {
        data.print(&format!("  not higher: {reason}\n"))?;
    }
    let absent = status.programs.iter().filter(|program| !program.running);
    for program in absent {
        let why = program.why.as_deref().unwrap_or("no reason given");
        data.print(&format!(
            "  {} ({}) does not run: {why}\n",
            program.name, program.family
        ))?;
    }
    data.print(&format!(
        "\nSignals, {} ms old\n",
        status.figures_age_ms.unwrap_or(0)
    ))?;
    for signal in &status.signals {
        let line = format!(
            "  {:<28} {:>9} of {}\n",
            signal.signal,
            amount(&signal.signal, signal.available),
            amount(&signal.signal, signal.capacity)
        );
        data.print(&line)?;
    }
    data.print("\n")?;
    let rows: Vec<Vec<String>> = status.thresholds.iter().map(row).collect();
    data.table(
        &["THRESHOLD", "VALUE", "KIND", "GRACE", "AT", "STATE"],
        &rows,
    )?;
    let conditions = if status.conditions.is_empty() {
        "none".to_owned()
    } else {
        status.conditions.join(", ")
    };
    data.print(&format!("\nconditions: {conditions}\n"))?;
    data.print(&format!(
        "{} workloads, {} of them never evicted; {} decisions in this boot, {} kills by the kernel's OOM killer\n",
        status.workloads, status.protected, status.decisions, status.oom_kills
    ))?;
    let dropped: u64 = status.rings.iter().map(|ring| ring.dropped).sum();
    if dropped + status.reports_lost > 0 {
        data.print(&format!(
            "LOST: {dropped} records in the kernel's rings, {} reports of the guard\n",
            status.reports_lost
        ))?;
    }
    Ok(())
}

fn row(threshold: &ThresholdState) -> Vec<String> {
    let state = match (threshold.met, &threshold.held) {
        (false, _) => "clear".to_owned(),
        (true, None) => format!("MET for {} ms", threshold.met_for_ms.unwrap_or(0)),
        (true, Some(held)) => format!("MET, held: {held}"),
    };
    let quantity = threshold
        .quantity
        .map(|quantity| amount(&threshold.signal, quantity));
    vec![
        threshold.signal.clone(),
        threshold.value.clone(),
        if threshold.hard { "hard" } else { "soft" }.to_owned(),
        format!("{}s", threshold.grace_seconds),
        quantity.unwrap_or_else(|| "unknown".to_owned()),
        state,
    ]
}
