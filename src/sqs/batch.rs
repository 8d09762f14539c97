//! Batches of any action: what AWS checks about their entries, and the answer for each of them.

use std::collections::BTreeSet;

use super::errors::{EMPTY_BATCH, ENTRIES_NOT_DISTINCT, Failure, INVALID_ENTRY, Result, TOO_MANY_ENTRIES};
use super::model::{Action, Answer, Entry, Failed, Sent};

const ENTRIES_MAX: usize = 10;
const ID_MAX: usize = 80;

/// Checks the entries of a batch of any action. Errors: `EMPTY_BATCH`, `TOO_MANY_ENTRIES`, `INVALID_ENTRY` and
/// `ENTRIES_NOT_DISTINCT`, for which the whole batch is refused.
pub(crate) fn check_batch(action: Action, entries: &[Entry]) -> Result<()> {
    if entries.is_empty() {
        let why = format!("There should be at least one {}RequestEntry in the request.", action.name());
        return Err(Failure::new(EMPTY_BATCH, why));
    }
    if entries.len() > ENTRIES_MAX {
        let why = format!("Maximum number of entries per request are {ENTRIES_MAX}. You have sent {}.", entries.len());
        return Err(Failure::new(TOO_MANY_ENTRIES, why));
    }
    let mut seen = BTreeSet::new();
    for entry in entries {
        let id = entry.id.as_deref().unwrap_or_default();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(allowed) {
            let why = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at \
                       most 80 letters long.";
            return Err(Failure::new(INVALID_ENTRY, why));
        }
        if !seen.insert(id) {
            return Err(Failure::new(ENTRIES_NOT_DISTINCT, format!("Id {id} repeated.")));
        }
    }
    Ok(())
}

/// The answer to a batch: what became of each entry, under its id.
pub(crate) fn batch_answer(entries: Vec<Entry>, outcomes: Vec<Result<Sent>>) -> Answer {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (entry, outcome) in entries.into_iter().zip(outcomes) {
        let id = entry.id.unwrap_or_default();
        match outcome {
            Ok(sent) => successful.push(Sent { id: Some(id), ..sent }),
            Err(failure) => failed.push(Failed::new(id, &failure)),
        }
    }
    Answer { successful: Some(successful), failed, ..Answer::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqs::errors::Class;

    #[test]
    fn a_batch_has_one_to_ten_entries_with_distinct_ids() {
        let entry = |id: &str| Entry { id: Some(id.to_owned()), ..Entry::default() };
        let class = |ids: &[&str]| -> Option<Class> {
            let entries: Vec<_> = ids.iter().map(|id| entry(id)).collect();
            check_batch(Action::DeleteMessageBatch, &entries).err().map(|failure| failure.class)
        };
        let ten = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "a-Z_9"];
        assert_eq!(class(&ten), None);
        assert_eq!(class(&[]), Some(EMPTY_BATCH));
        assert_eq!(class(&[&ten[..], &["x"]].concat()), Some(TOO_MANY_ENTRIES));
        assert_eq!(class(&["a", "a"]), Some(ENTRIES_NOT_DISTINCT));
        for wrong in ["", "a.b", "ö", &"a".repeat(81)] {
            assert_eq!(class(&[wrong]), Some(INVALID_ENTRY), "{wrong}");
        }
    }
}
