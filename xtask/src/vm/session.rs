//! One session of guests: what they are made of, the guests side by side, and what they have found.
use std::{
    collections::VecDeque,
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;

use super::{
    Args,
    boot::{Boot, ByBoot},
    cache::InUse,
    choice,
    cpio::{Data, Entry},
    dealt, guest, image,
    job::{Answer, Cgroup, Job},
    kept,
    machine::{Accelerator, Machine, tail},
    page,
    series::Series,
    static_build::{self, Programs},
    supply::{Kernel, Supply, Tools},
    verdict::{self, Fault},
};
use crate::{
    ebpf, lock,
    test::{
        Report,
        libtest::Outcome,
        live::{self, Listed, TIME_OVER},
        report::Suite,
    },
    when::When,
    workspace,
};

const ALL: [Series; 3] = [Series::V6_1, Series::V6_12, Series::Newest];
/// Memory of a guest in MiB: the largest test needs half of it.
const MEMORY: u32 = 2048;
/// How much slower than on a processor of its own anything may be: under emulation, and with KVM.
const SLOWNESS: [u32; 2] = [10, 2];
/// The tests on a cluster, which no guest has.
const ELSEWHERE: &str = "brink-tests cluster";
/// The kernel's door to KVM; that it is there does not say that guests run.
const KVM: &str = "/dev/kvm";
/// Longest time for a guest that has nothing to do but to answer.
const TRIAL_DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for one test, in seconds: short, ordinary and full.
const TEST_DEADLINES: [u64; 3] = [150, 300, 3000];
/// Longest time for a guest: ordinary and full.
const DEADLINES: [Duration; 2] = [Duration::from_mins(150), Duration::from_hours(4)];
/// The least that is worth a boot.
const LEAST: Duration = Duration::from_secs(30);
/// Between the last begin of a test and the end of a guest that says nothing, beside one more test at the most.
const OVERRUN: Duration = Duration::from_secs(30);
/// Gives the random courses of the tests their seed: for us as for a guest.
const SEED: &str = "BRINK_SOAK_SEED";
/// Lines of a guest's console and output that are shown when it has no verdict.
const TAIL: usize = 30;

/// Runs the guests that `args` asks for.
pub(super) fn run(args: &Args) -> anyhow::Result<Report> {
    // What cannot be kept afterwards is told before.
    let published = || {
        let root = workspace::root();
        anyhow::Ok((kept::read(root)?, When::now()?, ebpf::checked_in(root)?))
    };
    let published = args.publish.then(published).transpose()?;
    let mut report = Report::default();
    let Some((tools, kernels, _in_use)) = supply(&wanted(args), &mut report)? else {
        return Ok(report);
    };
    let metadata = workspace::metadata()?;
    let programs = static_build::build(&metadata)?;
    let folder = metadata.target_directory.join("vm/guests");
    let _lock = lock::folder(&folder, "runs guests of this checkout")?;
    let mut listed = live::list_all(&programs.tests, &[])?;
    listed.retain(|suite| suite.binary.suite != ELSEWHERE);
    let mut choice = choice::choose(&listed, args.short, &args.filter)?;
    if let (Some(_), Some((known, _, objects))) = (args.minutes, &published) {
        let series: Vec<Series> = kernels.iter().map(|kernel| kernel.series).collect();
        let of = (&*series, args.cgroup, objects.as_str());
        choice = kept::missing(known, of, choice);
    }
    let length = args.minutes.map(Duration::from_mins);
    let length = length.or(args.short.then_some(dealt::SHORT));
    let end = length.map(|length| Instant::now() + length);
    let mut session = Session::new(args, (&tools, choice), folder, end)?;
    session.make_image(&programs, &kernels)?;
    session.try_kvm(&kernels)?;
    let mut guests = session.run_all(&kernels)?;
    guests.sort_by_key(|guest| guest.series);
    for guest in &guests {
        session.add(guest, &mut report);
    }
    if let Some((_, when, objects)) = &published {
        let of = (args.cgroup, when, objects.as_str());
        kept::keep(workspace::root(), of, &findings(&guests), &listed)?;
        page::write(workspace::root())?;
    }
    Ok(report)
}

/// What is published of each kernel: its guests, each of which may have had no time, or nothing to do.
fn findings(guests: &[Guest]) -> Vec<kept::Finding<'_>> {
    let of = |series: Series, boot: Boot| {
        let mut guests = guests.iter();
        let guest = guests.find(|each| each.series == series && each.boot == boot)?;
        guest.found.as_ref().map(Result::as_ref)
    };
    let found = ALL.map(|series| (series, ByBoot::new(|boot| of(series, boot))));
    let found = found.into_iter();
    found
        .filter(|(_, guests)| guests.iter().any(|(_, found)| found.is_some()))
        .collect()
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
        report.add_skipped(&format!("kernel {series}"), &["all tests"], reason);
    };
    let opened = if cfg!(target_arch = "x86_64") {
        Supply::open().and_then(|mut supply| Ok((supply.tools()?, supply)))
    } else {
        Err(anyhow::anyhow!("guests are made for x86_64 only"))
    };
    let (mut tools, mut supply) = match opened {
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
    tools.filesystems = supply.filesystems();
    Ok(Some((tools, kernels, supply.into_use()?)))
}

/// What all guests share.
struct Session<'a> {
    args: &'a Args,
    tools: &'a Tools,
    choice: ByBoot<Vec<Listed>>,
    nonce: String,
    /// Days since 1970.
    day: u64,
    initramfs: PathBuf,
    accelerator: Accelerator,
    /// Where each guest has a folder of its own.
    folder: PathBuf,
    /// When the last test must have begun.
    end: Option<Instant>,
}

/// A guest that has ended.
struct Guest {
    series: Series,
    boot: Boot,
    /// Nothing if there was no time to boot it.
    found: Option<Result<Answer, Fault>>,
    /// Emulation has tripped, and this is what came of it when it was booted once more.
    is_second: bool,
}

impl<'a> Session<'a> {
    fn new(
        args: &'a Args,
        (tools, choice): (&'a Tools, ByBoot<Vec<Listed>>),
        folder: PathBuf,
        end: Option<Instant>,
    ) -> anyhow::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Self {
            args,
            tools,
            choice,
            end,
            nonce: format!("{}-{}", std::process::id(), now.as_nanos()),
            day: now.as_secs() / (24 * 3600),
            initramfs: folder.join("initramfs.cpio"),
            accelerator: Accelerator::Emulation,
            folder,
        })
    }

    /// Writes what all guests find at their start.
    fn make_image(&self, programs: &Programs, kernels: &[Kernel]) -> anyhow::Result<()> {
        let args = self.args;
        let job = Job {
            nonce: self.nonce.clone(),
            cgroup: args.cgroup,
            tests: self.choice.clone(),
            agent: programs.agent.clone(),
            programs: programs.coverage.clone(),
            full: args.full,
            deadline: self.test_deadline(),
        };
        let parts = (&job, programs, self.tools);
        image::write(&self.initramfs, parts, kernels)
    }

    /// Takes KVM if a guest answers under it.
    fn try_kvm(&mut self, kernels: &[Kernel]) -> anyhow::Result<()> {
        let opened = File::options().read(true).write(true).open(KVM);
        let (Some(kernel), Ok(_)) = (kernels.first(), opened) else {
            return Ok(());
        };
        let trial = Machine {
            accelerator: Accelerator::Kvm,
            orders: "guest --trial".to_owned(),
            folder: self.folder.join("trial"),
            deadline: TRIAL_DEADLINE,
            ..self.machine(kernel, Boot::Whole)
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
        let beside = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(kernels.len());
        let firsts = self.firsts(kernels.len(), beside);
        let waiting = kernels.iter().zip(firsts);
        let waiting = Mutex::new(waiting.collect::<VecDeque<_>>());
        let next = || {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let left = |end: Instant| end.saturating_duration_since(Instant::now());
            let share = self
                .end
                .map(|end| dealt::share(left(end), waiting.len(), beside));
            let until = share.map(|share| Instant::now() + share);
            let (kernel, first) = waiting.pop_front()?;
            Some((kernel, first, until))
        };
        let work = || -> anyhow::Result<Vec<Guest>> {
            let mut guests = Vec::new();
            while let Some((kernel, first, until)) = next() {
                for (boot, tests) in self.choice.iter() {
                    if !tests.is_empty() {
                        guests.push(self.run_one((kernel, boot), first, until)?);
                    }
                }
            }
            Ok(guests)
        };
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

    /// After how many of its tests each kernel begins. Only where the short form ends before all are done is that of any use.
    fn firsts(&self, kernels: usize, beside: usize) -> Vec<usize> {
        if !self.args.short {
            return vec![0; kernels];
        }
        let tests = self.choice.of(Boot::Whole).iter();
        let tests = tests.map(|suite| suite.names.len()).sum();
        dealt::firsts((kernels, beside), tests, dealt::turn(workspace::root()))
    }

    /// A guest that begins with the test after the `first` ones, and none after `until`.
    fn run_one(
        &self,
        (kernel, boot): (&Kernel, Boot),
        first: usize,
        until: Option<Instant>,
    ) -> anyhow::Result<Guest> {
        let (mut machine, series) = (self.machine(kernel, boot), kernel.series);
        let ended = |found, is_second| Guest {
            series,
            boot,
            found,
            is_second,
        };
        if boot == Boot::Whole && first > 0 {
            machine.orders = format!("{} --first {first}", machine.orders);
        }
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            if left < LEAST {
                return Ok(ended(None, false));
            }
            machine.orders = format!("{} --seconds {}", machine.orders, left.as_secs());
            machine.deadline = left + self.overrun();
        }
        let found = self.boot(&machine, series)?;
        if let Err(fault) = &found {
            let console = fs::read(machine.console()).unwrap_or_default();
            let console = String::from_utf8_lossy(&console);
            if verdict::is_of_emulation(self.accelerator, fault, &console) {
                println!("{series}: emulation has tripped (`Oops: int3`); once more");
                return Ok(ended(Some(self.boot(&machine, series)?), true));
            }
        }
        Ok(ended(Some(found), false))
    }

    fn overrun(&self) -> Duration {
        Duration::from_secs(self.test_deadline()) + OVERRUN
    }

    /// Longest time for one test, in seconds.
    fn test_deadline(&self) -> u64 {
        let [short, ordinary, full] = TEST_DEADLINES;
        match (self.args.short, self.args.full) {
            (true, _) => short,
            (_, true) => full,
            _ => ordinary,
        }
    }

    fn boot(&self, machine: &Machine<'_>, series: Series) -> anyhow::Result<Result<Answer, Fault>> {
        let (image, seed) = (machine.kernel.image.display(), self.seed(series));
        println!("{series}: booting {image}, {SEED}={seed}");
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

    /// The seed that we were told ourselves, or else another one for each day and kernel: a guest has time for a part of a course alone,
    /// which is another part each time then.
    fn seed(&self, series: Series) -> String {
        let own = || seed_of(self.day, self.args.cgroup, series).to_string();
        env::var(SEED).unwrap_or_else(|_| own())
    }

    fn machine<'b>(&'b self, kernel: &'b Kernel, boot: Boot) -> Machine<'b> {
        let [ordinary, full] = DEADLINES;
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
            words: boot.words(),
            orders: match boot {
                Boot::Whole => "guest".to_owned(),
                Boot::Bare | Boot::NoPsi => format!("guest --boot {}", boot.name()),
            },
            environment: vec![
                ("PATH", "/bin".to_owned()),
                ("TMPDIR", guest::TEMPORARY.to_owned()),
                ("BRINK_TEST_SLOWNESS", slowness.to_string()),
                ("BRINK_TEST_GUEST", "1".to_owned()),
                (SEED, self.seed(kernel.series)),
            ],
            folder: self.folder.join(boot.behind(&kernel.series.to_string())),
            deadline: if self.args.full { full } else { ordinary },
            // A test may take its whole time, twice.
            silence: Some(2 * self.overrun()),
            counted: false,
            disks: Vec::new(),
        }
    }

    fn add(&self, guest: &Guest, report: &mut Report) {
        let series = guest.series;
        let place = |kernel: &str| guest.boot.behind(kernel);
        if guest.is_second {
            let kernel = place(&format!("kernel {series}"));
            println!("{kernel}: booted once more, because emulation has tripped (`Oops: int3`)");
        }
        match &guest.found {
            None => {
                let tests = self.choice.of(guest.boot);
                let names = tests.iter().flat_map(|suite| &suite.names);
                let names: Vec<&str> = names.map(String::as_str).collect();
                report.add_skipped(&place(&format!("kernel {series}")), &names, TIME_OVER);
            }
            Some(Ok(answer)) => match &answer.skipped {
                None => report.add_from(&place(&answer.kernel), answer.report.clone()),
                Some(reason) => report.add_skipped(&answer.kernel, &["all tests"], reason),
            },
            Some(Err(fault)) => {
                println!(
                    "kernel {series}: {fault}; see {}",
                    self.folder.join(place(&series.to_string())).display()
                );
                let failed = Outcome {
                    failed: 1,
                    failures: vec![fault.to_string()],
                    ..Outcome::default()
                };
                let name = place(&format!("kernel {series}"));
                report.add(Suite::told(&name, failed));
            }
        }
    }
}

/// One seed for each day, and kernel and control groups.
fn seed_of(day: u64, cgroup: Cgroup, series: Series) -> u64 {
    let place = match (cgroup, series) {
        (Cgroup::V2, Series::V6_1) => 0,
        (Cgroup::V2, Series::V6_12) => 1,
        (Cgroup::V2, Series::Newest) => 2,
        (Cgroup::V1, Series::V6_1) => 3,
        (Cgroup::V1, Series::V6_12) => 4,
        (Cgroup::V1, Series::Newest) => 5,
    };
    10 * day + place
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
    use std::collections::BTreeSet;

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
    fn each_day_and_kernel_has_a_seed_of_its_own() {
        let mut seeds = BTreeSet::new();
        for day in [20_000, 20_001] {
            for cgroup in [Cgroup::V1, Cgroup::V2] {
                seeds.extend(ALL.map(|series| seed_of(day, cgroup, series)));
            }
        }
        assert_eq!(seeds.len(), 2 * 2 * ALL.len());
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
