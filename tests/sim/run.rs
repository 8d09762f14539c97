//! Runs histories, each in a process of its own: many seeds, the plans that once broke something, and smaller ones of a seed that fails.

use std::collections::BTreeSet;
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::coverage::{self, Coverage};
use crate::host::Host;
use crate::ledger::judge;
use crate::lock;
use crate::numbers::Numbers;
use crate::plan::{Plan, Scenario};
use crate::shrink;
use crate::world::{START, World};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where the plan of a history comes from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// `SCENARIO`, `SEED` and `OPERATIONS`: with the commit of the simulator.
    Seed(Scenario, u64, usize),
    /// `PLAN`: a file, which stays what it is.
    File(PathBuf),
}

/// One history, exactly.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) origin: Origin,
    /// `ONLY`: these steps of the plan, and no others.
    pub(crate) only: Option<BTreeSet<usize>>,
}

impl Case {
    /// Errors: the file cannot be read, or has no plan.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let mut plan = match &self.origin {
            Origin::Seed(scenario, seed, operations) => Plan::new(*seed, *scenario, *operations),
            Origin::File(path) => {
                let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
                serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        if let Some(only) = &self.only {
            plan.keep(only);
        }
        Ok(plan)
    }

    /// What a process reads that plays it, and a person who plays it again.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = match &self.origin {
            Origin::Seed(scenario, seed, operations) => vec![
                ("SEED", seed.to_string()),
                ("SCENARIO", scenario.name().to_owned()),
                ("OPERATIONS", operations.to_string()),
            ],
            Origin::File(path) => vec![("PLAN", path.display().to_string())],
        };
        environment.extend(self.only.as_ref().map(|only| ("ONLY", Numbers(only.clone()).to_string())));
        environment
    }

    /// The command that plays it again.
    fn command(&self) -> String {
        let words: Vec<String> = self.environment().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("make sim {} VERBOSE=1", words.join(" "))
    }

    /// Writes its plan to a file that does not change with the simulator; answers where.
    fn keep(&self) -> Result<PathBuf, Failure> {
        let plan = self.plan()?;
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/sim");
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{}-{}.json", plan.scenario.name(), plan.seed));
        std::fs::write(&path, serde_json::to_string_pretty(&plan)? + "\n")?;
        Ok(path)
    }
}

pub(crate) struct Settings {
    seed: Option<u64>,
    operations: usize,
    /// `SECONDS` for all, and again as long to make a failing history smaller.
    span: Duration,
    /// `SCENARIO`; all of them otherwise.
    scenario: Option<Scenario>,
    only: Option<BTreeSet<usize>>,
    plan: Option<PathBuf>,
    /// `VERBOSE`: everything that happened.
    is_verbose: bool,
    /// `FIRST`: stops at the first history that breaks a promise, and makes it no smaller.
    is_first_enough: bool,
}

fn number<T: FromStr>(name: &str) -> Result<Option<T>, Failure> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text.parse().map_err(|_| format!("{name}={text} is no number"))?)),
        Err(_) => Ok(None),
    }
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Settings, Failure> {
        let scenario = match std::env::var("SCENARIO") {
            Ok(name) => {
                let names = Scenario::ALL.map(Scenario::name).join(", ");
                Some(Scenario::of(&name).ok_or_else(|| format!("SCENARIO={name}: one of {names}"))?)
            }
            Err(_) => None,
        };
        let only = std::env::var("ONLY").ok().map(|text| text.parse::<Numbers>()).transpose()?;
        Ok(Settings {
            seed: number("SEED")?,
            operations: number("OPERATIONS")?.unwrap_or(600),
            span: Duration::from_secs(number("SECONDS")?.unwrap_or(20)),
            scenario,
            only: only.map(|numbers| numbers.0),
            plan: std::env::var_os("PLAN").map(PathBuf::from),
            is_verbose: std::env::var_os("VERBOSE").is_some(),
            is_first_enough: std::env::var_os("FIRST").is_some(),
        })
    }

    /// The one that is asked for by a file.
    fn kept(&self) -> Option<Case> {
        self.plan.clone().map(|path| Case { origin: Origin::File(path), only: self.only.clone() })
    }

    fn case(&self, scenario: Scenario, seed: u64) -> Case {
        Case { origin: Origin::Seed(scenario, seed, self.operations), only: self.only.clone() }
    }
}

/// What one history came to.
pub(crate) struct Report {
    operations: usize,
    /// The sentences that were broken, of the first breaches.
    pub(crate) broken: Vec<String>,
    count: usize,
    digest: String,
    text: String,
    /// What it said about the lines of scripts.
    lines: String,
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Plays one history in this process, and prints what it came to as [`child`] reads it.
pub(crate) fn one(settings: &Settings) -> Result<(), Failure> {
    let by_seed = || settings.case(settings.scenario.unwrap_or(Scenario::Durable), settings.seed.unwrap_or(0));
    let plan = settings.kept().unwrap_or_else(by_seed).plan()?;
    std::panic::set_hook(Box::new(|panic| {
        // Shown if the process ends by it.
        eprintln!("{panic}");
        lock(&PANICS).push(panic.to_string());
    }));
    if settings.is_verbose {
        crate::broker_log::keep();
    }
    let is_verbose = settings.is_verbose;
    on_own_thread(plan.seed, move || play(plan, is_verbose))
}

/// Runs it on a thread whose entropy is that of a seed: the order of a hash map depends on how many were made on its thread before it, also by
/// what keeps logs.
fn on_own_thread(seed: u64, run: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    let begin = move || {
        fastrand::seed(seed);
        Host::new(seed, START).on(|| drop(RandomState::new()));
        run()
    };
    // As large as that of the main thread.
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(begin)?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn play(plan: Plan, is_verbose: bool) -> Result<(), Failure> {
    let (topics, scenario, operations) = (plan.topics.clone(), plan.scenario, plan.operations());
    let mut world = World::new(plan)?;
    let lines = coverage::is_wanted().then(|| world.count_lines());
    let (ledger, end) = world.play();
    lines.map_or(Ok(()), |lines| Coverage::of(&lines).map(|coverage| coverage.say()))?;
    let mut ledger = lock(&ledger);
    ledger.panicked(std::mem::take(&mut *lock(&PANICS)));
    ledger.add(crate::broker_log::take());
    let breaches = judge(&ledger, &topics, scenario, &end);
    if is_verbose {
        print!("{}", ledger.history(None));
    } else if let Some(breach) = breaches.first() {
        print!("{}", ledger.history(Some(&breach.id)));
    }
    // One cause often breaks many.
    for breach in breaches.iter().take(SHOWN) {
        println!("{BROKEN}{} ({} {})", breach.sentence, breach.id, breach.detail);
    }
    println!("{END}{operations} {} {:016x}", breaches.len(), ledger.digest());
    Ok(())
}

const SHOWN: usize = 8;

const BROKEN: &str = "broken: ";

const END: &str = "= ";

/// Plays a history in a process of its own: what a process has only once, such as the counters of a library, begins anew.
pub(crate) fn child(case: &Case, is_verbose: bool) -> Result<Report, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    for name in ["ONLY", "PLAN", "VERBOSE"] {
        command.env_remove(name);
    }
    command.env("SIM", "history").envs(case.environment());
    if is_verbose {
        command.env("VERBOSE", "1");
    }
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (lines, text): (Vec<&str>, Vec<&str>) =
        said.split_inclusive('\n').partition(|line| line.starts_with(coverage::LINES));
    let (lines, text) = (lines.concat(), text.concat());
    let broken = text.lines().filter_map(|line| line.strip_prefix(BROKEN)).map(sentence).collect();
    let end = text.lines().find_map(|line| line.strip_prefix(END)).unwrap_or_default();
    let words: Vec<&str> = end.split(' ').collect();
    Ok(match words[..] {
        [operations, count, digest] => {
            let (operations, count) = (operations.parse()?, count.parse()?);
            Report { operations, broken, count, digest: digest.to_owned(), text, lines }
        }
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let text = format!("{text}{errors}the history ended early: {}\n", output.status);
            let broken = vec!["a history runs to its end".to_owned()];
            Report { operations: 0, broken, count: 1, digest: String::new(), text, lines }
        }
    })
}

/// Without the message that it is about.
fn sentence(line: &str) -> String {
    line.split(" (").next().unwrap_or_default().to_owned()
}

/// Whether a history broke a promise.
static BROKEN_ONE: AtomicBool = AtomicBool::new(false);

/// Plays cases in turn, as many at a time as there are processors, while there are any and `goes_on` says so.
fn play_all(
    next: impl Fn(usize) -> Option<Case> + Sync,
    is_verbose: impl Fn(usize) -> bool + Sync,
) -> Result<Vec<(Case, Report)>, Failure> {
    let (number, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<(), Failure> {
        loop {
            let number = number.fetch_add(1, Relaxed);
            let Some(case) = next(number) else { return Ok(()) };
            let report = child(&case, is_verbose(number))?;
            if report.count > 0 {
                BROKEN_ONE.store(true, Relaxed);
            }
            lock(&done).push((number, case, report));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a worker panicked".into())))
    })?;
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_by_key(|(number, ..)| *number);
    Ok(done.into_iter().map(|(_, case, report)| (case, report)).collect())
}

/// Says what broke, makes the first one smaller, and ends with one line about all.
fn conclude(played: &[(Case, Report)], shrink_for: Duration) -> Result<(), Failure> {
    let broken: usize = played.iter().map(|(_, report)| report.count).sum();
    for (case, report) in played.iter().filter(|(_, report)| !report.broken.is_empty()) {
        println!("{}{}\n", report.text, case.command());
    }
    let first = played.iter().find_map(|(case, report)| Some((case, report.broken.first()?)));
    if let Some((case, sentence)) = first {
        let (smaller, report) = shrink::shrink(case, sentence, shrink_for)?;
        println!("smaller, and kept in {}:\n{}{}\n", smaller.keep()?.display(), report.text, smaller.command());
    }
    let operations: usize = played.iter().map(|(_, report)| report.operations).sum();
    let digest = played
        .iter()
        .fold(0_u64, |sum, (_, report)| sum.rotate_left(5) ^ u64::from_str_radix(&report.digest, 16).unwrap_or(0));
    println!("{operations} operations, {} seeds, {broken} broken promises, digest {digest:016x}", played.len());
    if broken > 0 { Err(format!("{broken} broken promises").into()) } else { Ok(()) }
}

/// Tries seeds until the time is over, or the one that is asked for.
pub(crate) fn search(settings: &Settings) -> Result<(), Failure> {
    let began = Instant::now();
    let first = settings.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let scenarios = settings.scenario.map_or(Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    let next = |number: usize| {
        if let Some(kept) = settings.kept() {
            return (number == 0).then_some(kept);
        }
        if settings.is_first_enough && BROKEN_ONE.load(Relaxed) {
            return None;
        }
        let goes_on = if settings.seed.is_some() { number < scenarios.len() } else { began.elapsed() < settings.span };
        goes_on
            .then(|| settings.case(scenarios[number % scenarios.len()], first + number as u64 / scenarios.len() as u64))
    };
    let played = play_all(next, |_| settings.is_verbose)?;
    if settings.is_verbose {
        played.iter().filter(|(_, report)| report.broken.is_empty()).for_each(|(_, report)| print!("{}", report.text));
    }
    if coverage::is_wanted() {
        let mut all = Coverage::default();
        played.iter().for_each(|(_, report)| all.hear(&report.lines));
        all.report()?;
    }
    conclude(&played, if settings.is_first_enough { Duration::ZERO } else { settings.span })
}

/// Plans of histories that once broke a promise.
const PLANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/plans");

/// Operations of each history of the suite, and how many seeds of each scenario.
const SUITE: (usize, u64) = (400, 3);

/// What `cargo test` plays: what once broke, and a few seeds of each scenario, twice, since a seed is worth nothing if it does
/// not repeat its history, also while logs are kept.
pub(crate) fn suite() -> Result<(), Failure> {
    let mut plans = std::fs::read_dir(PLANS)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Failure>>()?;
    plans.sort();
    let mut cases: Vec<Case> = plans.into_iter().map(|path| Case { origin: Origin::File(path), only: None }).collect();
    let known = cases.len();
    for seed in 1..=SUITE.1 {
        let of = |scenario| Case { origin: Origin::Seed(scenario, seed, SUITE.0), only: None };
        cases.extend(Scenario::ALL.into_iter().flat_map(|scenario| [of(scenario), of(scenario)]));
    }
    let keeps_logs = |number: usize| number >= known && (number - known) % 2 == 1;
    let mut once: Vec<(Case, Report)> = Vec::new();
    for (number, (case, report)) in play_all(|number| cases.get(number).cloned(), keeps_logs)?.into_iter().enumerate() {
        match once.last() {
            Some((_, before)) if keeps_logs(number) => {
                if before.digest != report.digest {
                    let (one, other) = (&before.digest, &report.digest);
                    return Err(format!("two runs differ, {one} {other}: {}", case.command()).into());
                }
            }
            _ => once.push((case, report)),
        }
    }
    conclude(&once, Duration::from_secs(20))
}
