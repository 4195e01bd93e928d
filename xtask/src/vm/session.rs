//! One session of guests: what they are made of, the guests side by side, and what they have found.
use std::{
    collections::VecDeque,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;

use super::{
    Args,
    cache::InUse,
    cpio::{Data, Entry},
    guest, image,
    job::{Answer, Job},
    machine::{Accelerator, Machine, tail},
    page,
    series::Series,
    static_build::{self, Programs},
    supply::{Kernel, Supply, Tools},
    verdict::{self, Fault},
};
use crate::{
    test::{Report, libtest::Outcome, report::Suite},
    workspace,
};

const ALL: [Series; 3] = [Series::V6_1, Series::V6_12, Series::Newest];
/// The tests of the short form: one of each kind.
const SHORT_TESTS: [&str; 11] = [
    "every_program_runs_here",
    "the_programs_are_tried_and_gone_again",
    "the_kernel_sampler_is_the_top_rung",
    "the_leaker_dies_and_the_record_explains_it",
    "every_process_of_the_victim_dies_wherever_it_is_below",
    "a_kill_by_the_kernel_is_seen_and_its_memory_is_waited_for",
    "a_group_that_is_taken_whole_is_told_as_that",
    "without_a_type_description_of_the_kernel_it_polls",
    "nothing_stays_of_an_agent_that_was_killed",
    "free_zram_holds_an_eviction_until_it_is_gone",
    "a_node_and_its_workloads_have_the_numbers_of_their_files",
];
/// Memory of a guest in MiB: the largest test needs half of it.
const MEMORY: u32 = 2048;
/// What a kernel is told in order to be without pressure information and the memory controller.
const BARE: &str = "psi=0 cgroup_disable=memory";
/// How much slower than on a processor of its own anything may be: under emulation, and with KVM.
const SLOWNESS: [u32; 2] = [10, 2];
/// The kernel's door to KVM; that it is there does not say that guests run.
const KVM: &str = "/dev/kvm";
/// Longest time for a guest that has nothing to do but to answer.
const TRIAL_DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for one test, in seconds.
const TEST_DEADLINE: u64 = 300;
/// Longest time for a guest: short, ordinary and full.
const DEADLINES: [Duration; 3] = [
    Duration::from_mins(10),
    Duration::from_mins(45),
    Duration::from_hours(4),
];
/// Lines of a guest's console and output that are shown when it has no verdict.
const TAIL: usize = 30;

/// Runs the guests that `args` asks for.
pub(super) fn run(args: &Args) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let Some((tools, kernels, _in_use)) = supply(&wanted(args), &mut report)? else {
        return Ok(report);
    };
    let metadata = workspace::metadata()?;
    let programs = static_build::build(&metadata)?;
    let folder = metadata.target_directory.join("vm/guests");
    let mut session = Session::new(args, &tools, folder)?;
    session.make_image(&programs, &kernels)?;
    session.try_kvm(&kernels)?;
    let mut guests = session.run_all(&kernels)?;
    guests.sort_by_key(|guest| guest.series);
    for guest in &guests {
        session.add(guest, &mut report);
    }
    if args.publish {
        let whole = guests.iter().filter(|guest| !guest.is_bare);
        let answers = whole.filter_map(|guest| {
            let answer = guest.found.as_ref().ok()?;
            Some((guest.series, answer))
        });
        page::publish(workspace::root(), args.cgroup, answers)?;
    }
    Ok(report)
}

fn wanted(args: &Args) -> Vec<Series> {
    let mut wanted = if args.kernel.is_empty() {
        ALL.to_vec()
    } else {
        args.kernel.clone()
    };
    wanted.sort();
    wanted.dedup();
    wanted
}

/// Tools and kernels, which stay where they are as long as the last is kept.
type Supplied = (Tools, Vec<Kernel>, InUse);

/// Tools and kernels; what cannot be had is counted as skipped.
fn supply(wanted: &[Series], report: &mut Report) -> anyhow::Result<Option<Supplied>> {
    let mut skip = |series: Series, reason: &str| {
        report.add_skipped(&format!("kernel {series}"), "all tests", reason);
    };
    let opened = if cfg!(target_arch = "x86_64") {
        Supply::open().and_then(|mut supply| Ok((supply.tools()?, supply)))
    } else {
        Err(anyhow::anyhow!("guests are made for x86_64 only"))
    };
    let (tools, mut supply) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let reason = format!("{error:#}");
            for series in wanted {
                skip(*series, &reason);
            }
            return Ok(None);
        }
    };
    let mut kernels = Vec::new();
    for series in wanted {
        match supply.kernel(*series) {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => skip(*series, &format!("{error:#}")),
        }
    }
    if kernels.is_empty() {
        return Ok(None);
    }
    Ok(Some((tools, kernels, supply.into_use()?)))
}

/// What all guests share.
struct Session<'a> {
    args: &'a Args,
    tools: &'a Tools,
    nonce: String,
    initramfs: PathBuf,
    accelerator: Accelerator,
    /// Where each guest has a folder of its own.
    folder: PathBuf,
}

/// A guest that has ended.
struct Guest {
    series: Series,
    /// Booted without what others have.
    is_bare: bool,
    found: Result<Answer, Fault>,
}

impl<'a> Session<'a> {
    fn new(args: &'a Args, tools: &'a Tools, folder: PathBuf) -> anyhow::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Self {
            args,
            tools,
            nonce: format!("{}-{}", std::process::id(), now.as_nanos()),
            initramfs: folder.join("initramfs.cpio"),
            accelerator: Accelerator::Emulation,
            folder,
        })
    }

    /// Writes what all guests find at their start.
    fn make_image(&self, programs: &Programs, kernels: &[Kernel]) -> anyhow::Result<()> {
        let args = self.args;
        let filter = if args.short {
            SHORT_TESTS.map(str::to_owned).to_vec()
        } else {
            args.filter.clone()
        };
        let job = Job {
            nonce: self.nonce.clone(),
            cgroup: args.cgroup,
            binaries: programs.tests.clone(),
            agent: programs.agent.clone(),
            programs: programs.coverage.clone(),
            filter,
            full: args.full,
            deadline: TEST_DEADLINE,
        };
        let parts = (&job, programs, &*self.tools.busybox);
        image::write(&self.initramfs, parts, kernels)
    }

    /// Whether each kernel is booted once more without what others have.
    fn wants_bare(&self) -> bool {
        let Args { short, filter, .. } = self.args;
        let is_named = |part: &String| part.starts_with(guest::BARE_TESTS);
        *short || filter.is_empty() || filter.iter().any(is_named)
    }

    /// Takes KVM if a guest answers under it.
    fn try_kvm(&mut self, kernels: &[Kernel]) -> anyhow::Result<()> {
        let opened = File::options().read(true).write(true).open(KVM);
        let (Some(kernel), Ok(_)) = (kernels.first(), opened) else {
            return Ok(());
        };
        let trial = Machine {
            accelerator: Accelerator::Kvm,
            orders: "guest --trial",
            folder: self.folder.join("trial"),
            deadline: TRIAL_DEADLINE,
            ..self.machine(kernel)
        };
        let ended = trial.run(|_| {})?;
        let disk = fs::read(trial.disk()).context("reading a guest's disk")?;
        match verdict::judge(ended, &disk, &self.nonce) {
            Ok(_) => self.accelerator = Accelerator::Kvm,
            Err(fault) => println!("{KVM} does not serve ({fault}): processors are emulated"),
        }
        Ok(())
    }

    /// Runs a guest for each kernel, as many side by side as there are processors: each takes one.
    fn run_all(&self, kernels: &[Kernel]) -> anyhow::Result<Vec<Guest>> {
        let waiting = Mutex::new(kernels.iter().collect::<VecDeque<_>>());
        let next = || {
            waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
        };
        let work = || -> anyhow::Result<Vec<Guest>> {
            let mut guests = Vec::new();
            while let Some(kernel) = next() {
                guests.push(self.run_one(&self.machine(kernel), false)?);
                if self.wants_bare() {
                    guests.push(self.run_one(&self.bare(kernel), true)?);
                }
            }
            Ok(guests)
        };
        let beside = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(kernels.len());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..beside).map(|_| scope.spawn(work)).collect();
            let mut guests = Vec::new();
            for worker in workers {
                let found = worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a guest's thread panicked"))?;
                guests.extend(found?);
            }
            Ok(guests)
        })
    }

    fn run_one(&self, machine: &Machine<'_>, is_bare: bool) -> anyhow::Result<Guest> {
        let series = machine.kernel.series;
        let mut found = self.boot(machine, series)?;
        if let Err(fault) = &found {
            let console = fs::read(machine.console()).unwrap_or_default();
            if verdict::is_of_emulation(fault, &String::from_utf8_lossy(&console)) {
                println!("{series}: emulation has tripped (`Oops: int3`); once more");
                found = self.boot(machine, series)?;
            }
        }
        Ok(Guest {
            series,
            is_bare,
            found,
        })
    }

    fn boot(&self, machine: &Machine<'_>, series: Series) -> anyhow::Result<Result<Answer, Fault>> {
        println!("{series}: booting {}", machine.kernel.image.display());
        let ended = machine.run(|line| println!("{series}: {line}"))?;
        let seconds = ended.elapsed.as_secs();
        let disk = fs::read(machine.disk()).context("reading a guest's disk")?;
        Ok(match verdict::judge(ended, &disk, &self.nonce) {
            Ok((answer, files)) => {
                save(&files, &machine.folder)?;
                println!("{series}: {} answered after {seconds} s", answer.kernel);
                Ok(answer)
            }
            Err(fault) => {
                println!("{series}: {fault}");
                for file in [machine.complaints(), machine.console(), machine.output()] {
                    println!("--- the end of {}\n{}", file.display(), tail(&file, TAIL));
                }
                Err(fault)
            }
        })
    }

    fn machine<'b>(&'b self, kernel: &'b Kernel) -> Machine<'b> {
        let [short, ordinary, full] = DEADLINES;
        let [emulated, kvm] = SLOWNESS;
        let slowness = match self.accelerator {
            Accelerator::Emulation => emulated,
            Accelerator::Kvm => kvm,
        };
        Machine {
            tools: self.tools,
            kernel,
            initramfs: &self.initramfs,
            accelerator: self.accelerator,
            memory: MEMORY,
            words: "",
            orders: "guest",
            environment: vec![
                ("PATH", "/bin".to_owned()),
                ("TMPDIR", guest::TEMPORARY.to_owned()),
                ("BRINK_TEST_SLOWNESS", slowness.to_string()),
                ("BRINK_TEST_GUEST", "1".to_owned()),
            ],
            folder: self.folder.join(kernel.series.to_string()),
            deadline: match (self.args.short, self.args.full) {
                (true, _) => short,
                (_, true) => full,
                _ => ordinary,
            },
            silence: None,
            counted: false,
            disks: Vec::new(),
        }
    }

    fn bare<'b>(&'b self, kernel: &'b Kernel) -> Machine<'b> {
        Machine {
            words: BARE,
            orders: "guest --bare",
            folder: self.folder.join(format!("{} bare", kernel.series)),
            ..self.machine(kernel)
        }
    }

    fn add(&self, guest: &Guest, report: &mut Report) {
        let series = guest.series;
        let suffix = if guest.is_bare { " bare" } else { "" };
        let place = |kernel: &str| format!("{kernel}{suffix}");
        match &guest.found {
            Ok(answer) => match &answer.skipped {
                None => report.add_from(&place(&answer.kernel), answer.report.clone()),
                Some(reason) => report.add_skipped(&answer.kernel, "all tests", reason),
            },
            Err(fault) => {
                println!(
                    "kernel {series}: {fault}; see {}",
                    self.folder.join(place(&series.to_string())).display()
                );
                let failed = Outcome {
                    failed: 1,
                    ..Outcome::default()
                };
                let name = place(&format!("kernel {series}"));
                report.add(Suite::told(&name, failed));
            }
        }
    }
}

/// Writes the files that came back beside the logs.
fn save(files: &[Entry], folder: &Path) -> anyhow::Result<()> {
    for file in files {
        // A guest names plain files, or else it is not ours.
        let name = Path::new(&file.path)
            .file_name()
            .context("a file without a name")?;
        if let Data::Bytes(bytes) = &file.data {
            let path = folder.join(name);
            fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(line: &str, expected: &[Series]) {
        let line = Line::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(wanted(&line.args), expected);
    }

    #[test]
    fn kernels_are_chosen_by_series() {
        check("vm", &ALL);
        check("vm --short", &ALL);
        let both = [Series::V6_1, Series::Newest];
        check("vm --kernel newest --kernel 6.1 --kernel 6.1", &both);
        assert!(Line::try_parse_from(["vm", "--kernel", "5.15"]).is_err());
        assert!(Line::try_parse_from(["vm", "--short", "--full"]).is_err());
    }

    #[test]
    fn files_from_a_guest_stay_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path| Entry::new(path, 0o644, Data::Bytes(b"x".to_vec()));
        save(&[file("a.json"), file("../../b.json")], folder.path()).unwrap();
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["a.json", "b.json"]);
        assert!(save(&[file("..")], folder.path()).is_err());
    }
}
