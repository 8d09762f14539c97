//! Pages of records, as a broker that stops gives them to another one: the body of a hand-over.

use bytes::Bytes;
use dwell::codec::{decode_page, encode_page};
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::memory::bounded;
use crate::wal::mend;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let _ = decode_page(Bytes::copy_from_slice(data));
    let mut page = data.to_vec();
    mend(&mut page);
    let Ok(read) = bounded(&page, || decode_page(page.clone().into())) else { return Corpus::Reject };
    let again = encode_page(&read).expect("what was read is written");
    assert_eq!(decode_page(again.into()).as_ref(), Ok(&read));
    kept(!read.is_empty())
}
