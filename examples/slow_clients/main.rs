//! What slow clients cost the others: `cargo run --locked --release --example slow_clients`. Needs nothing else.
//!
//! A broker on the embedded store, a crowd of slow clients and the clients that are measured are three processes (all of
//! them this very program). The others send at a fixed rate, four times: without the crowd, with it, without, with. At the
//! end stands a table; the exit code is 1 if the crowd more than doubled the 99th percentile of the others.

mod broker;
mod crowd;
mod others;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::crowd::Crowd;
use self::others::{Measured, Others};

/// How long the others send before they are measured.
const SETTLING: Duration = Duration::from_secs(5);

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// What slow clients cost the others
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    crowd: Crowd,
    #[command(flatten)]
    others: Others,
    /// Seconds of each of the four measurements
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The broker, as a process of its own
    #[command(hide = true)]
    Broker,
    /// The crowd, as a process of its own
    #[command(hide = true)]
    Crowd {
        /// Where the broker listens
        address: String,
        #[command(flatten)]
        crowd: Crowd,
    },
}

/// Another process of this program. It is killed when dropped.
struct Other {
    child: Child,
    /// The first line that it says, when it is ready.
    said: String,
}

impl Other {
    fn start(arguments: &[String]) -> Outcome<Other> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no stdout")?;
        let mut other = Other { child, said: String::new() };
        BufReader::new(out).read_line(&mut other.said)?;
        other.said.truncate(other.said.trim_end().len());
        if other.said.is_empty() { Err("a process ended before it was ready".into()) } else { Ok(other) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match args.part {
        Some(Part::Broker) => broker::run().await.map(|()| true),
        Some(Part::Crowd { address, crowd }) => crowd.run(&address).await.map(|()| true),
        None => compare(args).await,
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("slow_clients: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the crowd did not double the 99th percentile.
async fn compare(args: Args) -> Outcome<bool> {
    let broker = Other::start(&["broker".to_owned()])?;
    let (address, span) = (broker.said.clone(), Duration::from_secs(args.seconds));
    println!("{} beside {} a second, each {} s", args.crowd, args.others.rate, args.seconds);
    println!("| crowd | request | requests | failed | p50, ms | p99, ms | slowest, ms |");
    println!("|---|---|---|---|---|---|---|");
    let mut p99 = [Vec::new(), Vec::new()];
    for is_crowded in [false, true, false, true] {
        let crowd = is_crowded.then(|| Other::start(&args.crowd.arguments(&address))).transpose()?;
        // The first requests open connections and files, or meet what the crowd before left behind: thousands of
        // connections that end at once.
        args.others.measure(&address, SETTLING).await?;
        let measured = args.others.measure(&address, span).await?;
        drop(crowd);
        for measured in &measured {
            println!("| {} | {measured} |", if is_crowded { "there" } else { "none" });
        }
        p99[usize::from(is_crowded)].push(measured);
    }
    Ok(verdict(&p99))
}

fn verdict([without, with]: &[Vec<Vec<Measured>>; 2]) -> bool {
    let mut is_kept = true;
    for (at, kind) in without[0].iter().enumerate() {
        let mean = |runs: &[Vec<Measured>]| runs.iter().map(|run| run[at].p99).sum::<Duration>() / runs.len() as u32;
        let ratio = mean(with).as_secs_f64() / mean(without).as_secs_f64();
        let failed: usize = with.iter().map(|run| run[at].failed).sum();
        println!("{}: the 99th percentile with the crowd is {ratio:.2} of that without, {failed} failed", kind.name);
        is_kept &= ratio <= 2.0 && failed == 0;
    }
    is_kept
}
