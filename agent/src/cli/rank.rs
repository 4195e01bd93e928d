//! `brink rank`: who would go now, and why.

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};
use super::output::{Data, Format};
use crate::control::protocol::{Answer, Question, Ranking};
use crate::record::text::amount;

/// Options of `brink rank`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink rank
  brink rank --signal pid.available
  brink rank -o json | jq -r '.workloads[0].name'")]
pub struct Args {
    /// The signal to rank for
    #[arg(long, default_value = "memory.available", value_name = "SIGNAL")]
    pub signal: String,
    /// Places to show; all if not given
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints its ranking.
///
/// # Errors
/// When no agent answers.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let question = Question::Rank {
        signal: Some(args.signal.clone()),
    };
    let Answer::Ranking(mut ranking) = put(&args.socket.socket, &question)? else {
        return Err(unexpected());
    };
    let all = ranking.workloads.len();
    if let Some(limit) = args.limit {
        ranking.workloads.truncate(limit);
        ranking.why.truncate(limit);
    }
    let mut data = Data::new();
    match args.format.output {
        Format::Json => data.json(&ranking)?,
        Format::Text => print(&mut data, &ranking, all)?,
    }
    data.flush()?;
    Ok(Exit::Success)
}

fn print(data: &mut Data, ranking: &Ranking, all: usize) -> Result<(), CliError> {
    data.print(&format!(
        "{} of {all} workloads, first to go in front, for {}\n",
        ranking.workloads.len(),
        ranking.signal
    ))?;
    let signal = &ranking.signal;
    let rows: Vec<Vec<String>> = ranking
        .workloads
        .iter()
        .zip(1..)
        .map(|(workload, place)| {
            vec![
                place.to_string(),
                workload.full_name(),
                workload
                    .usage
                    .map_or_else(|| "unknown".to_owned(), |usage| amount(signal, usage)),
                amount(signal, workload.request),
                workload.priority.to_string(),
                workload.preference.clone(),
                workload.refusal.clone().unwrap_or_default(),
            ]
        })
        .collect();
    data.table(
        &[
            "#",
            "WORKLOAD",
            "USES",
            "REQUESTED",
            "PRIORITY",
            "PREFERENCE",
            "REFUSES",
        ],
        &rows,
    )?;
    for why in &ranking.why {
        data.print(&format!("  {why}\n"))?;
    }
    Ok(())
}
