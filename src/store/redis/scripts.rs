//! The Lua scripts: one verb, one file, with a header that names every key, argument and answer.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

use super::confirmed::is_confirmed;

/// Every script, with its digest computed once.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(Scripts::new);

/// The verb of all that is no script, for metrics.
pub(super) const COMMAND: &str = "command";

/// A script with the digest that EVALSHA calls it by.
#[derive(Debug)]
pub(super) struct Script {
    /// The verb, for metrics.
    pub(super) verb: &'static str,
    /// The whole source.
    pub(super) source: &'static str,
    /// Whether its calls are answered only once enough servers have what they changed, where any are asked for.
    pub(super) is_confirmed: bool,
    /// SHA-1 of the source, in hexadecimal.
    digest: String,
}

/// Declares every script once: the field, and what is put in front of its file.
macro_rules! scripts {
    ($($verb:ident: $head:literal $(, $part:literal)*;)*) => {
        /// Every script.
        #[derive(Debug)]
        pub(super) struct Scripts {
            $(pub(super) $verb: Script,)*
        }

        impl Scripts {
            /// What calls are counted under: scripts, and commands that are none.
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

// Without a flag a full Redis refuses the script before its first line: a push, or a page of a copy, is refused whole.
// Everything else must go on when memory is full, so that dwell can be drained and leased.
scripts! {
    push: "#!lua", "_time", "_call", "_gone", "_unordered";
    push_ordered: "#!lua", "_time", "_call", "_gone", "_order", "push";
    put: "#!lua", "_time", "_call", "_gone", "_body", "_charge", "_unordered";
    put_ordered: "#!lua", "_time", "_call", "_gone", "_body", "_charge", "_order", "put";
    cancel: "#!lua flags=allow-oom", "_time", "_call", "_body";
    reschedule: "#!lua flags=allow-oom", "_time", "_call", "_gone", "_body", "_charge";
    fence: "#!lua flags=allow-oom", "_call";
    replay: "#!lua", "_time", "_call", "_gone", "_body", "_charge", "_unordered";
    replay_ordered: "#!lua", "_time", "_call", "_gone", "_body", "_charge", "_order", "replay";
    restore: "#!lua", "_time", "_call", "_gone", "_body", "_unordered";
    restore_ordered: "#!lua", "_time", "_call", "_gone", "_body", "_order", "restore";
    brokers: "#!lua flags=allow-oom", "_time";
    acquire: "#!lua flags=allow-oom", "_time";
    renew: "#!lua flags=allow-oom", "_time";
    tenant: "#!lua flags=allow-oom,no-writes";
    beat: "#!lua flags=allow-oom", "_time";
    leave: "#!lua flags=allow-oom";
    members: "#!lua flags=allow-oom,no-writes", "_time";
    notice: "#!lua flags=allow-oom", "_time";
    mark: "#!lua flags=allow-oom";
    slots: "#!lua flags=allow-oom", "_time";
    release: "#!lua flags=allow-oom", "_time";
    recover: "#!lua flags=allow-oom", "_time";
    repair: "#!lua flags=allow-oom", "_time";
    reserve: "#!lua flags=allow-oom", "_time", "_chain";
    reserve_ordered: "#!lua flags=allow-oom", "_time", "_chain";
    settle: "#!lua flags=allow-oom", "_time", "_chain";
    start: "#!lua flags=allow-oom", "_time", "_chain";
    peek: "#!lua flags=allow-oom,no-writes", "_time";
    waiting: "#!lua flags=allow-oom,no-writes";
    in_flight: "#!lua flags=allow-oom,no-writes";
    stats: "#!lua flags=allow-oom,no-writes", "_time";
    census: "#!lua flags=allow-oom";
    audit: "#!lua flags=allow-oom", "_time";
    window: "#!lua flags=allow-oom,no-writes";
    forecast: "#!lua flags=allow-oom,no-writes";
    dead: "#!lua flags=allow-oom,no-writes";
    redrive: "#!lua flags=allow-oom", "_time";
    purge: "#!lua flags=allow-oom";
    drop_dead: "#!lua flags=allow-oom";
    schedules: "#!lua flags=allow-oom,no-writes";
    put_schedule: "#!lua flags=allow-oom";
    fire: "#!lua", "_time";
    take: "#!lua flags=allow-oom", "_time";
    place: "#!lua";
    moved: "#!lua flags=allow-oom";
    roll: "#!lua flags=allow-oom";
    describe: "#!lua flags=allow-oom";
    wipe: "#!lua flags=allow-oom";
    unsubscribe: "#!lua flags=allow-oom";
    copy: "#!lua";
    permits: "#!lua flags=allow-oom,no-writes";
}

impl Script {
    /// The call that makes it known to Redis.
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

/// One call of a script, which can be made again unchanged.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) command: Cmd,
    /// How many losses may be suspected when it is sent; with more it is not sent.
    pub(super) losses: Option<u64>,
}

impl Call {
    /// A call with these keys.
    pub(super) fn new(script: &'static Script, keys: &[&str]) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.digest).arg(keys.len());
        for key in keys {
            command.arg(*key);
        }
        Call { script, command, losses: None }
    }

    /// The call is only for a Redis that was suspected of so many losses: a new connection may find another one.
    pub(super) fn after_losses(self, losses: u64) -> Call {
        Call { losses: Some(losses), ..self }
    }

    /// Adds an argument.
    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Call {
        self.command.arg(arg);
        self
    }
}
