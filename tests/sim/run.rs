//! Runs histories: many seeds, one after another, each in a process of its own; says what broke.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::ledger::{Breach, judge};
use crate::lock;
use crate::plan::{Action, Plan, Scenario};
use crate::world::World;

type Failure = Box<dyn std::error::Error>;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `SEED`: only this one.
    seed: Option<u64>,
    /// `OPERATIONS` of a history.
    operations: usize,
    /// `SECONDS` for all.
    seconds: u64,
    /// `SCENARIO`; all of them otherwise.
    scenario: Option<Scenario>,
    /// `VERBOSE`: everything that happened.
    is_verbose: bool,
}

fn number<T: std::str::FromStr>(name: &str) -> Result<Option<T>, Failure> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text.parse().map_err(|_| format!("{name}={text} is no number"))?)),
        Err(_) => Ok(None),
    }
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Settings, Failure> {
        let scenario = match std::env::var("SCENARIO") {
            Ok(name) => Some(Scenario::of(&name).ok_or_else(|| format!("SCENARIO={name}: durable, forgetful, …"))?),
            Err(_) => None,
        };
        Ok(Settings {
            seed: number("SEED")?,
            operations: number("OPERATIONS")?.unwrap_or(1_500),
            seconds: number("SECONDS")?.unwrap_or(20),
            scenario,
            is_verbose: std::env::var_os("VERBOSE").is_some(),
        })
    }
}

/// What one history came to.
struct Outcome {
    operations: usize,
    breaches: Vec<Breach>,
    digest: u64,
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Plays a plan in this process.
fn play(plan: Plan, is_verbose: bool) -> Result<(Outcome, String), Failure> {
    std::panic::set_hook(Box::new(|panic| lock(&PANICS).push(panic.to_string())));
    if is_verbose {
        crate::broker_log::keep();
    }
    let (topics, scenario, operations) = (plan.topics.clone(), plan.scenario, plan.operations());
    // A thread of its own: what the thread keeps, such as keys of hash maps, begins anew.
    let played = std::thread::scope(|scope| {
        let run = || -> Result<_, String> {
            fastrand::seed(plan.seed);
            let world = World::new(plan).map_err(|error| error.to_string())?;
            world.play().map_err(|error| error.to_string())
        };
        scope.spawn(run).join().unwrap_or_else(|_| Err("the simulation panicked".to_owned()))
    });
    let panics = std::mem::take(&mut *lock(&PANICS));
    let (ledger, mut end) = played.map_err(|error| format!("{error} {panics:?}"))?;
    end.failures.extend(panics);
    let mut ledger = lock(&ledger);
    ledger.add(crate::broker_log::take());
    let breaches = judge(&ledger, &topics, scenario, &end);
    let about = match (is_verbose, breaches.first()) {
        (true, _) => ledger.history(None),
        (false, Some(breach)) => ledger.history(Some(&breach.id)),
        (false, None) => String::new(),
    };
    Ok((Outcome { operations, breaches, digest: ledger.digest() }, about))
}

pub(crate) fn one(settings: &Settings) -> Result<(), Failure> {
    let scenario = settings.scenario.unwrap_or(Scenario::Durable);
    let seed = settings.seed.unwrap_or(0);
    let plan = Plan::new(seed, scenario, settings.operations);
    let (outcome, about) = play(plan, settings.is_verbose)?;
    print!("{about}");
    for breach in &outcome.breaches {
        println!("broken: {} ({} {})", breach.sentence, breach.id, breach.detail);
    }
    println!("= {} {} {:016x}", outcome.operations, outcome.breaches.len(), outcome.digest);
    Ok(())
}

/// Runs one history in a process of its own; answers what it printed, and its last line.
fn child(settings: &Settings, scenario: Scenario, seed: u64) -> Result<(String, usize, usize, u64), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env("SIM", "history").env("SEED", seed.to_string()).env("SCENARIO", scenario.name());
    command.env("OPERATIONS", settings.operations.to_string()).stdin(Stdio::null());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().find_map(|line| line.strip_prefix("= ")).map(str::to_owned);
    let Some(last) = last else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("seed {seed} of {} ended: {} {text} {errors}", scenario.name(), output.status).into());
    };
    let mut words = last.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let (operations, breaches) = (next().parse()?, next().parse()?);
    Ok((text, operations, breaches, u64::from_str_radix(next(), 16)?))
}

/// Tries seeds until the time is over, or the one that is asked for.
pub(crate) fn search(settings: &Settings) -> Result<(), Failure> {
    let (began, limit) = (Instant::now(), Duration::from_secs(settings.seconds));
    let first = settings.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let (mut operations, mut seeds, mut broken, mut digest) = (0, 0, 0, 0_u64);
    let scenarios = settings.scenario.map_or(Scenario::ALL.to_vec(), |scenario| vec![scenario]);
    let mut failed = None;
    while seeds == 0 || (settings.seed.is_none() && began.elapsed() < limit) {
        let seed = first + seeds as u64;
        let scenario = scenarios[seeds % scenarios.len()];
        let (text, played, breaches, end) = child(settings, scenario, seed)?;
        operations += played;
        seeds += 1;
        broken += breaches;
        digest = digest.rotate_left(5) ^ end;
        if breaches > 0 || settings.is_verbose {
            println!("seed {seed}, {}:\n{text}", scenario.name());
        }
        if breaches > 0 {
            failed.get_or_insert((seed, scenario));
        }
    }
    println!("{operations} operations, {seeds} seeds, {broken} broken promises, digest {digest:016x}");
    match failed {
        Some((seed, scenario)) => {
            let operations = settings.operations;
            let again = format!("make sim SEED={seed} SCENARIO={} OPERATIONS={operations}", scenario.name());
            Err(format!("{broken} broken promises; {again} shows the first ones again").into())
        }
        None => Ok(()),
    }
}

/// Plays short histories without faults in this process.
pub(crate) fn calm() -> Result<(), Failure> {
    let mut operations = 0;
    for scenario in Scenario::ALL {
        let mut plan = Plan::new(1, scenario, 150);
        plan.steps.retain(|step| matches!(step.action, Action::Operation(..)));
        let (outcome, about) = play(plan, false)?;
        if !outcome.breaches.is_empty() {
            return Err(format!("{}: {:?}\n{about}", scenario.name(), outcome.breaches).into());
        }
        operations += outcome.operations;
    }
    println!("{operations} operations, {} seeds, 0 broken promises", Scenario::ALL.len());
    Ok(())
}
