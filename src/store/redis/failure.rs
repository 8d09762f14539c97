//! What an error of Redis means for the call that met it, and what can be done about it.
//!
//! A call that Redis *answered* with an error was not applied: plain commands change one key or nothing, and scripts are
//! refused before their first line. Redis checks the state that forbids writes (LOADING, READONLY, MASTERDOWN,
//! CLUSTERDOWN, NOREPLICAS, MISCONF, OOM) when a script with flags begins, and not again while it runs; BUSY, the login
//! and the limit of clients come before that. Only a call that was *not* answered may have been applied. (One exception:
//! [`is_forbidden_midway`].)
//!
//! Calls that expire are those of callers who wait for a while and then take another way. Within that time they are
//! repeated; after it Redis does nothing.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::confirmed::is_too_few;
use super::scripts::{Call, Reply, SCRIPTS};
use super::{Shared, topics};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::PAIR_MESSAGES_MAX;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::{Clock, Instant};

const NOSCRIPT: &str = "Redis: NOSCRIPT";

pub(super) const NOPERM_REMEDY: &str = "it needs the permissions of deploy/redis.acl";

const REMEDIES: [(&str, &str); 14] = [
    ("LOADING", "it reads its files and answers when that is done"),
    ("READONLY", "it is a replica now; dwell connects anew to find the primary"),
    ("MASTERDOWN", "it is a replica that lost its primary; dwell connects anew to find the primary"),
    ("CLUSTERDOWN", "a part of the cluster has no primary; look at `CLUSTER INFO`"),
    ("NOREPLICAS", "fewer replicas follow than `min-replicas-to-write` asks for"),
    ("OOM", "`maxmemory` is reached: consume, purge dead messages, or give it more memory"),
    ("MISCONF", "it could not write its snapshot; look at its log and its disk"),
    ("BUSY", "a script of another program runs; `SCRIPT KILL` ends it"),
    ("NOAUTH", "it asks for a password; put one into `redis.url`"),
    ("WRONGPASS", "user or password of `redis.url` are wrong, or the user is disabled"),
    ("NOPERM", NOPERM_REMEDY),
    ("MOVED", "it is a node of a Redis Cluster; use redis+cluster:// in `redis.url`"),
    ("TRYAGAIN", "the partition is being moved to another node of the cluster"),
    ("ERR max number of clients reached", "raise `maxclients`, or find who leaves connections open"),
];

pub(super) fn of_call(error: &RedisError) -> Error {
    let Some(code) = error.code() else {
        // Nothing was sent.
        if error.is_connection_refusal() || error.kind() == ErrorKind::AuthenticationFailed {
            return of_connecting(error);
        }
        return Error::outcome_unknown(format!("Redis did not answer ({error})"));
    };
    let said = format!("{code} {}", error.detail().unwrap_or_default());
    match code {
        "WRONGTYPE" => Error::corrupt(format!("Redis: {said}; another program uses dwell's keys")),
        "ERR" if is_forbidden_midway(&said) => Error::unavailable(format!("Redis: NOPERM {said}: {NOPERM_REMEDY}")),
        "ERR" if said.contains("user_script") || said.contains("script:") => Error::corrupt(format!("Redis: {said}")),
        _ => {
            let said_with_remedy = remedy(&said).map_or(said.clone(), |remedy| format!("{said}: {remedy}"));
            if refuses(code, &said) {
                refused(&said_with_remedy)
            } else {
                Error::unavailable(format!("Redis: {said_with_remedy}"))
            }
        }
    }
}

/// What an answer means that no waiting changes.
pub(super) fn refused(said: &str) -> Error {
    Error::refused(format!("Redis refuses: {said}"))
}

/// Whether it is the configuration that Redis does not accept, and not the state it is in.
fn refuses(code: &str, said: &str) -> bool {
    const CODES: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED"];
    const SENTENCES: [&str; 4] = [
        "cluster support disabled",
        "unknown command",
        "AUTH <password> called without any password",
        "invalid password",
    ];
    CODES.contains(&code) || SENTENCES.iter().any(|sentence| said.contains(sentence))
}

/// What a connection that was not made means: the call was not sent.
pub(super) fn of_connecting(error: &RedisError) -> Error {
    if error.code().is_some() {
        return of_call(error);
    }
    Error::unavailable(format!("Redis cannot be reached ({error}); check that it runs and that `redis.url` is right"))
}

/// What a new connection means whose first calls failed. A Redis with too many clients says so and closes; the client
/// library meets the end of the connection before it reads why. So do ports that speak TLS.
pub(super) fn of_greeting(error: &RedisError) -> Error {
    if error.is_connection_dropped() && !error.is_connection_refusal() {
        return Error::unavailable(format!(
            "Redis closes new connections at once ({error}): `maxclients` may be reached, or TLS is not agreed on; its log \
             knows"
        ));
    }
    of_connecting(error)
}

/// A new connection whose history cannot be looked at. It is no answer to a call, and no redirection of one.
pub(super) fn of_looking(error: &RedisError) -> Error {
    let error = of_call(error);
    let detail = format!("the connection is of no use: {}", error.detail());
    if error.is_refusal() { Error::refused(detail) } else { Error::unavailable(detail) }
}

pub(super) fn unanswered() -> Error {
    Error::outcome_unknown("Redis did not answer")
}

/// What a connection means on which nobody answers, before any call was sent.
pub(super) fn silent() -> Error {
    Error::unavailable("Redis cannot be reached (it does not answer); check that it runs and that `redis.url` is right")
}

/// Whether the next call needs another connection: the primary is elsewhere, or permissions were taken away.
pub(super) fn asks_for_another(error: &RedisError) -> bool {
    match error.code() {
        Some("READONLY" | "MASTERDOWN" | "NOPERM") => true,
        Some("ERR") => is_forbidden_midway(error.detail().unwrap_or_default()),
        _ => false,
    }
}

/// Whether a script was refused in its middle, because a permission was taken away since the connection was made. Only
/// then may half of it be done. It is repeated under the same ids or the same line, which are written last, and the
/// repeat does the rest.
fn is_forbidden_midway(said: &str) -> bool {
    said.contains("The user executing the script can't") || said.contains("ACL failure in script")
}

/// Where a node of a cluster sends a call that it did not apply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// To the node that has the slot now.
    Moved(String, u16),
    /// To the node that is getting the slot, this once.
    Ask(String, u16),
    /// To the same one, later: the slot is half moved.
    Again,
}

pub(super) fn redirect<T>(answer: &Result<T>) -> Option<Redirect> {
    let said = answer.as_ref().err()?.detail().strip_prefix("Redis: ")?;
    let mut words = said.split_ascii_whitespace();
    let (code, place) = (words.next()?, words.nth(1));
    if code == "TRYAGAIN" {
        return Some(Redirect::Again);
    }
    let (host, port) = place?.trim_end_matches(':').rsplit_once(':')?;
    let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?);
    match code {
        "MOVED" => Some(Redirect::Moved(host, port)),
        "ASK" => Some(Redirect::Ask(host, port)),
        _ => None,
    }
}

pub(super) fn nowhere() -> Error {
    Error::unavailable("Redis: TRYAGAIN no node of the cluster is known for this call")
}

pub(super) fn is_noscript<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(error) if error.detail().starts_with(NOSCRIPT))
}

fn remedy(said: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(code, _)| said.starts_with(code)).map(|(_, remedy)| *remedy)
}

const REPEAT_AFTER: Duration = Duration::from_millis(20);

/// Whole milliseconds of a span, at least one.
pub(super) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}

pub(super) struct DeadlineCall<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) partition: Partition,
    /// When whoever makes it has given up.
    pub(super) until: Instant,
}

pub(super) enum Answer {
    /// It was applied, now or before; what follows the status and the time.
    Done(Reply),
    /// The partition has not seen this descriptor yet.
    Behind,
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

    /// Calls are repeated while time is left: a repeat changes nothing, and is answered as the first one was. One that
    /// was late is made anew, once: the clock of Redis was another one than was thought.
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
                Ok(Answer::Behind) => match self.roll(expiring.descriptor, expiring.partition).await {
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

    pub(super) async fn expire(&self, call: &Call) -> Result<Answer> {
        let (status, mut reply) = self.ask(call).await?;
        match status.as_str() {
            "OK" => Ok(Answer::Done(reply)),
            "BEHIND" => Ok(Answer::Behind),
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

    /// Shows the descriptor to a partition. Errors: `Stale` when it has seen a newer one.
    pub(super) async fn roll(&self, descriptor: &Descriptor, partition: Partition) -> Result<()> {
        let keys = self.keys.partition(&descriptor.topic, partition);
        let call = Call::new(&SCRIPTS.roll, &[&keys.generation, &keys.wake]);
        let call = call.arg(topics::write(descriptor)?).arg("").arg(0);
        topics::rolled(self.connection.eval(&call).await?)
    }
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;
    use crate::model::error::Kind;

    fn said(line: &str) -> Option<Error> {
        match parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => Some(of_call(&error.into())),
            _ => None,
        }
    }

    #[test]
    fn what_redis_refuses_was_not_applied_and_says_what_to_do() {
        for (code, remedy) in REMEDIES {
            let error = said(&format!("{code} and more")).filter(|error| error.kind() == Kind::Unavailable);
            assert!(error.is_some_and(|error| error.detail().contains(remedy)), "{code}");
        }
        assert_eq!(said("ERR unknown command").map(|error| error.kind()), Some(Kind::Unavailable));
        assert_eq!(said("WRONGTYPE Operation against a key").map(|error| error.kind()), Some(Kind::Corrupt));
        assert_eq!(said("ERR too deep script: f, on @user_script:3.").map(|e| e.kind()), Some(Kind::Corrupt));
        let redirected = |line| said(line).and_then(|error| redirect::<()>(&Err(error)));
        assert_eq!(redirected("MOVED 12182 127.0.0.1:7001"), Some(Redirect::Moved("127.0.0.1".to_owned(), 7_001)));
        assert_eq!(redirected("ASK 5 ::1:7001"), Some(Redirect::Ask("::1".to_owned(), 7_001)));
        assert_eq!(redirected("MOVED 5 :7001"), Some(Redirect::Moved(String::new(), 7_001)));
        assert_eq!(redirected("TRYAGAIN Multiple keys request"), Some(Redirect::Again));
        assert_eq!(redirected("CLUSTERDOWN Hash slot not served"), None);
        assert!(is_noscript::<()>(&said("NOSCRIPT No matching script").map_or(Ok(()), Err)));
    }
}
