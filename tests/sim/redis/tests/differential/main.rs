//! Sends the same random commands and calls of dwell's scripts to a real server and to the simulated one, and compares every
//! answer, every announcement, and again and again all that they hold.
//!
//! `make differential`, or `cargo test --release --test differential` with these in the environment: `SEED`, `OPERATIONS`
//! (20,000), `SERVER` (the program, `redis-server` of the path). Each 100,000 operations have the next seed and a server of
//! their own. The last line says how many differences there were; with any it fails.

mod calls;
mod client;
mod commands;
mod scripts;

use std::process::ExitCode;
use std::time::Instant;

use client::{Fake, Pair, Real, Server};

type Failure = Box<dyn std::error::Error>;

const DUMP_EVERY: u64 = 500;
const SHOWN: u64 = 20;
const OPERATIONS_OF_A_SEED: u64 = 100_000;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

fn run() -> Result<u64, Failure> {
    let (first, operations) = (number("SEED", 1), number("OPERATIONS", 20_000));
    let program = std::env::var("SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let (began, mut differences) = (Instant::now(), 0);
    for (seed, from) in (first..).zip((0..operations).step_by(OPERATIONS_OF_A_SEED as usize)) {
        differences += play(&program, seed, OPERATIONS_OF_A_SEED.min(operations - from))?;
    }
    println!("{operations} operations in {} s, {differences} differences", began.elapsed().as_secs());
    Ok(differences)
}

fn play(program: &str, seed: u64, operations: u64) -> Result<u64, Failure> {
    let server = Server::start(program)?;
    let mut real = Real::connect(server.socket())?;
    let version = real.version()?;
    println!("seed {seed}, {program} {version}");
    let mut pair = Pair::new(real, Fake::new(&version, seed), server.socket())?;
    let mut calls = calls::Calls::new(seed, scripts::all()?, &mut pair)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut differences = 0;
    for operation in 0..operations {
        let is_call = random.u32(..10) >= 4;
        let words = if is_call { calls.any(&mut pair)? } else { commands::any(&mut random) };
        let (answer, found) = pair.compare(&words)?;
        if is_call {
            calls.note(&answer);
        }
        // What expires soon has expired before the next look.
        let is_soon = |word: &Vec<u8>| matches!(&word[..], [b'1'..=b'9']);
        if words.iter().any(|word| word.starts_with(b"PX") || word.to_ascii_uppercase().starts_with(b"PE"))
            && words.iter().any(is_soon)
        {
            std::thread::sleep(std::time::Duration::from_millis(12));
        }
        let mut show = |text: String| {
            differences += 1;
            if differences <= SHOWN {
                println!("operation {operation}: {text}");
            }
        };
        found.into_iter().for_each(&mut show);
        if operation % DUMP_EVERY == DUMP_EVERY - 1 {
            pair.compare_announcements()?.into_iter().for_each(&mut show);
            let found = pair.compare_dumps()?;
            let differ = found.is_some();
            found.into_iter().for_each(&mut show);
            if differ || random.u8(..4) == 0 {
                pair.flush()?;
            }
        }
    }
    calls.report();
    Ok(differences)
}
