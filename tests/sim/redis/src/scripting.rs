//! The calls of commands in scripts, and what a script may do.

use crate::cluster::slot_of;
use crate::commands::{self, DENY_OOM, MAY_REPLICATE, NO_SCRIPT, Run, WRITE};
use crate::core::Core;
use crate::lua::ScriptFlags;
use crate::resp::Reply;

/// Executes a command of the script that runs.
pub(crate) fn call(core: &mut Core, words: &[&[u8]]) -> Reply {
    let Some(spec) = commands::find(words[0]) else {
        return Reply::error("ERR Unknown Redis command called from script");
    };
    if !spec.fits(words.len()) {
        return Reply::error("ERR Wrong number of args calling Redis command from script");
    }
    let handler = match spec.run {
        Run::Data(handler) if !spec.has(NO_SCRIPT) => handler,
        _ => return Reply::error("ERR This Redis command is not allowed from script"),
    };
    if core.script.is_read_only && spec.has(WRITE | MAY_REPLICATE) {
        return Reply::error("ERR Write commands are not allowed from read-only scripts.");
    }
    if spec.has(WRITE) && !core.script.has_written {
        if !core.role.is_primary() {
            return Reply::error("READONLY You can't write against a read only replica.");
        }
        if let Some(refused) = core.why_no_writes(false) {
            return Reply::error(refused);
        }
    }
    let is_limited = !core.script.allows_oom && !core.script.has_written && core.script.was_full;
    if spec.has(DENY_OOM) && is_limited {
        return Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
    }
    core.script.has_written |= spec.has(WRITE);
    if let Some(refused) = refused_slot(core, &spec.keys(words)) {
        return refused;
    }
    *core.stats.calls.entry(spec.name).or_default() += 1;
    commands::execute(core, spec, handler, words)
}

/// In a cluster a script keeps to the slot of its keys.
fn refused_slot(core: &mut Core, keys: &[&[u8]]) -> Option<Reply> {
    let view = core.cluster.as_ref()?;
    for key in keys {
        let slot = slot_of(key);
        let is_here = view.owners[usize::from(slot)] == view.me || view.importing.contains_key(&slot);
        if !is_here {
            return Some(Reply::error("ERR Script attempted to access a non local key in a cluster node"));
        }
        if *core.script.slot.get_or_insert(slot) != slot {
            let text = "ERR Script attempted to access keys that do not hash to the same slot";
            return Some(Reply::error(text));
        }
    }
    None
}

/// The flags of EVAL for a script that says what it does.
pub(crate) fn flags_of(script: ScriptFlags, flags: u16) -> u16 {
    if !script.is_declared {
        return flags;
    }
    let mut flags = flags & !(commands::STALE | DENY_OOM | WRITE);
    if !script.allow_oom && !script.no_writes {
        flags |= DENY_OOM;
    }
    if !script.no_writes {
        flags |= WRITE;
    }
    if script.allow_stale {
        flags |= commands::STALE;
    }
    flags
}

/// Prepares the core for a script, or refuses it.
pub(crate) fn prepare(core: &mut Core, flags: ScriptFlags, is_ro: bool) -> Result<(), Reply> {
    let was_full = core.is_full();
    if flags.is_declared {
        if flags.no_cluster && core.cluster.is_some() {
            return Err(Reply::error("ERR Can not run script on cluster, 'no-cluster' flag is set."));
        }
        if !flags.no_writes {
            if !core.role.is_primary() {
                return Err(Reply::error("READONLY You can not run script with write flag on readonly replica."));
            }
            if let Some(refused) = core.why_no_writes(true) {
                return Err(Reply::error(refused));
            }
            if is_ro {
                return Err(Reply::error("ERR Can not execute a script with write flag using *_ro command."));
            }
        }
        if was_full && !flags.allow_oom && !flags.no_writes {
            let text = "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
            return Err(Reply::error(text));
        }
    }
    core.script = crate::core::ScriptState {
        is_read_only: is_ro || flags.no_writes,
        allows_oom: flags.is_declared && (flags.allow_oom || flags.no_writes),
        was_full,
        has_written: false,
        protocol: 2,
        slot: None,
    };
    Ok(())
}
