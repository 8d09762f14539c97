//! Where a request or a reply of Redis' protocol ends.

/// Bytes of the first whole frame, or `None` while it is incomplete.
pub(super) fn frame(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => {
            let length = usize::try_from(number()?).map_or(line, |length| line + length + 2);
            (bytes.len() >= length).then_some(length)
        }
        b'*' => (0..number()?).try_fold(line, |length, _| Some(length + frame(&bytes[length..])?)),
        _ => Some(line),
    }
}

#[test]
fn a_frame_ends_where_its_last_part_ends() {
    for whole in
        ["+OK\r\n", "-ERR no\r\n", ":12\r\n", "$-1\r\n", "$0\r\n\r\n", "*0\r\n", "*2\r\n$4\r\na\r\nb\r\n*1\r\n:1\r\n"]
    {
        let more = format!("{whole}+OK\r\n");
        assert_eq!(frame(more.as_bytes()), Some(whole.len()), "{whole:?}");
        for cut in 0..whole.len() {
            assert_eq!(frame(&whole.as_bytes()[..cut]), None, "{whole:?} cut at {cut}");
        }
    }
}
