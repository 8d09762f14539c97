//! What is measured, and how much of it.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::latency::RATE;
use super::pending::levels;
use crate::app::config::RedisUrl;
use crate::cli::failure::Failure;
use crate::model::limits::PARTITIONS_MAX;

const EXAMPLES: &str = "\
Examples:
  dwell bench                                  the embedded store, in a temporary directory
  dwell bench --redis redis://127.0.0.1:6379   Redis, under another prefix, which is deleted
  dwell bench --quick --only life --only push  one run of some measures
  dwell bench --only scale --redis redis://127.0.0.1:6379
  dwell bench --json result.json

Measures:
  push, drain, life   messages a second stored, reserved and acked, both; library and HTTP
  cost                Redis' processor time for the life of a message, beside bare commands
  lateness            2,000 messages a second: from the due time to the receipt
  burst               50,000 messages due at the same instant: to the last ack
  pending             memory, idle cost and start with many messages that are not due
  scale               1 to 64 partitions, 1 to 4 members; only when it is named

A ratio compares with bare commands to the same Redis without scripts, a file that is fsynced, or
GET /livez of the same broker, measured in the same round. Run it on a machine, and a Redis, that
does nothing else.";

/// Measures that run unless some are named.
const MEASURES: [&str; 7] = ["push", "drain", "life", "cost", "lateness", "burst", "pending"];

/// Measure how fast dwell is on this machine, beside what the machine does without it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct BenchArgs {
    /// Use this Redis, not the embedded store
    #[arg(long, value_name = "URL", value_parser = RedisUrl::parse)]
    pub(super) redis: Option<RedisUrl>,
    /// What every Redis key begins with; nothing may be there
    #[arg(long, value_name = "NAME", value_parser = crate::cli::parse::topic, requires = "redis")]
    prefix: Option<crate::model::message::TopicName>,
    /// One run instead of five
    #[arg(long)]
    quick: bool,
    /// Messages of a throughput run, 100 to 1,000,000
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    messages: u32,
    /// Messages that are not due, 1,000 to 10,000,000; 50 times `--messages` if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pending: Option<u32>,
    /// Bytes of a payload, 1 to 65,536
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bytes: u32,
    /// Partitions of the topics
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=i64::from(PARTITIONS_MAX)))]
    partitions: u16,
    /// Only this measure; may be repeated
    #[arg(long, value_name = "MEASURE")]
    #[arg(value_parser = ["push", "drain", "life", "cost", "lateness", "burst", "pending", "scale"])]
    only: Vec<String>,
    /// Write the result to this file as well
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

impl BenchArgs {
    /// The prefix that was asked for.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.prefix.as_ref().map(crate::model::message::TopicName::as_str)
    }
}

/// How much of everything.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    pub(super) messages: usize,
    pub(super) pending: usize,
    pub(super) lateness_messages: usize,
    pub(super) burst_messages: usize,
    pub(super) bytes: usize,
    pub(super) partitions: NonZeroU16,
    /// How long nothing happens.
    pub(super) idle: Duration,
    only: Vec<String>,
    in_redis: bool,
}

impl Plan {
    pub(super) fn new(args: &BenchArgs) -> Result<Plan, Failure> {
        let count = |number: u32| usize::try_from(number).map_err(|_| Failure::usage("a number is too large"));
        let messages = count(args.messages)?;
        let partitions = NonZeroU16::new(args.partitions).ok_or_else(|| Failure::usage("no partitions"))?;
        // With fewer messages everything is shorter; the usual number gives what the measures are named after.
        Ok(Plan {
            rounds: if args.quick { 1 } else { 5 },
            messages,
            pending: args.pending.map_or(Ok((messages * 50).max(1_000)), count)?,
            lateness_messages: messages.min(RATE * 5),
            burst_messages: (messages * 5 / 2).min(50_000),
            bytes: count(args.bytes)?,
            partitions,
            idle: if messages < 10_000 { Duration::from_secs(1) } else { Duration::from_secs(20) },
            only: args.only.clone(),
            in_redis: args.redis.is_some(),
        })
    }

    /// Whether a measure is to be made.
    pub(super) fn wants(&self, measure: &str) -> bool {
        match self.only.is_empty() {
            true => MEASURES.contains(&measure),
            false => self.only.iter().any(|only| only == measure),
        }
    }

    /// Messages of a load of single ones: a lone connection waits for each, so it gets a tenth.
    pub(super) fn single_messages(&self, connections: usize) -> usize {
        if connections == 1 { (self.messages / 10).max(1) } else { self.messages }
    }

    /// Steps of the progress.
    pub(super) fn steps(&self) -> usize {
        let of = |measure: &str, steps: usize| if self.wants(measure) { steps } else { 0 };
        let speed = if ["push", "drain", "life", "scale"].iter().any(|name| self.wants(name)) { 2 } else { 0 };
        let cost = if self.in_redis { of("cost", 1) } else { 0 };
        let round = speed + cost + of("lateness", 2) + of("burst", 2) + of("scale", 1);
        round * self.rounds + of("pending", levels(self.pending))
    }
}
