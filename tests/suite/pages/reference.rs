//! The pages of docs/reference are what the code says.

#[path = "../../../examples/reference/pages/mod.rs"]
mod pages;
/// The rule of spreads as the simulator has it, which does not ask dwell.
#[path = "../../sim/spread.rs"]
mod simulated;

use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::message::{MessageId, spread_of};
use dwell::model::partition::{Partition, hash};

use crate::support::failed;

/// Constants of src/model/limits.rs that no client and no operator meets.
const INTERNAL: [&str; 36] = [
    "ACQUIRES_MAX",
    "ANSWER_UNCOUNTED_BYTES_MAX",
    "AUDIT_FINDINGS_MAX",
    "CALL_BYTES_MAX",
    "CALL_IDS_MAX",
    "DATAGRAM_BYTES_MAX",
    "DUE_LOOKED_AT_MAX",
    "ENVELOPE_BYTES_MAX",
    "HANDED_OVER_AHEAD_MAX",
    "JSON_GROWTH_MAX",
    "KEY_AHEAD_MIN",
    "MEMBER_BYTES_MAX",
    "NOTE_BYTES_MAX",
    "PACED_KEYS_MAX",
    "PACE_AHEAD",
    "POLICY_IDS_MAX",
    "PREFETCH_BYTES_MAX",
    "PREFETCH_LIMIT_BYTES",
    "PREFETCH_LIMIT_BYTES_MAX",
    "PREFETCH_LIMIT_BYTES_MIN",
    "PREFETCH_MESSAGES_MAX",
    "RECEIPT_KEYS_MAX",
    "RECALL_HOLD_MAX",
    "RECOVER_IDS_MAX",
    "REFUSED_BODY_BYTES_MAX",
    "RESTORE_CHANGES_MAX",
    "SILENT_BROKERS_MAX",
    "SLOT_AHEAD_MAX",
    "SLOT_OPEN",
    "SMALL_BODY_BYTES_MAX",
    "SOCKET_PATH_BYTES_MAX",
    "SORTED_KEYS_MAX",
    "SORTED_MESSAGES_MAX",
    "SPANS_WAITING_MAX",
    "STREAM_BYTES_MAX",
    "WEBHOOK_MARGIN",
];

#[test]
fn every_generated_page_matches_the_code() -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(pages::DIR);
    let mut differ = Vec::new();
    for (file, text) in pages::files()? {
        let committed = std::fs::read_to_string(dir.join(file)).map_err(failed(file))?;
        if committed != text {
            differ.push(file);
        }
    }
    assert!(differ.is_empty(), "{differ:?} in {} differ from the code; renew them: {}", pages::DIR, pages::COMMAND);
    Ok(())
}

/// A new limit is on the page, or is named as internal.
#[test]
fn every_limit_is_documented_or_internal() {
    const PAGE: &str = include_str!("../../../examples/reference/pages/limits.rs");
    let constants =
        include_str!("../../../src/model/limits.rs").lines().filter_map(|line| line.strip_prefix("pub const "));
    let names: Vec<_> = constants.filter_map(|line| line.split(':').next()).collect();
    assert!(names.len() > 80, "{names:?}");
    let listed = |name: &str| {
        PAGE.match_indices("l::").any(|(at, _)| {
            let used =
                PAGE[at + 3..].split(|c: char| !c.is_ascii_uppercase() && c != '_' && !c.is_ascii_digit()).next();
            used == Some(name)
        })
    };
    let missing: Vec<_> = names.iter().filter(|name| !listed(name) && !INTERNAL.contains(name)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} are neither on the page of limits (examples/reference/pages/limits.rs) nor INTERNAL here"
    );
}

#[test]
fn every_row_has_a_description() -> Result<()> {
    let mut empty = Vec::new();
    for page in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(pages::DIR)).map_err(failed("docs"))? {
        let path = page.map_err(failed("docs"))?.path();
        let text = std::fs::read_to_string(&path).map_err(failed("docs"))?;
        let mut has_meaning = false;
        for (line, above) in text.lines().zip(std::iter::once("").chain(text.lines())) {
            has_meaning &= line.starts_with('|');
            has_meaning |= !above.starts_with('|') && line.ends_with("| meaning |");
            if has_meaning && (line.ends_with("| |") || line.ends_with("|  |")) {
                empty.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(empty.is_empty(), "{empty:#?}");
    Ok(())
}

/// The cells of the rows of the table of a page that begins with `header`.
fn table(page: &'static str, header: &str) -> Vec<Vec<&'static str>> {
    let rows = page.lines().skip_while(|line| *line != header).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()).collect()
}

#[test]
fn documented_values_of_spreads_are_correct() -> Result<()> {
    let rows = table(include_str!("../../../docs/reference/producing.md"), "| id | hash | of 1 s | of 10 m | of 1 d |");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let id = MessageId::new(row[0])?;
        let all = u64::from_str_radix(row[1].trim_start_matches("0x"), 16).map_err(|_| Error::bug(row[1]))?;
        for (text, spread) in row[2..].iter().zip([1_000, 600_000, 86_400_000]) {
            let moved = spread_of(&id, Duration::from_millis(spread)).as_millis();
            let others = [all % spread, simulated::moved_ms(row[0], spread)];
            assert_eq!(
                (moved.to_string(), others.map(|ms| ms.to_string())),
                ((*text).to_owned(), [*text; 2].map(str::to_owned))
            );
        }
    }
    Ok(())
}

#[test]
fn documented_hash_vectors_are_correct() -> Result<()> {
    const PAGE: &str = include_str!("../../../docs/reference/partition-hash.md");
    let vectors = table(PAGE, "| bytes | text | hash |");
    assert_eq!(vectors.len(), 12);
    for row in vectors {
        let digits = row[0].as_bytes().chunks(2);
        let bytes = digits.map(|two| u8::from_str_radix(&String::from_utf8_lossy(two), 16));
        let bytes = bytes.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| Error::bug(row[0]))?;
        assert_eq!(format!("{:#010x}", hash(&bytes)), row[2], "{row:?}");
    }
    let keys = table(PAGE, "| key | hash | of 7 | of 8 | of 12 |");
    assert_eq!(keys.len(), 8);
    for row in &keys {
        assert_eq!(format!("{:#010x}", hash(row[0].as_bytes())), row[1], "{row:?}");
        for (number, partition) in [7, 8, 12].into_iter().filter_map(NonZeroU16::new).zip(&row[2..]) {
            assert_eq!(Partition::of(row[0], number).to_string(), *partition, "{row:?}");
        }
    }
    let ids = table(PAGE, "| id | hashed | hash | of 7 | of 8 | of 12 |");
    assert_eq!(ids.len(), 5);
    for row in &ids {
        assert_eq!(format!("{:#010x}", hash(row[1].as_bytes())), row[2], "{row:?}");
        for (number, partition) in [7, 8, 12].into_iter().filter_map(NonZeroU16::new).zip(&row[3..]) {
            assert_eq!(Partition::of(row[0], number).to_string(), *partition, "{row:?}");
        }
    }
    // Signed arithmetic gives another partition, in topics whose number of partitions is no power of two.
    let shows_the_sign = |row: &&Vec<&str>| {
        let signed = hash(row[0].as_bytes()).cast_signed();
        let mistakes = |number: i32| [signed % number, signed.wrapping_abs() % number, (signed & i32::MAX) % number];
        signed < 0
            && [(7, row[2]), (12, row[4])].iter().all(|(n, right)| mistakes(*n).iter().all(|p| p.to_string() != *right))
    };
    assert!(keys.iter().filter(shows_the_sign).count() >= 3);
    Ok(())
}
