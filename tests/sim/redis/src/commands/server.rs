//! What is asked of the server itself, and announcements.

use super::{Args, is};
use crate::core::Core;
use crate::resp::{Bytes, Reply};

pub(super) fn echo(_: &mut Core, words: Args<'_>) -> Reply {
    Reply::bulk(words[1])
}

pub(super) fn time(core: &mut Core, _: Args<'_>) -> Reply {
    let (seconds, micros) = (core.now.0 / 1_000_000, core.now.0 % 1_000_000);
    Reply::Array(vec![Reply::bulk(seconds.to_string()), Reply::bulk(micros.to_string())])
}

pub(super) fn info(core: &mut Core, words: Args<'_>) -> Reply {
    Reply::Verbatim(crate::info::text(core, &words[1..]))
}

pub(super) fn lastsave(core: &mut Core, _: Args<'_>) -> Reply {
    Reply::Int(i64::try_from(core.files.last_save.0 / 1_000_000).unwrap_or(0))
}

pub(super) fn role(core: &mut Core, _: Args<'_>) -> Reply {
    crate::replication::role(core)
}

fn announce(core: &mut Core, words: Args<'_>, is_shard: bool) -> Reply {
    let count = core.pubsub.publish(words[1], words[2], is_shard);
    // Replicas announce it, too. It is no change of the data.
    if core.log.is_kept && !core.is_applying {
        core.effects.push(words.iter().map(|word| Bytes::from(*word)).collect());
    }
    Reply::count(count)
}

pub(super) fn publish(core: &mut Core, words: Args<'_>) -> Reply {
    announce(core, words, false)
}

pub(super) fn spublish(core: &mut Core, words: Args<'_>) -> Reply {
    announce(core, words, true)
}

pub(super) fn pubsub(core: &mut Core, words: Args<'_>) -> Reply {
    let word = words[1];
    let is_shard = is(word, "SHARDCHANNELS") || is(word, "SHARDNUMSUB");
    let listeners = core.pubsub.listeners(is_shard);
    if is(word, "CHANNELS") || is(word, "SHARDCHANNELS") {
        let fits = |channel: &Bytes| words.get(2).is_none_or(|pattern| crate::pubsub::matches(pattern, channel));
        let found = listeners.into_iter().filter(|(channel, _)| fits(channel));
        return Reply::Array(found.map(|(channel, _)| Reply::Bulk(channel)).collect());
    }
    if is(word, "NUMSUB") || is(word, "SHARDNUMSUB") {
        let count =
            |name: &[u8]| listeners.iter().find(|(channel, _)| &**channel == name).map_or(0, |(_, count)| *count);
        let pair = |name: &&[u8]| [Reply::bulk(name), Reply::count(count(name))];
        return Reply::Array(words[2..].iter().flat_map(pair).collect());
    }
    if is(word, "NUMPAT") {
        return Reply::count(core.pubsub.counts().1);
    }
    super::SYNTAX
}
