//! Bundles of records of the log: `bytes (4, big endian) | record`, again and again.

use dwell::codec::{NumberedRecord, UnnumberedRecord};
use dwell::wal::bundle_fuzzing::{bundled, records, without};
use libfuzzer_sys::Corpus;

use crate::codec::mend_record;
use crate::kept;
use crate::memory::bounded;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let _ = records(data.to_vec().into());
    let mut bundle = data.to_vec();
    mend(&mut bundle);
    let read = bounded(&bundle, || records(bundle.clone().into()));
    let numbers: Vec<u64> = read.iter().map(|record| record.number).collect();
    assert_eq!(without(bundle.clone().into(), &numbers), None);
    if let Some(first) = numbers.first() {
        let left = without(bundle.clone().into(), &[*first]).map_or(Vec::new(), |left| records(left.into()));
        let others: Vec<&NumberedRecord> = read.iter().filter(|record| record.number != *first).collect();
        assert_eq!(left.iter().collect::<Vec<_>>(), others);
    }
    bundle_again(&read);
    kept(!read.is_empty())
}

/// What was read, written and read again, is the same but for the numbers.
fn bundle_again(read: &[NumberedRecord]) {
    let write = |read: &NumberedRecord| UnnumberedRecord::new(&read.record, read.at).expect("what was read is written");
    let bundles = bundled(7, read.iter().map(write).collect());
    let again: Vec<NumberedRecord> = bundles.into_iter().flat_map(|(_, bundle)| records(bundle.into())).collect();
    let numbered: Vec<NumberedRecord> =
        (7..).zip(read).map(|(number, read)| NumberedRecord { number, ..read.clone() }).collect();
    assert_eq!(again, numbered);
}

/// Gives each record its checksum.
pub(crate) fn mend(bundle: &mut [u8]) {
    let mut rest = bundle;
    while let Some((length, records)) = rest.split_first_chunk_mut::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > records.len() {
            return;
        }
        let (record, behind) = records.split_at_mut(length);
        mend_record(record);
        rest = behind;
    }
}
