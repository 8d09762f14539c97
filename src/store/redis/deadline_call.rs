//! Calls that expire: those of callers who wait for a while and then take another way. Within that time they are repeated;
//! after it Redis does nothing.

use std::time::Duration;

use super::confirmed::is_too_few;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, topics};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::PAIR_MESSAGES_MAX;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::{Clock, Instant};

/// The pause before a call is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

/// Whole milliseconds of a span, at least one.
pub(super) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// A call that changes a partition of a topic.
pub(super) struct DeadlineCall<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) partition: Partition,
    /// When whoever makes it has given up.
    pub(super) until: Instant,
}

/// What Redis said of a call.
pub(super) enum Answer {
    /// It was applied, now or before; what follows the status and the time.
    Done(Reply),
    /// The partition has not seen this descriptor yet.
    OrderedTopics,
    /// It came after its time was up, by the clock of Redis as it is now known.
    Late,
    /// A message has this version, and the call an earlier one.
    Outdated(Version),
    /// The partition does not remember the call before it, so Redis lost data. It was not applied.
    Gap,
}

impl Shared {
    /// Until when a call is valid that is made now and has until then, on Redis' clock, in ms.
    pub(super) fn valid_until(&self, until: Instant) -> u64 {
        self.clock.now().as_ms() + ms(until.since(Clock::System.instant()))
    }

    /// Calls are repeated while time is left: a repeat changes nothing, and is answered as the first one was. One that was
    /// late is made anew, once: the clock of Redis was another one than was thought.
    pub(super) async fn until_answered<T>(
        &self,
        expiring: &DeadlineCall<'_>,
        make: impl Fn() -> Result<Call>,
        read: impl Fn(Reply) -> Result<T>,
    ) -> Result<T> {
        let until = expiring.until;
        let (mut call, mut was_late, mut unknown) = (make()?, false, None);
        loop {
            let error = match self.expire(&call).await {
                Ok(Answer::Done(reply)) => return read(reply),
                Ok(Answer::OrderedTopics) => match self.roll(expiring.descriptor, expiring.partition).await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Ok(Answer::Gap) => {
                    self.suspect_loss();
                    // An earlier copy may have been applied, and lost with the rest.
                    Error::stale("Redis lost data: it does not remember the call before this one; make another call")
                }
                Ok(Answer::Late) if !was_late && Clock::System.instant() < until => {
                    (call, was_late) = (make()?, true);
                    continue;
                }
                Ok(Answer::Outdated(version)) => {
                    self.clock.witness(version);
                    Error::stale("another broker changed a message of this call just now; make another call")
                }
                Ok(Answer::Late) => {
                    Error::unavailable("the call reached Redis after its time was up and was not applied")
                }
                Err(error) => error,
            };
            let repeatable = matches!(error.kind(), Kind::OutcomeUnknown) && !is_too_few(&error);
            if error.kind() == Kind::OutcomeUnknown {
                unknown.get_or_insert(error.clone());
            }
            if !repeatable || Clock::System.instant() >= until {
                // Once one call may have been applied, no later failure makes it certain that it was not.
                return Err(unknown.unwrap_or(error));
            }
            // A connection that breaks at once would be made anew a thousand times a second.
            Clock::System.sleep(REPEAT_AFTER).await;
        }
    }

    /// Makes a call once.
    pub(super) async fn expire(&self, call: &Call) -> Result<Answer> {
        let (status, mut reply) = self.ask(call).await?;
        match status.as_str() {
            "OK" => Ok(Answer::Done(reply)),
            "BEHIND" => Ok(Answer::OrderedTopics),
            "LATE" => Ok(Answer::Late),
            "GAP" => Ok(Answer::Gap),
            "OUTDATED" => Ok(Answer::Outdated(Version::from_us(reply.text()?.parse().unwrap_or_default()))),
            "FULL" => Err(Error::new(
                Kind::Full,
                format!("a partition holds at most {PAIR_MESSAGES_MAX} messages; drain it or use more partitions"),
            )),
            _ => Err(Error::stale("the topic was changed or deleted; load it again")),
        }
    }

    /// Shows the descriptor to a partition. # Errors: `Stale` when it has seen a newer one.
    pub(super) async fn roll(&self, descriptor: &Descriptor, partition: Partition) -> Result<()> {
        let keys = self.keys.partition(&descriptor.topic, partition);
        let call = Call::new(&SCRIPTS.roll, &[&keys.generation, &keys.wake]);
        let call = call.arg(topics::write(descriptor)?).arg("").arg(0);
        topics::rolled(self.connection.eval(&call).await?)
    }
}
