//! The Lua scripts: one verb, one file, with a header that names every key, argument and answer; and reading what they
//! answer.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use redis::{Cmd, ToRedisArgs, Value};

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::store::SORTED;

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(Scripts::new);

pub(super) const COMMAND: &str = "command";

#[derive(Debug)]
pub(super) struct Script {
    pub(super) verb: &'static str,
    pub(super) source: &'static str,
    /// Whether its calls are answered only once enough servers have what they changed, where any are asked for.
    pub(super) is_confirmed: bool,
    digest: String,
}

macro_rules! scripts {
    ($($verb:ident: $head:literal $(, $part:literal)*;)*) => {
        #[derive(Debug)]
        pub(super) struct Scripts {
            $(pub(super) $verb: Script,)*
        }

        impl Scripts {
            /// Names under which calls are counted: scripts, and `command` for everything else.
            pub(super) fn verbs(&self) -> impl Iterator<Item = &'static str> {
                [$(stringify!($verb),)* COMMAND].into_iter()
            }

            fn new() -> Scripts {
                Scripts {
                    $($verb: Script::new(
                        stringify!($verb),
                        concat!(
                            $head, "\n",
                            $(include_str!(concat!("scripts/", $part, ".lua")),)*
                            include_str!(concat!("scripts/", stringify!($verb), ".lua")),
                        ),
                    ),)*
                }
            }
        }
    };
}

// A full Redis refuses a script without a flag before its first line: a push or a page of a copy. Everything else must
// work when memory is full, so that dwell can be drained.
scripts! {
    push: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_dedup", "_compared", "_body", "_successor", "_content", "_unordered";
    push_ordered: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_dedup", "_compared", "_body", "_successor", "_content", "_order", "push";
    push_over: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_purged", "_body", "_successor", "_newest", "_follow", "_bounded", "_charge", "_unordered";
    push_over_ordered: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_purged", "_body", "_successor", "_newest", "_follow", "_bounded", "_charge", "_order", "push_over";
    cancel: "#!lua flags=allow-oom", "_time", "_history", "_count", "_call", "_body", "_successor";
    purge_group: "#!lua flags=allow-oom", "_time", "_history", "_count", "_call", "_purged";
    pause_key: "#!lua flags=allow-oom", "_time", "_history", "_count", "_call";
    reapply_purge: "#!lua flags=allow-oom", "_time", "_history", "_count", "_call", "_body", "_successor", "_purged";
    reschedule: "#!lua flags=allow-oom", "_time", "_history", "_count", "_call", "_tombstones", "_body", "_successor", "_newest", "_charge", "_sorted";
    fence: "#!lua flags=allow-oom", "_call";
    replay: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_ended", "_purged", "_dedup", "_body", "_successor", "_newest", "_follow", "_bounded", "_charge", "_unordered";
    replay_ordered: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_ended", "_purged", "_dedup", "_body", "_successor", "_newest", "_follow", "_bounded", "_charge", "_order", "replay";
    restore: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_ended", "_purged", "_dedup", "_body", "_successor", "_newest", "_dead", "_unordered";
    restore_ordered: "#!lua", "_time", "_history", "_count", "_call", "_tombstones", "_ended", "_purged", "_dedup", "_body", "_successor", "_newest", "_dead", "_order", "restore";
    restore_progress: "#!lua flags=allow-oom", "_time";
    acquire: "#!lua flags=allow-oom", "_time", "_history", "_count";
    renew: "#!lua flags=allow-oom", "_time";
    owner_record: "#!lua flags=allow-oom,no-writes";
    heartbeat: "#!lua flags=allow-oom", "_time";
    leave_group: "#!lua flags=allow-oom";
    members: "#!lua flags=allow-oom,no-writes", "_time";
    note_process: "#!lua flags=allow-oom", "_time";
    wait_marker: "#!lua flags=allow-oom";
    set_once: "#!lua flags=allow-oom";
    rate_slots: "#!lua flags=allow-oom", "_time";
    release: "#!lua flags=allow-oom", "_time";
    recover: "#!lua flags=allow-oom", "_time", "_moving";
    repair: "#!lua flags=allow-oom", "_time", "_moving";
    reserve: "#!lua flags=allow-oom", "_time", "_moving", "_call_sequence", "_attempts";
    reserve_ordered: "#!lua flags=allow-oom", "_time", "_call_sequence", "_attempts";
    reserve_by_key: "#!lua flags=allow-oom", "_time", "_moving", "_call_sequence", "_attempts", "_body", "_sorted", "_by_key";
    sorted_keys: "#!lua flags=allow-oom,no-writes", "_by_key";
    settle: "#!lua flags=allow-oom", "_time", "_call_sequence", "_charge", "_no_history", "_count", "_has_successors", "_successor";
    settle_late: "#!lua flags=allow-oom", "_time", "_history", "_count", "_call", "_tombstones", "_ended", "_body", "_successor", "_charge", "_moving";
    start: "#!lua flags=allow-oom", "_time", "_call_sequence";
    peek: "#!lua flags=allow-oom,no-writes", "_time";
    waiting: "#!lua flags=allow-oom,no-writes", "_sorted", "_by_due";
    in_flight: "#!lua flags=allow-oom,no-writes";
    stats: "#!lua flags=allow-oom,no-writes", "_time", "_sorted";
    claim_stats: "#!lua flags=allow-oom";
    verify: "#!lua flags=allow-oom", "_time";
    bulk_range: "#!lua flags=allow-oom,no-writes", "_sorted", "_by_due";
    forecast: "#!lua flags=allow-oom,no-writes", "_sorted";
    dead_letters: "#!lua flags=allow-oom,no-writes";
    redrive: "#!lua flags=allow-oom", "_time", "_on_its_way", "_no_history", "_count";
    purge_dead_letters: "#!lua flags=allow-oom", "_body", "_dead", "_on_its_way", "_no_history", "_count";
    trim_dead_letters: "#!lua flags=allow-oom";
    stage: "#!lua flags=allow-oom", "_time", "_body", "_dead", "_page", "_no_history", "_count";
    forward: "#!lua", "_time", "_history", "_count", "_call", "_unordered";
    forward_ordered: "#!lua", "_time", "_history", "_count", "_call", "_order", "forward";
    unstage: "#!lua flags=allow-oom", "_body", "_dead", "_page", "_no_history", "_count";
    cron_jobs: "#!lua flags=allow-oom,no-writes";
    put_cron_job: "#!lua flags=allow-oom", "_history", "_count";
    delete_cron_job: "#!lua flags=allow-oom", "_time", "_history", "_count", "_tombstones";
    restore_cron_job: "#!lua flags=allow-oom", "_time", "_history", "_count", "_tombstones";
    fire_cron_job: "#!lua", "_time", "_history", "_count";
    move_out: "#!lua flags=allow-oom", "_time", "_body", "_successor", "_newest", "_dead", "_page", "_no_history", "_count", "_sorted";
    move_in: "#!lua", "_history", "_count", "_call";
    move_done: "#!lua flags=allow-oom", "_body", "_successor", "_newest", "_dead", "_page", "_no_history", "_count";
    move_close: "#!lua flags=allow-oom";
    merge_descriptor: "#!lua flags=allow-oom", "_time", "_history", "_new_history";
    compare: "#!lua flags=allow-oom", "_time", "_new_history";
    delete_partition: "#!lua flags=allow-oom";
    unsubscribe: "#!lua flags=allow-oom";
    copy: "#!lua", "_sorted";
    check_permissions: "#!lua flags=allow-oom,no-writes";
}

/// Scripts whose callers are told that something is done: what producers and operators asked for, and what a log gave
/// back and is about to forget. Consumers do not wait: what a failover loses of their decisions is delivered again.
const CONFIRMED: [&str; 28] = [
    "push",
    "push_ordered",
    "push_over",
    "push_over_ordered",
    "cancel",
    "purge_group",
    "pause_key",
    "reapply_purge",
    "reschedule",
    "settle_late",
    "fence",
    "replay",
    "replay_ordered",
    "restore",
    "restore_ordered",
    "redrive",
    "purge_dead_letters",
    "put_cron_job",
    "delete_cron_job",
    "restore_cron_job",
    "fire_cron_job",
    "move_in",
    "move_close",
    "forward",
    "forward_ordered",
    "copy",
    "merge_descriptor",
    "delete_partition",
];

fn is_confirmed(verb: &str) -> bool {
    CONFIRMED.contains(&verb)
}

impl Script {
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.source);
        load
    }

    fn new(verb: &'static str, source: &'static str) -> Script {
        let digest = sha1_smol::Sha1::from(source).digest().to_string();
        Script { verb, source, is_confirmed: is_confirmed(verb), digest }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ScriptCall {
    pub(super) script: &'static Script,
    pub(super) command: Cmd,
    /// How many losses may be suspected when it is sent; with more it is not sent.
    pub(super) losses: Option<u64>,
    /// The process of Redis that it is for, as connections name it: the digest of a run and a replication id. Another one may have
    /// other data.
    process: Option<Arc<str>>,
    /// Whether the last argument is the process that it is sent to.
    names_process: bool,
}

impl ScriptCall {
    pub(super) fn new(script: &'static Script, keys: &[&str]) -> ScriptCall {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.digest).arg(keys.len());
        for key in keys {
            command.arg(*key);
        }
        ScriptCall { script, command, losses: None, process: None, names_process: false }
    }

    /// The call is only for this process of Redis, if one is given. To another one it is not sent, and is answered as by a partition
    /// with another history.
    pub(super) fn only_in(&mut self, process: Option<Arc<str>>) {
        self.process = process;
    }

    /// The last argument is the process that the call is sent to.
    pub(super) fn naming_process(self) -> ScriptCall {
        ScriptCall { names_process: true, ..self }
    }

    /// The command for a connection to this process; `None` if the call is for another one.
    pub(super) fn for_process(&self, process: &str) -> Option<Cow<'_, Cmd>> {
        if self.process.as_ref().is_some_and(|only| **only != *process) {
            return None;
        }
        if !self.names_process {
            return Some(Cow::Borrowed(&self.command));
        }
        let mut command = self.command.clone();
        command.arg(process);
        Some(Cow::Owned(command))
    }

    /// The call is only for a Redis that was suspected of so many losses: a new connection may find another one.
    pub(super) fn after_losses(self, losses: u64) -> ScriptCall {
        ScriptCall { losses: Some(losses), ..self }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> ScriptCall {
        self.command.arg(arg);
        self
    }
}

#[derive(Debug)]
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(super) fn of(value: Value) -> Result<Reply> {
        match value {
            Value::Array(values) => Ok(Reply(values.into_iter())),
            other => Err(unexpected("an array", &other)),
        }
    }

    /// Reads entries until nothing is left.
    pub(super) fn each<T>(mut self, mut read: impl FnMut(&mut Reply) -> Result<T>) -> Result<Vec<T>> {
        std::iter::from_fn(|| (self.left() > 0).then(|| read(&mut self))).collect()
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn value(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| Error::corrupt("a script answered less than its header says"))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(bytes.into()),
            other => Err(unexpected("bytes", &other)),
        }
    }

    pub(super) fn text(&mut self) -> Result<String> {
        text(self.value()?)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let value = self.value()?;
        number(&value).ok_or_else(|| unexpected("a number", &value))
    }

    pub(super) fn maybe_number(&mut self) -> Result<Option<u64>> {
        match self.value()? {
            Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
            value => number(&value).map(Some).ok_or_else(|| unexpected("a number", &value)),
        }
    }

    /// The time of the first one in a zset; nothing if there is none, or only sorted ones.
    pub(super) fn head(&mut self) -> Result<Option<Timestamp>> {
        let value = self.value()?;
        Ok(if number(&value).is_some_and(|score| score >= SORTED) { None } else { time(value)? })
    }

    /// A time in ms, or nothing for an empty text. Digits behind the ms are the position within it.
    pub(super) fn time(&mut self) -> Result<Option<Timestamp>> {
        time(self.value()?)
    }

    pub(super) fn maybe_text(&mut self) -> Result<Option<String>> {
        Ok(maybe_text(self.value()?)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn list(&mut self) -> Result<Reply> {
        Reply::of(self.value()?)
    }
}

fn time(value: Value) -> Result<Option<Timestamp>> {
    match value {
        Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
        value => match text(value.clone()).ok().as_deref().and_then(time_of) {
            Some(at) => Ok(Some(at)),
            None => number(&value).map(|ms| Some(Timestamp::from_ms(ms))).ok_or_else(|| unexpected("a time", &value)),
        },
    }
}

pub(super) fn time_of(score: &str) -> Option<Timestamp> {
    let ms = score.split_once('.').map_or(score, |(ms, _)| ms);
    let ms: u64 = ms.parse().ok()?;
    Some(Timestamp::from_ms(ms.checked_sub(SORTED).unwrap_or(ms)))
}

pub(super) fn text(value: Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).map_err(|_| Error::corrupt("a key holds bytes that are not UTF-8"))
        }
        Value::SimpleString(text) => Ok(text),
        Value::Okay => Ok("OK".to_owned()),
        other => Err(unexpected("text", &other)),
    }
}

pub(super) fn maybe_text(value: Value) -> Result<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        other => text(other).map(Some),
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

fn unexpected(wanted: &str, got: &Value) -> Error {
    Error::corrupt(format!("Redis answered {got:?} where {wanted} was expected"))
}
