//! `dwell consume`: prints deliveries, or runs a command for each, and settles them.

mod exec;

use std::time::Duration;

use clap::Args;
use dwell_client::wire::consume::Delivery;
use dwell_client::{Ack, DeliveryStream, Error, Nack, Nacked, Release, Reserve, Settled, StreamOptions};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};

use super::contents::shown;
use super::failure::{CallError, CallResult, Failure};
use super::process::Signals;
use super::remote::{At as _, Remote};
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
code 0 acks. 126 and 127 say that the command cannot be executed or was not found: they release the
delivery, which counts as no attempt, and end dwell. Any other code nacks; it is the reason, with
the end of stderr. While a command runs, its deadline is extended. Ctrl-C waits for the commands
that run; a second one does not, and their messages are delivered again.";

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

impl ConsumeArgs {
    fn names(&self) -> (&str, &str) {
        (self.topic.as_str(), self.group.as_str())
    }
}

#[derive(Debug, Default)]
struct Tally {
    delivered: u64,
    acked: u64,
    nacked: u64,
    released: u64,
    unsettled: u64,
}

pub(crate) async fn run(args: &ConsumeArgs) -> Result<(), Failure> {
    let remote = args.server.remote()?;
    let exec = |command: &String| Exec::new(command, remote.clone(), args.topic.clone(), args.group.clone());
    let exec = args.exec.as_ref().map(exec);
    let consumer = Consumer { remote, args, clock: Clock::System, exec };
    let mut tally = Tally::default();
    let result = consumer.run(&mut Signals::listen()?, &mut tally).await;
    let Tally { delivered, acked, nacked, released, unsettled } = tally;
    let back = if released > 0 { format!(", {released} released") } else { String::new() };
    let rest =
        if unsettled > 0 { format!(", {unsettled} not settled: they are delivered again") } else { String::new() };
    output::note(format_args!("{delivered} delivered, {acked} acked, {nacked} nacked{back}{rest}"));
    result
}

struct Consumer<'a> {
    remote: Remote,
    args: &'a ConsumeArgs,
    clock: Clock,
    exec: Option<Exec>,
}

impl Consumer<'_> {
    async fn run(&self, signals: &mut Signals, tally: &mut Tally) -> Result<(), Failure> {
        let mut source = Source { remote: &self.remote, args: self.args, clock: Clock::System, stream: None };
        if let Some(command) = &self.args.exec {
            exec::check(command).await?;
        }
        self.say_if_topic_is_missing().await;
        let max = self.args.max.map_or(if self.args.exec.is_some() { 1 } else { 10 }, usize::from);
        while self.args.count.is_none_or(|count| tally.delivered < count) {
            let left = self.args.count.map_or(u64::MAX, |count| count - tally.delivered);
            let max = max.min(usize::try_from(left).unwrap_or(max));
            let taken = tokio::select! {
                taken = source.take(max) => taken?,
                _ = signals.next() => return self.give_back(source.left(), tally).await,
            };
            tally.delivered += taken.deliveries.len() as u64;
            tally.unsettled += taken.deliveries.len() as u64;
            let mut stop = false;
            let handled = self.handle(taken, tally);
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
        let Remote { client, place } = &self.remote;
        if client.topic(self.args.topic.as_str()).await.at(place).is_err_and(|error| error.is_topic_missing()) {
            output::note(format_args!("topic {} does not exist yet: waiting for it", self.args.topic));
        }
    }

    async fn handle(&self, taken: Taken, tally: &mut Tally) -> Result<(), Failure> {
        let Taken { deliveries, visibility_timeout } = taken;
        let Some((exec, visibility_timeout)) = self.exec.as_ref().zip(visibility_timeout) else {
            let mut each = deliveries.iter();
            let print = &self.args.server.print;
            if let Err(failure) = each.try_for_each(|delivery| print.value(delivery, shown)) {
                self.release(&deliveries, tally).await?;
                return Err(failure);
            }
            let receipts: Vec<String> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
            tally.count(&self.acked(&receipts).await?);
            return Ok(());
        };
        let run = |one| self.run_one(exec, one, visibility_timeout);
        let mut running: FuturesUnordered<_> = deliveries.iter().map(run).collect();
        let mut unusable = None;
        while let Some(settled) = running.next().await {
            let (verdicts, why) = settled?;
            tally.count(&verdicts);
            unusable = unusable.or(why);
        }
        unusable.map_or(Ok(()), Err)
    }

    /// Gives deliveries back that came and that nobody has begun to handle.
    async fn give_back(&self, deliveries: Vec<Delivery>, tally: &mut Tally) -> Result<(), Failure> {
        tally.delivered += deliveries.len() as u64;
        tally.unsettled += deliveries.len() as u64;
        self.release(&deliveries, tally).await
    }

    async fn release(&self, deliveries: &[Delivery], tally: &mut Tally) -> Result<(), Failure> {
        let receipts: Vec<String> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
        for receipts in receipts.chunks(BATCH_MESSAGES_MAX) {
            tally.count(&self.released(receipts).await?);
        }
        Ok(())
    }

    /// The verdict, and why no other message should be tried with this command.
    async fn run_one(
        &self,
        exec: &Exec,
        delivery: &Delivery,
        visibility_timeout: Duration,
    ) -> Result<(Vec<Settled>, Option<Failure>), Failure> {
        if self.args.server.print.json {
            output::json(delivery)?
        } else {
            output::note(shown(delivery))
        }
        let receipts = std::slice::from_ref(&delivery.receipt);
        let verdicts = match exec.run(delivery, visibility_timeout).await {
            Outcome::Ack => self.acked(receipts).await?,
            Outcome::Unusable(why) => {
                let why = format!("the command of --exec cannot be used: {why}; {} was given back", delivery.id);
                return Ok((self.released(receipts).await?, Some(Failure::new(why))));
            }
            Outcome::Nack(reason) => {
                output::note(format_args!("{} failed: {reason}", delivery.id));
                let nack = Nack::of([Nacked::from(&*delivery.receipt).reason(reason)]);
                let (client, (topic, group)) = (&self.remote.client, self.args.names());
                self.settled(|| client.nack(topic, group, nack.clone())).await?
            }
        };
        Ok((verdicts, None))
    }

    async fn acked(&self, receipts: &[String]) -> Result<Vec<Settled>, Failure> {
        let (client, (topic, group)) = (&self.remote.client, self.args.names());
        self.settled(|| client.ack(topic, group, Ack::of(receipts))).await
    }

    async fn released(&self, receipts: &[String]) -> Result<Vec<Settled>, Failure> {
        let (client, (topic, group)) = (&self.remote.client, self.args.names());
        self.settled(|| client.release(topic, group, Release::of(receipts))).await
    }

    /// Settles, for a while again and again: repeating a settlement is harmless.
    async fn settled<F>(&self, settle: impl Fn() -> F) -> Result<Vec<Settled>, Failure>
    where
        F: Future<Output = Result<Vec<Settled>, Error>>,
    {
        let mut waits = RETRY_AFTER_MS.map(Duration::from_millis).into_iter();
        loop {
            match settle().await.at(&self.remote.place) {
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
                "released" => self.released += 1,
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

struct Taken {
    deliveries: Vec<Delivery>,
    /// How long each may take. A stream does not say it.
    visibility_timeout: Option<Duration>,
}

/// Takes deliveries of a group; waits while the broker is unavailable.
struct Source<'a> {
    remote: &'a Remote,
    args: &'a ConsumeArgs,
    clock: Clock,
    stream: Option<DeliveryStream>,
}

impl Source<'_> {
    /// Deliveries that a stream has brought meanwhile. It stays open while they are settled, since closing it nacks them.
    fn left(&mut self) -> Vec<Delivery> {
        let mut left = Vec::new();
        while let Some(Some(Some(Ok(delivery)))) = self.stream.as_mut().map(|stream| stream.next().now_or_never()) {
            left.push(delivery);
        }
        left
    }

    /// The next deliveries: at least one, and not more than `max` at a time.
    async fn take(&mut self, max: usize) -> Result<Taken, Failure> {
        let mut waits = RETRY_AFTER_MS.map(Duration::from_millis).into_iter();
        let mut first = true;
        loop {
            let error = match self.ask(max).await {
                Ok(taken) if taken.deliveries.is_empty() => continue,
                Ok(taken) => return Ok(taken),
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

    async fn ask(&mut self, max: usize) -> CallResult<Taken> {
        let Remote { client, place } = self.remote;
        let (topic, group) = self.args.names();
        let (visibility_timeout, min_age) = (self.args.visibility_timeout, self.args.min_age);
        if !self.args.stream {
            let request =
                Reserve { max: Some(max), wait: Some(WAIT), visibility_timeout, min_age, ..Reserve::default() };
            let reserved = client.reserve(topic, group, request).await.at(place)?;
            let visibility_timeout = Some(reserved.visibility_timeout_ms);
            return Ok(Taken { deliveries: reserved.deliveries, visibility_timeout });
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let options = StreamOptions::default().max_in_flight(max);
                let options = visibility_timeout.into_iter().fold(options, StreamOptions::visibility_timeout);
                none.insert(client.stream(topic, group, options).await.at(place)?)
            }
        };
        let first = match stream.next().await {
            Some(Ok(delivery)) => delivery,
            // It has failed or ended: the next one is another.
            over => {
                self.stream = None;
                let ended = CallError::NoAnswer(format!("the stream from {place} has ended"));
                return Err(over.and_then(Result::err).map_or(ended, |error| place.error(error)));
            }
        };
        let mut deliveries = vec![first];
        deliveries.extend(self.left());
        Ok(Taken { deliveries, visibility_timeout: None })
    }
}
