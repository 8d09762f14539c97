//! Attributes of a message as SQS clients send them, and the bytes in which they travel: an attachment of the message.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The first byte of an attachment that has attributes.
const ATTACHMENT_VERSION: u8 = 1;
const TEXT: u8 = 1;
const BINARY: u8 = 2;

pub type Attributes = BTreeMap<String, AttributeValue>;

/// A message attribute: text, or bytes as base64.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct AttributeValue {
    pub data_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", with = "base64_bytes")]
    pub binary_value: Option<Bytes>,
}

impl AttributeValue {
    pub fn size(&self) -> usize {
        let text = self.string_value.as_ref().map_or(0, String::len);
        self.data_type.len() + text + self.binary_value.as_ref().map_or(0, Bytes::len)
    }
}

mod base64_bytes {
    use super::*;

    #[allow(clippy::ref_option, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        let bytes = text.map(|text| STANDARD.decode(text.trim())).transpose();
        Ok(bytes.map_err(|_| de::Error::custom("BinaryValue is not base64"))?.map(Bytes::from))
    }
}

/// The attachment of a message with these attributes; empty without any.
pub fn to_attachment(attributes: &Attributes) -> Bytes {
    if attributes.is_empty() {
        return Bytes::new();
    }
    let mut bytes = vec![ATTACHMENT_VERSION];
    bytes.extend(encode_attributes(attributes));
    bytes.into()
}

/// The attributes in an attachment; none in one that has something else.
pub fn of_attachment(attachment: &Bytes) -> Attributes {
    match attachment.first() {
        Some(&ATTACHMENT_VERSION) => decode_attributes(attachment.slice(1..)).unwrap_or_default(),
        _ => Attributes::new(),
    }
}

/// Whether XML, and so SQS, allows a character.
pub fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// The bytes whose MD5 clients compare, sorted by name; also the form in which attributes are stored.
pub fn encode_attributes(attributes: &Attributes) -> Vec<u8> {
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

/// Reads what [`encode_attributes`] wrote; `None` for anything else, and for texts that no client can have sent.
fn decode_attributes(mut bytes: Bytes) -> Option<Attributes> {
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

fn put(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(value);
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn take_text(bytes: &mut Bytes) -> Option<String> {
    String::from_utf8(take(bytes)?.to_vec()).ok().filter(|text| text.chars().all(is_xml))
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
    fn attributes_round_trip_and_damaged_ones_are_refused() {
        let bytes = encode_attributes(&attributes());
        assert_eq!(decode_attributes(bytes.clone().into()), Some(attributes()));
        for end in 1..bytes.len() {
            let whole = [14, 31, 51].contains(&end);
            let cut = decode_attributes(Bytes::copy_from_slice(&bytes[..end]));
            assert!(cut.is_none() || whole || cut.is_some_and(|cut| cut.len() < 3), "{end}");
        }
        assert_eq!(decode_attributes(Bytes::from_static(b"\xff\xff\xff\xffabc")), None);
    }
}
