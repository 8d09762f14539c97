//! Memory and eviction; what Redis loses when it restarts, when its machine does, and when a replica takes over.

use super::ConfiguredRedis;
use super::Finding;
use crate::app::engine::{Eviction, Fullness, NodeFacts, NodeMemory};
use crate::cli::output::bytes;
use crate::model::time::show_span;

/// Seconds since a replica was heard of that are too many.
const LAG_S: u64 = 10;

pub(super) fn persistence(facts: &NodeFacts, configured: &ConfiguredRedis) -> Finding {
    const AOF: &str = "redis-cli config set appendonly yes, and the same in redis.conf";
    let journal =
        configured.journal.map(|window| format!("the journal covers the last {} before it", show_span(window)));
    if facts.field("aof_enabled") != "1" {
        let found = "no append-only file: a restart of Redis loses messages back to its last snapshot, or all";
        return Finding::fail(
            "persistence",
            match journal {
                Some(journal) => format!("{found}; {journal}"),
                None => found.to_owned(),
            },
            AOF,
        );
    }
    if facts.reads_all == Some(false) {
        let found = "append-only file, which Redis reads as the user `default`: what that may not do a restart loses";
        let advice =
            "redis-cli acl setuser default '~*' '&*' +@all, and the same in the file of the users; it may stay off";
        return Finding::fail("persistence", found, advice);
    }
    if facts.setting("no-appendfsync-on-rewrite") == Some("yes") {
        let found =
            "append-only file, but not written through while it is rewritten: a power cut then loses up to 30 s";
        return Finding::warn("persistence", found, "redis-cli config set no-appendfsync-on-rewrite no");
    }
    match facts.setting("appendfsync") {
        Some("always") => Finding::ok("persistence", "append-only file, fsync always: survives a power cut"),
        Some("everysec") => {
            let more = journal.unwrap_or_else(|| "`durability = \"journal\"` covers it".to_owned());
            let found = format!("append-only file, fsync every second: a power cut loses up to 2 s; {more}");
            Finding::ok("persistence", found)
        }
        Some(policy) => {
            let found = format!("append-only file, fsync {policy}: a power cut loses what the kernel had not written");
            Finding::warn("persistence", found, "redis-cli config set appendfsync everysec, or always")
        }
        None => Finding::skip(
            "persistence",
            "append-only file; whether a restart reads all of it cannot be seen without ACL GETUSER, nor how often it is written through without CONFIG GET",
        ),
    }
}

pub(super) fn last_writes(facts: &NodeFacts) -> Finding {
    const LOOK: &str = "look at the disk and the log of Redis: `df -h`, `redis-cli info persistence`";
    let failed = |name: &str| facts.field(name) == "err";
    if failed("aof_last_write_status") {
        return Finding::fail("last-writes", "the last write of the append-only file failed", LOOK);
    }
    if failed("rdb_last_bgsave_status") {
        let found = "the last snapshot failed: unless stop-writes-on-bgsave-error is no, Redis refuses pushes";
        return Finding::fail("last-writes", found, LOOK);
    }
    if failed("aof_last_bgrewrite_status") {
        return Finding::warn("last-writes", "the append-only file could not be rewritten, and grows", LOOK);
    }
    Finding::ok("last-writes", "the last writes of Redis to its disk succeeded")
}

/// Whether fewer replicas follow than Redis asks for before it takes a write. How many keep up is a field of INFO only if
/// any are asked for; how many those are is a setting, which the user may perhaps not see.
fn too_few(facts: &NodeFacts) -> Option<Finding> {
    let good: u64 = facts.info.get("min_slaves_good_slaves")?.parse().ok()?;
    let asked: u64 = facts.setting("min-replicas-to-write").and_then(|asked| asked.parse().ok()).unwrap_or(1);
    (good < asked).then(|| {
        let found = format!("{good} keep up, and `min-replicas-to-write` asks for {asked}: Redis refuses every push");
        Finding::fail("replicas", found, "start the replicas, or redis-cli config set min-replicas-to-write 0")
    })
}

fn too_few_confirm(facts: &NodeFacts, configured: &ConfiguredRedis) -> Option<Finding> {
    let (connected, asked) = (facts.number("connected_slaves"), u64::from(configured.confirmation.replicas));
    (connected < asked).then(|| {
        let found =
            format!("{connected} connected, and `redis.min_replicas` asks for {asked}: every push is buffered on disk");
        Finding::fail("replicas", found, "start the replicas, or lower `redis.min_replicas`")
    })
}

pub(super) fn fsync(facts: &NodeFacts, configured: &ConfiguredRedis) -> Option<Finding> {
    let version = facts.field("redis_version");
    configured.confirmation.fsync.then(|| match (facts.has_waitaof(), facts.field("aof_enabled") == "1") {
        (true, true) => Finding::ok("fsync", "pushes are answered once Redis has fsynced them"),
        (true, false) => {
            let found = "`redis.fsync` is set, and there is no append-only file: `dwell serve` refuses this Redis";
            Finding::fail("fsync", found, "redis-cli config set appendonly yes, and the same in redis.conf")
        }
        (false, _) => {
            let found = format!("Redis {version} has no WAITAOF: `dwell serve` refuses it with `redis.fsync`");
            Finding::fail("fsync", found, "install Redis 7.2 or Valkey, or newer, or remove `redis.fsync`")
        }
    })
}

pub(super) fn replicas(facts: &NodeFacts, configured: &ConfiguredRedis) -> Finding {
    if let Some(buffers) = too_few_confirm(facts, configured) {
        return buffers;
    }
    if let Some(refuses) = too_few(facts) {
        return refuses;
    }
    let count = facts.number("connected_slaves");
    if count == 0 {
        return Finding::ok("replicas", "none: what Redis keeps is on one disk");
    }
    let end = facts.number("master_repl_offset");
    let mut behind_primary = Vec::new();
    for number in 0..count {
        let line = facts.field(&format!("slave{number}"));
        let field = |name: &str| {
            let found = line.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_default().to_owned()
        };
        let (place, state) = (format!("{}:{}", field("ip"), field("port")), field("state"));
        let lag: u64 = field("lag").parse().unwrap_or(0);
        let behind = end.saturating_sub(field("offset").parse().unwrap_or(end));
        if state != "online" || lag > LAG_S {
            let found = format!("{place} is {state}, silent for {lag} s, {} behind", bytes(behind));
            return Finding::warn("replicas", found, "look at its log and at the network between the two");
        }
        behind_primary.push(format!("{place} {} behind", bytes(behind)));
    }
    let found = format!("{count}: {}", behind_primary.join(", "));
    // The field is there only if `min-replicas-to-write` is set.
    match facts.info.contains_key("min_slaves_good_slaves") || configured.confirmation.replicas > 0 {
        true => Finding::ok("replicas", format!("{found}; writes wait for them")),
        false => {
            let found = format!("{found}; a primary that is cut off from them takes pushes that are lost afterwards");
            Finding::warn("replicas", found, "redis-cli config set min-replicas-to-write 1")
        }
    }
}

const FRAGMENTED: f64 = 1.5;
const FRAGMENTED_BYTES: u64 = 256 * 1024 * 1024;

pub(super) fn eviction(facts: &NodeFacts, configured: &ConfiguredRedis) -> Finding {
    const SET: &str = "redis-cli config set maxmemory-policy noeviction, and the same in redis.conf";
    let NodeMemory { policy, evicted_keys, .. } = &facts.memory();
    match facts.memory().eviction() {
        Eviction::Never => Finding::ok("eviction", "noeviction: a full Redis refuses, and deletes nothing"),
        Eviction::Before => {
            let found = format!("noeviction now, but {evicted_keys} keys were evicted since Redis started");
            Finding::warn("eviction", found, "`dwell verify TOPIC` says whether messages were among them")
        }
        Eviction::Possible => {
            let found = format!("{policy}: a full Redis deletes messages without an error");
            match configured.allow_eviction {
                true => Finding::warn("eviction", format!("{found}; redis.allow_eviction takes the risk"), SET),
                false => Finding::fail("eviction", found, SET),
            }
        }
    }
}

pub(super) fn memory(facts: &NodeFacts) -> Finding {
    let NodeMemory { used_bytes: used, max_bytes: limit, .. } = facts.memory();
    let fullness = facts.memory().fullness();
    let (Fullness::Room(percent) | Fullness::NearlyFull(percent) | Fullness::Full(percent)) = fullness else {
        let total = facts.number("total_system_memory");
        let found = format!("{} used of the machine's {}, and no maxmemory", bytes(used), bytes(total));
        let advice = format!(
            "redis-cli config set maxmemory {}: without it the kernel kills Redis when memory ends; with it pushes go \
             to dwell's disk",
            total / 4 * 3
        );
        return Finding::warn("memory", found, advice);
    };
    let found = format!("{} used of maxmemory {} ({percent} %)", bytes(used), bytes(limit));
    let advice = || {
        format!(
            "consume, `dwell dead-letters purge TOPIC --group GROUP --all`, or redis-cli config set maxmemory {}",
            limit.saturating_mul(2)
        )
    };
    match fullness {
        Fullness::Full(_) => {
            Finding::fail("memory", format!("{found}: it refuses pushes, which go to dwell's disk"), advice())
        }
        Fullness::NearlyFull(_) => Finding::warn("memory", found, advice()),
        Fullness::Room(_) | Fullness::NoLimit => {
            Finding::ok("memory", format!("{found}; room for {}", bytes(limit - used)))
        }
    }
}

pub(super) fn fragmentation(facts: &NodeFacts) -> Finding {
    let ratio: f64 = facts.field("mem_fragmentation_ratio").parse().unwrap_or(1.0);
    let lost = facts.number("mem_fragmentation_bytes");
    if facts.setting("disable-thp") == Some("no") {
        let advice = "`disable-thp yes` in redis.conf, and restart it: huge pages make it slow while it saves";
        return Finding::warn("fragmentation", "disable-thp is no", advice);
    }
    if ratio > FRAGMENTED && lost >= FRAGMENTED_BYTES {
        let found = format!("{ratio} times what is used, {} between allocations", bytes(lost));
        return Finding::warn("fragmentation", found, "redis-cli config set activedefrag yes, or restart Redis");
    }
    Finding::ok("fragmentation", format!("{} between allocations", bytes(lost)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Status;
    use super::super::tests::{configured, node};
    use super::*;
    use crate::app::engine::Confirmation;

    #[test]
    fn persistence_check_reports_restart_loss() {
        let status =
            |info: &[(&str, &str)], settings: &[(&str, &str)]| persistence(&node(info, settings), &configured()).status;
        assert_eq!(status(&[], &[]), Status::Ok);
        assert_eq!(status(&[], &[("appendfsync", "everysec")]), Status::Ok);
        assert_eq!(status(&[], &[("appendfsync", "no")]), Status::Warn);
        assert_eq!(status(&[], &[("no-appendfsync-on-rewrite", "yes")]), Status::Warn);
        let none = persistence(&node(&[("aof_enabled", "0")], &[]), &configured());
        assert!(none.status == Status::Fail && none.advice.is_some_and(|a| a.contains("config set appendonly yes")));
        let mut forgetful = node(&[], &[]);
        forgetful.reads_all = Some(false);
        assert_eq!(persistence(&forgetful, &configured()).status, Status::Fail);
        let journal = ConfiguredRedis { journal: Some(Duration::from_secs(30)), ..configured() };
        assert!(persistence(&node(&[("aof_enabled", "0")], &[]), &journal).found.contains("the last 30s"));
        let mut silent = node(&[], &[]);
        silent.settings = None;
        assert_eq!(persistence(&silent, &configured()).status, Status::Skip);
    }

    #[test]
    fn failed_redis_disk_write_is_reported() {
        let status = |name| last_writes(&node(&[(name, "err")], &[])).status;
        assert_eq!(last_writes(&node(&[], &[])).status, Status::Ok);
        assert_eq!([status("aof_last_write_status"), status("rdb_last_bgsave_status")], [Status::Fail; 2]);
        assert_eq!(status("aof_last_bgrewrite_status"), Status::Warn);
    }

    #[test]
    fn replicas_must_exist_and_be_waited_for() {
        let online = ("slave0", "ip=10.0.0.2,port=6379,state=online,offset=90,lag=1");
        let base = [("connected_slaves", "1"), ("master_repl_offset", "100")];
        let with =
            |more: &[(&'static str, &'static str)]| replicas(&node(&[&base[..], more].concat(), &[]), &configured());
        assert_eq!(replicas(&node(&[], &[]), &configured()).status, Status::Ok);
        let careless = with(&[online]);
        assert!(
            careless.status == Status::Warn && careless.found.contains("10.0.0.2:6379 10 B behind"),
            "{careless:?}"
        );
        assert_eq!(with(&[online, ("min_slaves_good_slaves", "1")]).status, Status::Ok);
        let late = ("slave0", "ip=10.0.0.2,port=6379,state=online,offset=90,lag=11");
        assert!(with(&[late]).found.contains("silent for 11 s"));
    }

    #[test]
    fn missing_replicas_and_missing_waitaof_are_named() {
        let asks = |replicas, fsync| ConfiguredRedis { confirmation: Confirmation { replicas, fsync }, ..configured() };
        let missing = replicas(&node(&[("connected_slaves", "1")], &[]), &asks(2, false));
        assert!(
            missing.status == Status::Fail && missing.found.contains("`redis.min_replicas` asks for 2"),
            "{missing:?}"
        );
        let online = ("slave0", "ip=10.0.0.2,port=6379,state=online,offset=90,lag=1");
        assert_eq!(replicas(&node(&[("connected_slaves", "1"), online], &[]), &asks(1, false)).status, Status::Ok);
        let status = |info: &[(&str, &str)]| fsync(&node(info, &[]), &asks(0, true)).map(|finding| finding.status);
        assert_eq!(status(&[]), Some(Status::Fail));
        assert_eq!(status(&[("redis_version", "7.2.4")]), Some(Status::Ok));
        assert_eq!(status(&[("redis_version", "7.2.4"), ("aof_enabled", "0")]), Some(Status::Fail));
        assert_eq!(fsync(&node(&[], &[]), &configured()), None);
    }

    #[test]
    fn missing_min_replicas_to_write_refuses_pushes() {
        let none = [("min_slaves_good_slaves", "0")];
        let one = [("connected_slaves", "1"), ("min_slaves_good_slaves", "1")];
        let asked = [("min-replicas-to-write", "2")];
        let mut silent = node(&none, &[]);
        silent.settings = None;
        for facts in [silent, node(&none, &asked), node(&one, &asked)] {
            let finding = replicas(&facts, &configured());
            assert!(finding.status == Status::Fail && finding.found.contains("refuses every push"), "{finding:?}");
        }
        assert!(
            replicas(&node(&one, &asked), &configured())
                .found
                .starts_with("1 keep up, and `min-replicas-to-write` asks for 2")
        );
    }

    #[test]
    fn evicting_redis_fails_unless_explicitly_allowed() {
        let evicts = node(&[("maxmemory_policy", "allkeys-lru")], &[]);
        let finding = eviction(&evicts, &configured());
        assert_eq!(finding.status, Status::Fail);
        assert!(finding.advice.is_some_and(|advice| advice.contains("config set maxmemory-policy noeviction")));
        let risk = ConfiguredRedis { allow_eviction: true, ..configured() };
        assert_eq!(eviction(&evicts, &risk).status, Status::Warn);
        assert_eq!(eviction(&node(&[], &[]), &configured()).status, Status::Ok);
        assert_eq!(eviction(&node(&[("evicted_keys", "1")], &[]), &configured()).status, Status::Warn);
    }

    #[test]
    fn memory_thresholds_are_exact() {
        let status =
            |used: u64| memory(&node(&[("maxmemory", "1000"), ("used_memory", &used.to_string())], &[])).status;
        assert_eq!(
            [0, 799, 800, 999, 1_000, 2_000].map(status),
            [Status::Ok, Status::Ok, Status::Warn, Status::Warn, Status::Fail, Status::Fail]
        );
        let endless = memory(&node(&[("maxmemory", "0")], &[]));
        assert!(endless.status == Status::Warn && endless.advice.is_some_and(|a| a.contains("maxmemory 6000000000")));
    }

    #[test]
    fn only_high_fragmentation_is_reported() {
        let status = |ratio: &str, lost: &str| {
            fragmentation(&node(&[("mem_fragmentation_ratio", ratio), ("mem_fragmentation_bytes", lost)], &[])).status
        };
        assert_eq!([status("9.0", "1000"), status("1.6", "300000000")], [Status::Ok, Status::Warn]);
        assert_eq!(fragmentation(&node(&[], &[("disable-thp", "no")])).status, Status::Warn);
    }
}
