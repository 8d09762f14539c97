//! The generated pages of docs/reference are what the code says.

#[path = "../../examples/reference/pages/mod.rs"]
mod pages;

use std::path::Path;

use dwell::error::Result;

use crate::support::failed;

/// Constants of src/limits.rs that no client and no operator meets.
const INTERNAL: [&str; 28] = [
    "ACQUIRES_MAX",
    "ADDRESS_BYTES_MAX",
    "ANSWER_UNCOUNTED_BYTES_MAX",
    "AUDIT_FINDINGS_MAX",
    "CALL_BYTES_MAX",
    "CALL_IDS_MAX",
    "ENVELOPE_BYTES_MAX",
    "JSON_GROWTH_MAX",
    "MEMBER_BYTES_MAX",
    "NOTE_BYTES_MAX",
    "PEERS_MAX",
    "PEER_ANSWER_BYTES_MAX",
    "PEER_EPOCHS_MAX",
    "PREFETCH_BYTES_MAX",
    "PREFETCH_LIMIT_BYTES",
    "PREFETCH_LIMIT_BYTES_MAX",
    "PREFETCH_LIMIT_BYTES_MIN",
    "PREFETCH_MESSAGES_MAX",
    "PUT_IDS_MAX",
    "RECOVER_IDS_MAX",
    "REFUSED_BODY_BYTES_MAX",
    "RESTORE_CHANGES_MAX",
    "SLOT_AHEAD_MAX",
    "SLOT_OPEN",
    "SMALL_BODY_BYTES_MAX",
    "SOCKET_PATH_BYTES_MAX",
    "SPANS_WAITING_MAX",
    "WEBHOOK_MARGIN",
];

#[test]
fn every_generated_page_is_what_the_code_says() -> Result<()> {
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
fn every_limit_is_on_the_page_or_internal() {
    const PAGE: &str = include_str!("../../examples/reference/pages/limits.rs");
    let constants = include_str!("../../src/limits.rs").lines().filter_map(|line| line.strip_prefix("pub const "));
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
