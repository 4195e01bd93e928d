//! `brink explain`: why this one, and why not that one.

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};
use super::output::{Data, Format};
use crate::control::protocol::{Answer, Explanation, Question};
use crate::record::DecisionRecord;
use crate::record::text::{Page, amount};

/// Options of `brink explain`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink explain shop/web         where this workload stands now, and what would change it
  brink explain 17               decision 17: why its victim, and why nobody before it")]
pub struct Args {
    /// A workload as namespace/name, or the number of a decision; the latest decision if not given
    #[arg(value_name = "WORKLOAD|DECISION")]
    pub subject: Option<String>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints its answer.
///
/// # Errors
/// When no agent answers, or it knows no such workload or decision.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let question = match args
        .subject
        .as_deref()
        .map(|text| (text, text.parse::<u64>()))
    {
        None => Question::Decision { order: None },
        Some((_, Ok(order))) => Question::Decision { order: Some(order) },
        Some((text, Err(_))) => Question::ExplainWorkload {
            workload: text.to_owned(),
        },
    };
    let mut data = Data::new();
    match put(&args.socket.socket, &question)? {
        Answer::Decision(record) => print_decision(&mut data, &record, args.format.output)?,
        Answer::Explanation(why) => print_explanation(&mut data, &why, args.format.output)?,
        _ => return Err(unexpected()),
    }
    data.flush()?;
    Ok(Exit::Success)
}

fn print_decision(
    data: &mut Data,
    record: &DecisionRecord,
    format: Format,
) -> Result<(), CliError> {
    match format {
        Format::Json => data.json(record),
        Format::Text => data.print(&Page(record).to_string()),
    }
}

fn print_explanation(data: &mut Data, why: &Explanation, format: Format) -> Result<(), CliError> {
    if format == Format::Json {
        return data.json(why);
    }
    let workload = &why.workload;
    let place = why.place.map_or_else(
        || "no candidate".to_owned(),
        |place| format!("place {place} of {} for {}", why.candidates, why.signal),
    );
    data.print(&format!("{}: {place}\n", workload.full_name()))?;
    let usage = workload
        .usage
        .map_or_else(|| "unknown".to_owned(), |usage| amount(&why.signal, usage));
    data.print(&format!(
        "  uses {usage}, requested {}, priority {}\n",
        amount(&why.signal, workload.request),
        workload.priority
    ))?;
    for reason in &why.reasons {
        data.print(&format!("  {reason}\n"))?;
    }
    Ok(())
}
