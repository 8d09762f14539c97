//! Who listens to which channel.

use std::collections::{BTreeMap, BTreeSet};

use crate::resp::{Bytes, Reply};
use crate::server::SessionId;

type Listeners = BTreeMap<Bytes, BTreeSet<SessionId>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    Pattern,
    /// A channel that belongs to the slot of its name.
    Shard,
}

#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: Listeners,
    patterns: Listeners,
    shards: Listeners,
    /// Messages to be written to sessions.
    pub(crate) outbox: Vec<(SessionId, Reply)>,
}

impl PubSub {
    fn of(&mut self, kind: Kind) -> &mut Listeners {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    pub(crate) fn subscribe(&mut self, kind: Kind, channel: &[u8], session: SessionId) {
        self.of(kind).entry(channel.into()).or_default().insert(session);
    }

    /// Whether it listened.
    pub(crate) fn unsubscribe(&mut self, kind: Kind, channel: &[u8], session: SessionId) -> bool {
        let listeners = self.of(kind);
        let Some(sessions) = listeners.get_mut(channel) else { return false };
        let was_there = sessions.remove(&session);
        if sessions.is_empty() {
            listeners.remove(channel);
        }
        was_there
    }

    pub(crate) fn channels_of(&mut self, kind: Kind, session: SessionId) -> Vec<Bytes> {
        let listens =
            |(channel, sessions): (&Bytes, &BTreeSet<SessionId>)| sessions.contains(&session).then(|| channel.clone());
        self.of(kind).iter().filter_map(listens).collect()
    }

    pub(crate) fn forget(&mut self, session: SessionId) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for channel in self.channels_of(kind, session) {
                self.unsubscribe(kind, &channel, session);
            }
        }
    }

    /// The channels of slots, with their listeners, that are not here any more; they are taken off the list.
    pub(crate) fn drop_shards(&mut self, is_gone: impl Fn(&[u8]) -> bool) -> Vec<(Bytes, SessionId)> {
        let gone: Vec<Bytes> = self.shards.keys().filter(|channel| is_gone(channel)).cloned().collect();
        let mut dropped = Vec::new();
        for channel in gone {
            let sessions = self.shards.remove(&channel).unwrap_or_default();
            dropped.extend(sessions.into_iter().map(|session| (channel.clone(), session)));
        }
        dropped
    }

    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.channels.len(), self.patterns.len(), self.shards.len())
    }

    pub(crate) fn listeners(&self, is_shard: bool) -> Vec<(Bytes, usize)> {
        let listeners = if is_shard { &self.shards } else { &self.channels };
        listeners.iter().map(|(channel, sessions)| (channel.clone(), sessions.len())).collect()
    }

    /// Announces a message; answers how many get it.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8], is_shard: bool) -> usize {
        let before = self.outbox.len();
        let (name, message): (Bytes, Bytes) = (channel.into(), message.into());
        let kind = if is_shard { "smessage" } else { "message" };
        let listeners = if is_shard { &self.shards } else { &self.channels };
        for session in listeners.get(channel).into_iter().flatten() {
            let words = vec![Reply::bulk(kind), Reply::Bulk(name.clone()), Reply::Bulk(message.clone())];
            self.outbox.push((*session, Reply::Push(words)));
        }
        if !is_shard {
            for (pattern, sessions) in self.patterns.iter().filter(|(pattern, _)| matches(pattern, channel)) {
                for session in sessions {
                    let words = vec![
                        Reply::bulk("pmessage"),
                        Reply::Bulk(pattern.clone()),
                        Reply::Bulk(name.clone()),
                        Reply::Bulk(message.clone()),
                    ];
                    self.outbox.push((*session, Reply::Push(words)));
                }
            }
        }
        self.outbox.len() - before
    }
}

/// Whether a text fits a pattern with `*`, `?`, `[abc]`, `[^a]`, `[a-z]` and `\`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|from| matches(rest, &text[from..])),
        [b'?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        [b'[', set @ ..] => {
            let Some(first) = text.first() else { return false };
            let end = set.iter().skip(1).position(|byte| *byte == b']').map_or(set.len(), |at| at + 1);
            let (mut members, rest) = (&set[..end], set.get(end + 1..).unwrap_or_default());
            let is_negated = members.first() == Some(&b'^');
            members = &members[usize::from(is_negated)..];
            let mut is_in = false;
            while let [from, after @ ..] = members {
                if let [b'-', to, after @ ..] = after {
                    is_in |= (from.min(to)..=from.max(to)).contains(&first);
                    members = after;
                } else {
                    is_in |= from == first;
                    members = after;
                }
            }
            is_in != is_negated && matches(rest, &text[1..])
        }
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        let cases: [(&str, &str, bool); 7] = [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a]x", "ax", false),
            ("\\*", "*", true),
            ("dwell:*:z", "dwell:a:zz", false),
        ];
        for (pattern, text, fits) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }
}
