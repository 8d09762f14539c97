//! dwell's own scripts, put together as `src/store/redis/scripts.rs` does.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Failure;

pub(crate) fn all() -> Result<BTreeMap<String, String>, Failure> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../src/store/redis");
    let list = std::fs::read_to_string(dir.join("scripts.rs"))?;
    let list =
        list.split("\nscripts! {").nth(1).and_then(|rest| rest.split("\n}").next()).ok_or("no list of scripts")?;
    let mut found = BTreeMap::new();
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (verb, parts) = line.split_once(':').ok_or("no verb")?;
        let mut parts = parts.split('"').skip(1).step_by(2);
        let mut source = format!("{}\n", parts.next().ok_or("no head")?);
        for part in parts.chain([verb]) {
            source += &std::fs::read_to_string(dir.join(format!("scripts/{part}.lua")))?;
        }
        found.insert(verb.to_owned(), source);
    }
    Ok(found)
}
