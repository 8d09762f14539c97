//! Errors of Redis: their meaning for the call, and their remedies.
//!
//! A call that Redis *answered* with an error was not applied: plain commands change one key or nothing, and scripts are
//! refused before their first line. Redis checks the state that forbids writes (LOADING, READONLY, MASTERDOWN,
//! CLUSTERDOWN, NOREPLICAS, MISCONF, OOM) when a script with flags begins, and not again while it runs; BUSY, the login
//! and the limit of clients come before that. Only a call that was *not* answered may have been applied. (One exception:
//! [`is_forbidden_midway`].)

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::model::error::{Error, Kind, Result};
use crate::model::limits::GROUP_PARTITION_MESSAGES_MAX;

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

/// A script's answer `FULL`.
pub(super) fn full() -> Error {
    Error::new(Kind::Full, format!("a partition holds at most {GROUP_PARTITION_MESSAGES_MAX} messages"))
}

pub(super) fn of_call(error: &RedisError) -> Error {
    let Some(code) = error.code() else {
        // Nothing was sent.
        if error.is_connection_refusal() || error.kind() == ErrorKind::AuthenticationFailed {
            return of_connecting(error);
        }
        return Error::outcome_unknown(format!("Redis did not answer ({error})"));
    };
    let text = format!("{code} {}", error.detail().unwrap_or_default());
    match code {
        "WRONGTYPE" => Error::corrupt(format!("Redis: {text}; another program uses dwell's keys")),
        "ERR" if is_forbidden_midway(&text) => Error::unavailable(format!("Redis: NOPERM {text}: {NOPERM_REMEDY}")),
        "ERR" if text.contains("user_script") || text.contains("script:") => Error::corrupt(format!("Redis: {text}")),
        _ => {
            let text_with_remedy = remedy(&text).map_or(text.clone(), |remedy| format!("{text}: {remedy}"));
            if refuses(code, &text) {
                refused(&text_with_remedy)
            } else {
                Error::unavailable(format!("Redis: {text_with_remedy}"))
            }
        }
    }
}

/// An error that waiting does not change.
pub(super) fn refused(text: &str) -> Error {
    Error::refused(format!("Redis refuses: {text}"))
}

/// Whether it is the configuration that Redis does not accept, and not the state it is in.
fn refuses(code: &str, text: &str) -> bool {
    const CODES: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED"];
    const SENTENCES: [&str; 4] = [
        "cluster support disabled",
        "unknown command",
        "AUTH <password> called without any password",
        "invalid password",
    ];
    CODES.contains(&code) || SENTENCES.iter().any(|sentence| text.contains(sentence))
}

/// Error of a connection that was not opened: the call was not sent.
pub(super) fn of_connecting(error: &RedisError) -> Error {
    if error.code().is_some() {
        return of_call(error);
    }
    Error::unavailable(format!("Redis cannot be reached ({error}); check that it runs and that `redis.url` is right"))
}

/// Error of a new connection whose first calls failed. A Redis with too many clients says so and closes; the client
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

const UNFIT: &str = "Redis is not used: ";

/// A Redis that answers and must not be used.
pub(super) fn unfit(why: &Error) -> Error {
    Error::unavailable(format!("{UNFIT}{}", why.detail()))
}

/// Whether Redis itself said so: it is there.
pub(super) fn is_answer(error: &Error) -> bool {
    ["Redis: ", "Redis refuses: ", UNFIT].iter().any(|begin| error.detail().starts_with(begin))
}

pub(super) fn unanswered() -> Error {
    Error::outcome_unknown("Redis did not answer")
}

/// Error of a connection on which nobody answers, before any call was sent.
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
fn is_forbidden_midway(text: &str) -> bool {
    text.contains("The user executing the script can't") || text.contains("ACL failure in script")
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
    let text = answer.as_ref().err()?.detail().strip_prefix("Redis: ")?;
    let mut words = text.split_ascii_whitespace();
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

fn remedy(text: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(code, _)| text.starts_with(code)).map(|(_, remedy)| *remedy)
}

pub(super) const TOO_FEW: &str = "Redis: too few";

/// Whether a call was applied, and not confirmed in time: a repeat would wait as long again.
pub(super) fn is_too_few(error: &Error) -> bool {
    error.detail().starts_with(TOO_FEW)
}

/// Whole milliseconds of a span, at least one.
pub(super) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;
    use crate::model::error::Kind;

    fn meaning(line: &str) -> Option<Error> {
        match parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => Some(of_call(&error.into())),
            _ => None,
        }
    }

    #[test]
    fn redis_refusal_is_not_applied_and_has_advice() {
        for (code, remedy) in REMEDIES {
            let error = meaning(&format!("{code} and more")).filter(|error| error.kind() == Kind::Unavailable);
            assert!(error.is_some_and(|error| error.detail().contains(remedy)), "{code}");
        }
        assert_eq!(meaning("ERR unknown command").map(|error| error.kind()), Some(Kind::Unavailable));
        assert_eq!(meaning("WRONGTYPE Operation against a key").map(|error| error.kind()), Some(Kind::Corrupt));
        assert_eq!(meaning("ERR too deep script: f, on @user_script:3.").map(|e| e.kind()), Some(Kind::Corrupt));
        let redirected = |line| meaning(line).and_then(|error| redirect::<()>(&Err(error)));
        assert_eq!(redirected("MOVED 12182 127.0.0.1:7001"), Some(Redirect::Moved("127.0.0.1".to_owned(), 7_001)));
        assert_eq!(redirected("ASK 5 ::1:7001"), Some(Redirect::Ask("::1".to_owned(), 7_001)));
        assert_eq!(redirected("MOVED 5 :7001"), Some(Redirect::Moved(String::new(), 7_001)));
        assert_eq!(redirected("TRYAGAIN Multiple keys request"), Some(Redirect::Again));
        assert_eq!(redirected("CLUSTERDOWN Hash slot not served"), None);
        assert!(is_noscript::<()>(&meaning("NOSCRIPT No matching script").map_or(Ok(()), Err)));
    }
}
