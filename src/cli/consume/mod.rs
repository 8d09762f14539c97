//! `dwell consume`: prints deliveries, or runs a command for each, and settles them.

mod exec;

use std::time::Duration;

use clap::Args;
use dwell_client::wire::consume::{Delivery, Reserve};
use dwell_client::wire::settle::{Nack, Nacked, Settled};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::api::{WithJson, shown};
use super::client::{Client, DeliveryStream, GroupOf};
use super::failure::{CallResult, Failure};
use super::process::Signals;
use super::settle::refusal;
use super::{ServerArgs, output, parse};
use crate::model::limits::BATCH_MESSAGES_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::parse_span;
use crate::platform::clock::Clock;
use exec::{Exec, Outcome};

/// How long to wait after the first, second, … failure in a row. After the last one it is over.
const RETRY_AFTER_MS: [u64; 10] = [100, 200, 500, 1_000, 2_000, 3_000, 5_000, 5_000, 5_000, 5_000];

const EXAMPLES: &str = "\
Examples:
  dwell consume orders                      print and ack until Ctrl-C
  dwell consume orders --count 1 --json     one delivery with everything that is known about it
  dwell consume orders --stream --max 1000  the same over one stream, with up to 1,000 unsettled
  dwell consume orders --exec './close-order.sh' --max 4

A command gets the payload on stdin, and in its environment DWELL_TOPIC, DWELL_GROUP, DWELL_ID,
DWELL_KEY, DWELL_ATTEMPT, DWELL_PARTITION, DWELL_DUE_AT, DWELL_PUSHED_AT, DWELL_LATENESS_MS,
DWELL_CONTENT_TYPE, DWELL_TRACEPARENT, DWELL_TRACESTATE and a DWELL_META_<NAME> for every meta. Exit
code 0 acks. 126 and 127 say that the command cannot be executed or was not found: they settle
nothing and end dwell. Any other code nacks; it is the reason, with the end of stderr. While a
command runs, its deadline is extended. Ctrl-C waits for the commands that run; a second one does
not, and their messages are delivered again.";

/// Consume messages: print them, or run a command for each
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConsumeArgs {
    /// The topic
    #[arg(value_parser = parse::topic)]
    topic: TopicName,
    /// The group to consume for
    #[arg(long, default_value = "default", value_parser = parse::group)]
    group: GroupName,
    /// Deliveries to reserve at a time; with --exec, commands to run at a time [default: 10, with --exec 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=BATCH_MESSAGES_MAX as i64))]
    max: Option<u16>,
    /// End after this many deliveries
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Run this command, with sh, for each delivery
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// How long a delivery may take before it is nacked [default: the topic's]
    #[arg(long, value_name = "DURATION", value_parser = parse::visibility_timeout)]
    visibility_timeout: Option<Duration>,
    /// Only messages that were pushed at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = parse_span, conflicts_with = "stream")]
    min_age: Option<Duration>,
    /// Read one stream instead of polling
    #[arg(long, conflicts_with_all = ["count", "exec"])]
    stream: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Default)]
struct Tally {
    delivered: u64,
    acked: u64,
    nacked: u64,
    unsettled: u64,
}

pub(crate) async fn run(args: &ConsumeArgs) -> Result<(), Failure> {
    let of = GroupOf { topic: args.topic.clone(), group: args.group.clone() };
    let mut consumer = Consumer { client: args.server.client()?, of, args, clock: Clock::System, exec: None };
    let mut tally = Tally::default();
    let result = consumer.run(&mut Signals::listen()?, &mut tally).await;
    let Tally { delivered, acked, nacked, unsettled } = tally;
    let rest =
        if unsettled > 0 { format!(", {unsettled} not settled: they are delivered again") } else { String::new() };
    output::note(format_args!("{delivered} delivered, {acked} acked, {nacked} nacked{rest}"));
    result
}

struct Consumer<'a> {
    client: Client,
    of: GroupOf,
    args: &'a ConsumeArgs,
    clock: Clock,
    /// Made with the first delivery: only then the topic's visibility timeout is known.
    exec: Option<Exec>,
}

impl Consumer<'_> {
    async fn run(&mut self, signals: &mut Signals, tally: &mut Tally) -> Result<(), Failure> {
        let mut source = Source {
            client: self.client.clone(),
            of: self.of.clone(),
            args: self.args,
            clock: Clock::System,
            stream: None,
        };
        if let Some(command) = &self.args.exec {
            exec::check(command).await?;
        }
        self.say_if_topic_is_missing().await;
        let max = self.args.max.map_or(if self.args.exec.is_some() { 1 } else { 10 }, usize::from);
        while self.args.count.is_none_or(|count| tally.delivered < count) {
            let left = self.args.count.map_or(u64::MAX, |count| count - tally.delivered);
            let max = max.min(usize::try_from(left).unwrap_or(max));
            let deliveries = tokio::select! {
                deliveries = source.take(max) => deliveries?,
                _ = signals.next() => return Ok(()),
            };
            tally.delivered += deliveries.len() as u64;
            tally.unsettled += deliveries.len() as u64;
            let mut stop = false;
            let handled = self.handle(deliveries, tally);
            tokio::pin!(handled);
            loop {
                tokio::select! {
                    result = &mut handled => break result?,
                    signal = signals.next() => {
                        if stop {
                            return Err(Failure::interrupted(format!("{signal}: ended at once")));
                        }
                        stop = true;
                        output::note(format_args!("{signal}: finishing what is in hand; once more ends at once"));
                    }
                }
            }
            if stop {
                return Ok(());
            }
        }
        Ok(())
    }

    /// It is waited for, and may be misspelt.
    async fn say_if_topic_is_missing(&self) {
        if self.client.topic(&self.args.topic).await.is_err_and(|error| error.is_topic_missing()) {
            output::note(format_args!("topic {} does not exist yet: waiting for it", self.args.topic));
        }
    }

    async fn handle(&mut self, deliveries: Vec<WithJson<Delivery>>, tally: &mut Tally) -> Result<(), Failure> {
        let Some(command) = &self.args.exec else {
            for delivery in &deliveries {
                self.args.server.print.value(delivery, |delivery| shown(delivery))?;
            }
            let receipts: Vec<String> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
            let verdicts = self.settled(|| self.client.ack(&self.of, &receipts, false)).await?;
            tally.count(&verdicts);
            return Ok(());
        };
        if self.exec.is_none() {
            let timeout = match self.args.visibility_timeout {
                Some(timeout) => timeout,
                None => self.visibility_timeout().await?,
            };
            self.exec = Some(Exec::new(command, self.client.clone(), self.of.clone(), timeout));
        }
        let Some(exec) = &self.exec else { return Ok(()) };
        let mut running: FuturesUnordered<_> = deliveries.iter().map(|one| self.run_one(exec, one)).collect();
        while let Some(verdicts) = running.next().await {
            tally.count(&verdicts?);
        }
        Ok(())
    }

    /// That of the topic.
    async fn visibility_timeout(&self) -> Result<Duration, Failure> {
        let described = self.client.topic(&self.args.topic).await?;
        let timeout = described.topic.settings.visibility_timeout_ms;
        timeout.ok_or_else(|| Failure::new("the broker's answer has no `visibility_timeout_ms`"))
    }

    async fn run_one(&self, exec: &Exec, delivery: &WithJson<Delivery>) -> Result<Vec<Settled>, Failure> {
        if self.args.server.print.json {
            output::json(delivery)?
        } else {
            output::note(shown(delivery))
        }
        let receipt = delivery.receipt.clone();
        match exec.run(delivery).await {
            Outcome::Ack => {
                let receipts = [receipt];
                self.settled(|| self.client.ack(&self.of, &receipts, false)).await
            }
            Outcome::Unusable(why) => Err(Failure::new(format!(
                "the command of --exec cannot be used: {why}; {} is delivered again",
                delivery.id
            ))),
            Outcome::Nack(reason) => {
                output::note(format_args!("{} failed: {reason}", delivery.id));
                let nack = Nack::of([Nacked { reason: Some(reason), ..Nacked::from(receipt) }]);
                self.settled(|| self.client.nack(&self.of, &nack)).await
            }
        }
    }

    /// Settles, for a while again and again: repeating a settlement is harmless.
    async fn settled<F>(&self, settle: impl Fn() -> F) -> Result<Vec<Settled>, Failure>
    where
        F: Future<Output = CallResult<Vec<Settled>>>,
    {
        let mut waits = RETRY_AFTER_MS.map(Duration::from_millis).into_iter();
        loop {
            match settle().await {
                Ok(verdicts) => return Ok(verdicts),
                Err(error) => match waits.next().filter(|_| error.is_passing()) {
                    Some(wait) => self.clock.sleep(wait).await,
                    None => return Err(error.into()),
                },
            }
        }
    }
}

impl Tally {
    fn count(&mut self, verdicts: &[Settled]) {
        for verdict in verdicts {
            match &*verdict.status {
                // Pending: the decision stands and the broker repeats it.
                "acked" | "pending" => self.acked += 1,
                // Buried: that was its last attempt.
                "nacked" | "buried" => self.nacked += 1,
                _ => {
                    output::note(refusal(verdict));
                    continue;
                }
            }
            self.unsettled = self.unsettled.saturating_sub(1);
        }
    }
}

const WAIT: Duration = Duration::from_secs(30);

/// Takes deliveries of a group; waits while the broker is unavailable.
struct Source<'a> {
    client: Client,
    of: GroupOf,
    args: &'a ConsumeArgs,
    clock: Clock,
    stream: Option<DeliveryStream>,
}

impl Source<'_> {
    /// The next deliveries: at least one, and not more than `max` at a time.
    async fn take(&mut self, max: usize) -> Result<Vec<WithJson<Delivery>>, Failure> {
        let mut waits = RETRY_AFTER_MS.map(Duration::from_millis).into_iter();
        let mut first = true;
        loop {
            let error = match self.ask(max).await {
                Ok(deliveries) if deliveries.is_empty() => continue,
                Ok(deliveries) => return Ok(deliveries),
                Err(error) if error.is_topic_missing() => continue,
                Err(error) => error,
            };
            match waits.next().filter(|_| error.is_passing()) {
                Some(wait) => {
                    if std::mem::take(&mut first) {
                        output::note(format_args!("{error}; trying again"));
                    }
                    self.clock.sleep(wait).await;
                }
                None => return Err(error.into()),
            }
        }
    }

    async fn ask(&mut self, max: usize) -> CallResult<Vec<WithJson<Delivery>>> {
        let (visibility_timeout, min_age) = (self.args.visibility_timeout, self.args.min_age);
        if !self.args.stream {
            let request =
                Reserve { max: Some(max), wait: Some(WAIT), visibility_timeout, min_age, ..Reserve::default() };
            return self.client.reserve(&self.of, &request).await;
        }
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.client.stream(&self.of, max, visibility_timeout).await?,
        };
        // A stream that fails or ends is not put back: the next one is another.
        let deliveries = stream.next().await?;
        self.stream = Some(stream);
        Ok(deliveries)
    }
}
