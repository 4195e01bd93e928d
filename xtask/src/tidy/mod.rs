//! `cargo xtask tidy`: the house rules that no compiler holds, checked over every file of the tree.
mod functions;
mod layering;
mod pages;
mod problem;
#[cfg(test)]
mod samples;
mod sizes;
mod text;
mod tokens;
mod top;
mod tree;
mod unsafety;
mod wording;

use anyhow::Context as _;

pub use self::{
    problem::{Problem, Weight},
    tree::{SourceFile, Tree},
};
use crate::{Verdict, workspace};

/// One rule, or a family that reads the same thing.
type Rule = fn(&Tree) -> Vec<Problem>;

const RULES: [Rule; 10] = [
    tree::unreadable,
    top::check,
    layering::check,
    unsafety::check,
    sizes::check,
    functions::check,
    wording::check,
    text::heads,
    text::lines,
    pages::check,
];

/// Options of `cargo xtask tidy`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Do not print advice, only what fails
    #[arg(long)]
    pub quiet: bool,
}

/// Checks the workspace and prints what it finds.
///
/// # Errors
/// When the tree or Cargo's view of it cannot be read.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let tree = Tree::read(workspace::root()).context("reading the tree")?;
    let problems = check(&tree);
    let (faults, advice): (Vec<_>, Vec<_>) = problems
        .iter()
        .partition(|problem| problem.weight == Weight::Fault);
    let advice_shown = advice.iter().filter(|_| !args.quiet);
    for problem in advice_shown.chain(&faults) {
        println!("{problem}");
    }
    println!(
        "tidy: {} files, {} faults, {} pieces of advice",
        tree.files.len(),
        faults.len(),
        advice.len()
    );
    Ok(Verdict::from_holds(faults.is_empty()))
}

/// Everything every rule has to say of `tree`, by file and line.
pub fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems: Vec<Problem> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    problems
}
