//! The MD5 digests with which clients check bodies and attributes.

use std::fmt::Write as _;

use bytes::{Buf, Bytes};
use md5::{Digest, Md5};

use super::model::{AttributeValue, Attributes};

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// Lower-case hexadecimal digits.
pub(crate) fn hex_md5(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes whose MD5 clients compare, sorted by name; also the form in which attributes are stored.
pub(crate) fn encode(attributes: &Attributes) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in attributes {
        put(&mut bytes, name.as_bytes());
        put(&mut bytes, value.data_type.as_bytes());
        match (&value.string_value, &value.binary_value) {
            (_, Some(binary)) => {
                bytes.push(BINARY);
                put(&mut bytes, binary);
            }
            (text, None) => {
                bytes.push(TEXT);
                put(&mut bytes, text.as_deref().unwrap_or_default().as_bytes());
            }
        }
    }
    bytes
}

/// Reads what [`encode`] wrote; `None` for anything else.
pub(crate) fn decode(mut bytes: Bytes) -> Option<Attributes> {
    let mut attributes = Attributes::new();
    while bytes.has_remaining() {
        let (name, data_type) = (take_text(&mut bytes)?, take_text(&mut bytes)?);
        let (mut string_value, mut binary_value) = (None, None);
        match bytes.try_get_u8().ok()? {
            TEXT => string_value = Some(take_text(&mut bytes)?),
            BINARY => binary_value = Some(take(&mut bytes)?),
            _ => return None,
        }
        attributes.insert(name, AttributeValue { data_type, string_value, binary_value });
    }
    Some(attributes)
}

/// `None` without attributes: clients take the MD5 of nothing for a mistake.
pub(crate) fn of_attributes(attributes: &Attributes) -> Option<String> {
    (!attributes.is_empty()).then(|| hex_md5(&encode(attributes)))
}

fn put(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(value);
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn take_text(bytes: &mut Bytes) -> Option<String> {
    String::from_utf8(take(bytes)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        let text = |data_type: &str, value: &str| AttributeValue {
            data_type: data_type.to_owned(),
            string_value: Some(value.to_owned()),
            binary_value: None,
        };
        let binary = AttributeValue {
            data_type: "Binary.gif".to_owned(),
            string_value: None,
            binary_value: Some(Bytes::from_static(b"\0\xff")),
        };
        let number = text("Number.int", "7");
        [("name".to_owned(), text("String", "öre")), ("b".to_owned(), binary), ("Count".to_owned(), number)].into()
    }

    #[test]
    fn md5_of_a_body_and_of_attributes_is_the_one_of_clients() {
        assert_eq!(hex_md5(b"hello"), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(of_attributes(&Attributes::new()), None);
        // Computed with the algorithm of the AWS documentation, by hand.
        let bytes = b"\0\0\0\x05Count\0\0\0\x0aNumber.int\x01\0\0\0\x017\
            \0\0\0\x01b\0\0\0\x0aBinary.gif\x02\0\0\0\x02\0\xff\
            \0\0\0\x04name\0\0\0\x06String\x01\0\0\0\x04\xc3\xb6re";
        assert_eq!(encode(&attributes()), bytes);
        assert_eq!(of_attributes(&attributes()), Some(hex_md5(bytes)));
    }

    #[test]
    fn attributes_round_trip_and_damaged_ones_are_refused() {
        let bytes = encode(&attributes());
        assert_eq!(decode(bytes.clone().into()), Some(attributes()));
        for end in 1..bytes.len() {
            let whole = [14, 31, 51].contains(&end);
            let cut = decode(Bytes::copy_from_slice(&bytes[..end]));
            assert!(cut.is_none() || whole || cut.is_some_and(|cut| cut.len() < 3), "{end}");
        }
        assert_eq!(decode(Bytes::from_static(b"\xff\xff\xff\xffabc")), None);
    }
}
