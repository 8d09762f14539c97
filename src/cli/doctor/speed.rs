//! Causes of a slow Redis, and clocks that disagree.

use std::time::Duration;

use super::ConfiguredRedis;
use super::Finding;
use crate::app::engine::NodeFacts;
use crate::cli::output;
use crate::model::time::short_span;

/// A round trip that half of the calls should not take.
const SLOW_PING: Duration = Duration::from_millis(10);
const STALL_MS: u64 = 100;
const STALL_FRESH_S: u64 = 3_600;

/// A call that holds up all others for too long, microseconds.
const SLOW_CALL_US: u64 = 50_000;
const SLOW_FRESH_S: u64 = 86_400;

/// A clock that is off by more is kept in time by nobody, as `dwell serve` sees it too.
const FAR_US: u64 = 5_000_000;
const APART_US: u64 = 1_000_000;

/// `0.08ms / 0.09ms / 2.00ms (least, median and most of 50 PINGs)`, the median and the most; nothing of nothing.
pub(super) fn spread_of(spans: &[Duration], what: &str) -> Option<(String, Duration, Duration)> {
    let (least, middle, most) = spread(spans)?;
    let [low, mid, high] = [least, middle, most].map(output::span);
    Some((format!("{low} / {mid} / {high} (least, median and most of {} {what})", spans.len()), middle, most))
}

fn spread(spans: &[Duration]) -> Option<(Duration, Duration, Duration)> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    Some((*sorted.first()?, *sorted.get(sorted.len() / 2)?, *sorted.last()?))
}

pub(super) fn latency(facts: &NodeFacts, configured: &ConfiguredRedis) -> Finding {
    let Some((found, middle, most)) = spread_of(&facts.pings, "PINGs") else {
        let found = format!("no PING was answered within {}", output::span(configured.timeout));
        let advice = "look what Redis is doing: `redis-cli --latency`, `redis-cli slowlog get`";
        return Finding::fail("latency", found, advice);
    };
    match middle > SLOW_PING || most > configured.timeout / 2 {
        true => {
            let advice = "put dwell and Redis near one another; `redis-cli --intrinsic-latency 10` on its machine; or raise `redis.timeout`";
            Finding::warn("latency", found, advice)
        }
        false => Finding::ok("latency", found),
    }
}

pub(super) fn stalls(facts: &NodeFacts) -> Finding {
    let Some(stalls) = &facts.stalls else {
        return Finding::skip("stalls", "LATENCY LATEST is not permitted");
    };
    let now = facts.now_s.unwrap_or(0);
    let fresh = stalls.iter().filter(|stall| now.saturating_sub(stall.at_s) < STALL_FRESH_S);
    let worst = fresh.filter(|stall| stall.last_ms >= STALL_MS).max_by_key(|stall| stall.last_ms);
    if let Some(stall) = worst {
        let ago = short_span(Duration::from_secs(now.saturating_sub(stall.at_s)));
        let [last, most] = [stall.last_ms, stall.max_ms].map(|ms| output::span(Duration::from_millis(ms)));
        let found = format!("{} took {last} {ago} ago, {most} at most", stall.event);
        let advice = match stall.event.starts_with("aof") {
            true => "give the append-only file a separate, faster disk; `redis-cli latency doctor`",
            false => "redis-cli latency doctor",
        };
        return Finding::warn("stalls", found, advice);
    }
    match facts.setting("latency-monitor-threshold") {
        Some("0") => Finding::skip(
            "stalls",
            "Redis does not watch for them; `redis-cli config set latency-monitor-threshold 100` lets it",
        ),
        _ => Finding::ok("stalls", "none of 100 ms in the last hour"),
    }
}

pub(super) fn slow_log(facts: &NodeFacts, prefix: &str) -> Finding {
    let Some(slow) = &facts.slow else {
        return Finding::skip("slow-log", "SLOWLOG GET is not permitted");
    };
    let now = facts.now_s.unwrap_or(0);
    let fresh = slow.iter().filter(|call| now.saturating_sub(call.at_s) < SLOW_FRESH_S && call.took_us >= SLOW_CALL_US);
    let (mut count, mut worst) = (0, None::<&crate::app::engine::SlowCall>);
    for call in fresh {
        count += 1;
        worst = worst.filter(|worst| worst.took_us >= call.took_us).or(Some(call));
    }
    let Some(worst) = worst else {
        return Finding::ok("slow-log", format!("nothing of {} ms or more in the last day", SLOW_CALL_US / 1_000));
    };
    let keys = [format!(" {prefix}:"), format!(" {{{prefix}:")];
    let ours =
        worst.command.to_lowercase().starts_with("evalsha") && keys.iter().any(|key| worst.command.contains(key));
    let (whose, advice) = match ours {
        true => (
            "dwell's own",
            "look whether its machine swaps or has no processor left; `dwell bench` measures what it bears",
        ),
        false => {
            let advice = "keep such calls off this Redis (SCAN for KEYS, UNLINK for DEL), or give dwell a separate one";
            ("another program's", advice)
        }
    };
    let (took, call) = (output::span(Duration::from_micros(worst.took_us)), &worst.command);
    Finding::warn("slow-log", format!("{count} calls held Redis up; the worst is {whose}, {took}: {call}"), advice)
}

pub(super) fn clock(facts: &NodeFacts) -> Finding {
    let Some(ahead) = facts.ahead_us else { return Finding::skip("clock", "TIME is not answered") };
    let side = if ahead > 0 { "behind" } else { "ahead of" };
    let seconds = ahead.unsigned_abs() as f64 / 1_000_000.0;
    match ahead.unsigned_abs() {
        0 => Finding::ok("clock", "this machine and Redis agree"),
        FAR_US.. => {
            let found = format!(
                "this machine is {seconds:.1} s {side} Redis: messages are due by Redis, times in logs are not"
            );
            Finding::warn("clock", found, "timedatectl set-ntp true, on both machines")
        }
        _ => Finding::ok("clock", format!("this machine is {seconds:.3} s {side} Redis")),
    }
}

pub(super) fn clocks(ahead_us: &[i64]) -> Option<Finding> {
    let (least, most) = (ahead_us.iter().min()?, ahead_us.iter().max()?);
    let apart = most.abs_diff(*least);
    let found = format!("the clocks of {} nodes are {:.3} s apart", ahead_us.len(), apart as f64 / 1_000_000.0);
    Some(match apart {
        APART_US.. => Finding::warn("clocks", found, "timedatectl set-ntp true, on every node"),
        _ => Finding::ok("clocks", found),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::super::tests::{configured, node};
    use super::*;
    use crate::app::engine::{SlowCall, Stall};

    #[test]
    fn slow_or_stalled_redis_is_a_warning() {
        let status = |pings: Vec<u64>| {
            let mut facts = node(&[], &[]);
            facts.pings = pings.into_iter().map(Duration::from_millis).collect();
            latency(&facts, &configured()).status
        };
        assert_eq!(status(vec![1; 50]), Status::Ok);
        assert_eq!(status(vec![11; 50]), Status::Warn);
        assert_eq!(status([vec![1; 49], vec![501]].concat()), Status::Warn);
        assert_eq!(status(vec![]), Status::Fail);
    }

    #[test]
    fn only_recent_slow_calls_count() {
        let with = |at_s, last_ms| {
            let mut facts = node(&[], &[]);
            facts.stalls = Some(vec![Stall { event: "aof-fsync-always".to_owned(), at_s, last_ms, max_ms: 900 }]);
            stalls(&facts)
        };
        assert_eq!([with(999_000, 99).status, with(990_000, 500).status], [Status::Ok, Status::Ok]);
        assert!(with(999_000, 100).advice.is_some_and(|advice| advice.contains("disk")));
    }

    #[test]
    fn slowest_call_and_its_client_are_named() {
        let with = |at_s, took_us, command: &str| {
            let mut facts = node(&[], &[]);
            facts.slow = Some(vec![SlowCall { at_s, took_us, command: command.to_owned() }]);
            slow_log(&facts, "dwell")
        };
        let own = "EVALSHA 5f 3 {dwell:orders:1}:default:z";
        assert_eq!(with(999_999, 49_999, own).status, Status::Ok);
        assert_eq!(with(900_000, 90_000, own).status, Status::Ok);
        assert!(with(999_999, 50_000, own).found.contains("dwell's own, 50ms"));
        assert!(with(999_999, 50_000, "KEYS *").found.contains("another program's, 50ms: KEYS *"));
    }

    #[test]
    fn clock_skew_is_reported() {
        let with = |ahead| {
            let mut facts = node(&[], &[]);
            facts.ahead_us = Some(ahead);
            clock(&facts)
        };
        assert_eq!([with(0), with(4_999_999), with(-4_999_999)].map(|f| f.status), [Status::Ok; 3]);
        assert!(with(-300_000_000).found.contains("300.0 s ahead of Redis"));
        assert_eq!(with(5_000_000).status, Status::Warn);
        let status = |all: &[i64]| clocks(all).map(|finding| finding.status);
        assert_eq!([status(&[]), status(&[0, 999_999])], [None, Some(Status::Ok)]);
        assert_eq!(status(&[-500_000, 0, 500_000]), Some(Status::Warn));
    }

    #[test]
    fn spread_shows_min_median_and_max() {
        let ms = Duration::from_millis;
        assert_eq!(spread(&[ms(3), ms(1), ms(2)]), Some((ms(1), ms(2), ms(3))));
        assert_eq!(spread(&[]), None);
    }
}
