//! A page of records, as one broker gives it to another: for each its length (4 bytes, big endian) and its bytes.

use bytes::{Buf, Bytes};

use super::record::{NumberedRecord, UnnumberedRecord, decode_record};
use crate::model::error::{Error, Result};
use crate::model::limits::ENVELOPE_BYTES_MAX;

/// Bytes of one record: a message, or the settings of a topic, and what stands before them.
const RECORD_BYTES_MAX: usize = ENVELOPE_BYTES_MAX + 64 * 1024;

/// The bytes of records.
///
/// # Errors
/// A bug: a record did not encode.
pub fn encode_page(records: &[NumberedRecord]) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    for NumberedRecord { number, at, record } in records {
        let bytes = UnnumberedRecord::new(record, *at)?.numbered(*number);
        let length = u32::try_from(bytes.len()).map_err(|_| Error::bug("a record of 4 GiB"))?;
        page.extend_from_slice(&length.to_be_bytes());
        page.extend_from_slice(&bytes);
    }
    Ok(page)
}

/// The records of their bytes; payloads share them.
///
/// # Errors
/// `Corrupt` for anything that [`encode_page`] did not write.
pub fn decode_page(mut page: Bytes) -> Result<Vec<NumberedRecord>> {
    let mut records = Vec::new();
    while !page.is_empty() {
        let length = page.first_chunk().map(|length| u32::from_be_bytes(*length));
        let length = length
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length <= (page.len() - 4).min(RECORD_BYTES_MAX));
        let length = length.ok_or_else(|| Error::corrupt("a page of records is cut"))?;
        page.advance(4);
        records.push(decode_record(page.split_to(length))?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Record;
    use crate::model::message::{Conflict, NewMessage, TopicName};
    use crate::model::time::Timestamp;
    use crate::model::version::{CallId, Version};

    #[test]
    fn a_page_is_read_back_and_a_cut_one_is_not() -> Result<()> {
        let record = |number: u64| {
            let message = NewMessage::new("x").accept(Timestamp::from_ms(1))?;
            let origin = Some(CallId { stream: "01JZ".to_owned(), seq: number });
            let topic = TopicName::new("orders")?;
            let (version, conflict, call) = (Version::from_us(7), Conflict::Keep, None);
            let record = Record::Push { topic, message, version, conflict, call, origin };
            Ok(NumberedRecord { number, at: Timestamp::from_ms(2), record })
        };
        let records = (1..4).map(record).collect::<Result<Vec<_>>>()?;
        let page = encode_page(&records)?;
        assert_eq!(decode_page(page.clone().into())?, records);
        assert_eq!(decode_page(Bytes::new())?, []);
        for end in 1..page.len() {
            let read = decode_page(page[..end].to_vec().into());
            assert!(read.is_err() || read.is_ok_and(|read| read.len() < records.len()), "cut at {end}");
        }
        assert!(decode_page(vec![255; 64].into()).is_err());
        Ok(())
    }
}
