//! Which runs there are, and in which order.
use anyhow::bail;

use super::{contender::Contender, wire::Run, workload::Workload};
use crate::bench::random::SplitMix64;

/// How often each contender meets each load: short and full.
const ROUNDS: [usize; 2] = [1, 4];

/// Who is compared under what.
#[derive(Debug)]
pub(super) struct Form {
    contenders: Vec<Contender>,
    workloads: Vec<Workload>,
    rounds: usize,
}

impl Form {
    /// All of the short or the full form.
    pub(super) fn whole(short: bool) -> Self {
        let [few, many] = ROUNDS;
        if short {
            Self {
                contenders: Contender::SHORT.to_vec(),
                workloads: Workload::SHORT.to_vec(),
                rounds: few,
            }
        } else {
            Self {
                contenders: Contender::ALL.to_vec(),
                workloads: Workload::FULL.to_vec(),
                rounds: many,
            }
        }
    }

    /// Those whose names have one of these words in them; where no contender's has, all of them, and so with the loads.
    ///
    /// # Errors
    /// When a word is in no name.
    pub(super) fn named(mut self, words: &[String]) -> anyhow::Result<Self> {
        let contenders = self.contenders.iter().map(|each| each.word().to_owned());
        let names: Vec<String> = contenders
            .chain(self.workloads.iter().map(|each| each.word()))
            .collect();
        let is_known = |word: &&String| names.iter().any(|name| has(name, word));
        if let Some(unknown) = words.iter().find(|word| !is_known(word)) {
            bail!(
                "no tool and no load of this form is called `{unknown}`; there are: {}",
                names.join("; ")
            );
        }
        self.contenders = chosen(self.contenders, |each| each.word().to_owned(), words);
        self.workloads = chosen(self.workloads, Workload::word, words);
        Ok(self)
    }

    /// The runs: each contender under each load, round by round, each round in an order of its own.
    pub(super) fn plan(&self, seed: u64) -> Vec<Run> {
        let cells: Vec<(Contender, Workload)> = self
            .contenders
            .iter()
            .flat_map(|contender| {
                self.workloads
                    .iter()
                    .map(|workload| (*contender, *workload))
            })
            .collect();
        let mut random = SplitMix64::new(seed);
        let order = random.rounds(cells.len(), self.rounds);
        let mut runs = Vec::new();
        for place in order {
            let Some((contender, workload)) = cells.get(place).copied() else {
                continue;
            };
            // Nobody to kill wrongly.
            if contender == Contender::Nothing && workload.is_quiet() {
                continue;
            }
            runs.push(Run {
                number: runs.len(),
                contender,
                workload,
                seed: random.next_u64(),
            });
        }
        runs
    }
}

fn has(name: &str, word: &str) -> bool {
    name.to_lowercase().contains(&word.to_lowercase())
}

fn chosen<T: Copy>(all: Vec<T>, name: impl Fn(T) -> String, words: &[String]) -> Vec<T> {
    let is_named = |each: &T| words.iter().any(|word| has(&name(*each), word));
    let found: Vec<T> = all.iter().copied().filter(is_named).collect();
    if found.is_empty() { all } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_runs() {
        let form = Form::whole(false);
        let runs = form.plan(1);
        assert_eq!(runs, form.plan(1));
        assert_ne!(runs, form.plan(2));
        let quiet = Workload::FULL.iter().filter(|load| load.is_quiet()).count();
        let all = (Contender::ALL.len() * Workload::FULL.len() - quiet) * form.rounds;
        assert_eq!(runs.len(), all);
        assert!(runs.iter().enumerate().all(|(at, run)| run.number == at));
    }

    #[test]
    fn words_narrow_tools_and_loads() {
        let count = |short, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let form = Form::whole(short).named(&words)?;
            anyhow::Ok((form.contenders.len(), form.workloads.len()))
        };
        assert_eq!(count(true, &[]).unwrap(), (4, 3));
        assert_eq!(count(false, &["OOMD"]).unwrap(), (3, 17));
        assert_eq!(count(false, &["tmpfs"]).unwrap(), (8, 2));
        assert_eq!(count(false, &["brink", "bomb"]).unwrap(), (1, 1));
    }

    #[test]
    fn a_word_that_names_nothing_is_an_error() {
        for (short, word) in [(false, "erlyoom"), (true, "nohang")] {
            let named = Form::whole(short).named(&["brink".to_owned(), word.to_owned()]);
            let error = named.unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("Brink"), "{error}");
        }
    }
}
