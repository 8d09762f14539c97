//! The signed part of a receipt.

use bincode::{BorrowDecode, Encode};

use super::CONFIG;

#[derive(Encode, BorrowDecode)]
pub struct ReceiptBody<'a> {
    pub group: [u8; 8],
    pub incarnation: u64,
    pub partition: u16,
    pub epoch: &'a str,
    pub owner: &'a str,
    pub serial: u64,
    pub attempt: u32,
    /// µs.
    pub version: u64,
    pub id: &'a str,
}

pub fn encode_receipt(receipt: &ReceiptBody<'_>) -> Vec<u8> {
    // Numbers and short texts have a form, and memory takes it.
    bincode::encode_to_vec(receipt, CONFIG).unwrap_or_default()
}

/// `None` unless the bytes are one receipt to the end.
pub fn decode_receipt(bytes: &[u8]) -> Option<ReceiptBody<'_>> {
    let (receipt, read) = bincode::borrow_decode_from_slice(bytes, CONFIG).ok()?;
    (read == bytes.len()).then_some(receipt)
}
