//! The slots of a Redis Cluster: where a key belongs.

use redis::{Arg, Cmd};

/// How many there are.
pub(super) const SLOTS: u16 = 16_384;

/// Numbers that are tried for a tag; on average every 16,384th fits.
const TAGS_TRIED: u32 = 1_000_000;

/// The slot of a key: of its hash tag, if it has one.
pub(super) fn of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

/// The slot of the first key of a command, if it has one.
pub(super) fn of_command(command: &Cmd) -> Option<u16> {
    let mut words = command.args_iter().filter_map(|arg| match arg {
        Arg::Simple(word) => Some(word),
        _ => None,
    });
    let name = words.next()?;
    match name {
        b"EVALSHA" => words.nth(2).map(of_key),
        b"TIME" | b"PING" => None,
        _ => words.next().map(of_key),
    }
}

/// A hash tag of a slot.
pub(super) fn tag(slot: u16) -> String {
    (0..TAGS_TRIED).map(|n| n.to_string()).find(|tag| of_key(tag.as_bytes()) == slot).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three are of the specification of Redis Cluster.
    #[test]
    fn the_published_vectors_hold_and_tags_are_found() {
        assert_eq!(crc16::State::<crc16::XMODEM>::calculate(b"123456789"), 0x31C3);
        assert_eq!(of_key(b"{user1000}.following"), of_key(b"{user1000}.followers"));
        assert_eq!(of_key(b"foo{}{bar}"), crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % SLOTS);
        assert_eq!(of_key(b"foo"), 12_182);
        for slot in [0, 1, 5_461, SLOTS - 1] {
            assert_eq!(of_key(format!("dwell:history:{{{}}}", tag(slot)).as_bytes()), slot);
        }
    }

    #[test]
    fn a_command_belongs_where_its_first_key_does() {
        assert_eq!(of_command(redis::cmd("GET").arg("foo")), Some(12_182));
        assert_eq!(of_command(redis::cmd("EVALSHA").arg("digest").arg(2).arg("foo").arg("bar")), Some(12_182));
        assert_eq!(of_command(&redis::cmd("TIME")), None);
    }
}
