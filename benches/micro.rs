//! What is computed for every message: its partition, its bytes and its receipt. Nothing here touches a store.
//!
//! `cargo bench`, or `cargo bench -- codec` for a part. The parameters are in the names.

use std::fmt;
use std::num::NonZeroU16;

use bytes::Bytes;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use dwell::codec::{decode_body, encode_body};
use dwell::delivery::{GroupTag, Receipt};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, Key, Message, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::model::version::Version;
use dwell::platform::signing_key::SigningKey;
use dwell::store::{Epoch, MemberId};

fn main() -> Result<()> {
    // A bench cannot fail, so what it works on is tried before.
    for shape in &SHAPES {
        encode_body(&shape.message()?, Version::from_us(1))?;
    }
    divan::main();
    Ok(())
}

const EIGHT: NonZeroU16 = NonZeroU16::MIN.saturating_add(7);

/// Bytes of a key.
#[divan::bench(args = [KeyBytes(8), KeyBytes(36), KeyBytes(256)])]
fn partition_of(bencher: Bencher<'_, '_>, size: &KeyBytes) {
    let key = "k".repeat(size.0);
    bencher.counter(BytesCount::new(size.0)).bench(|| Partition::of(black_box(&key), EIGHT));
}

/// Bytes of a payload, and entries of meta.
const SHAPES: [Shape; 4] = [Shape(100, 0), Shape(1_000, 0), Shape(1_000, 8), Shape(100_000, 0)];

#[divan::bench(args = SHAPES)]
fn codec_encode(bencher: Bencher<'_, '_>, shape: &Shape) {
    let Ok(message) = shape.message() else { return };
    bencher.counter(BytesCount::new(shape.0)).bench(|| encode_body(black_box(&message), Version::from_us(1)));
}

#[divan::bench(args = SHAPES)]
fn codec_decode(bencher: Bencher<'_, '_>, shape: &Shape) {
    let Ok(message) = shape.message() else { return };
    let Ok(body) = encode_body(&message, Version::from_us(1)).map(Bytes::from) else { return };
    bencher
        .counter(BytesCount::new(shape.0))
        .with_inputs(|| (message.id.clone(), body.clone()))
        .bench_values(|(id, body)| decode_body(id, body));
}

fn receipt() -> Result<(SigningKey, Receipt)> {
    let receipt = Receipt {
        group: GroupTag::of(&TopicName::new("orders")?, &GroupName::standard()),
        incarnation: 1_767_323_045_678,
        partition: Partition(3),
        epoch: Epoch::after(16),
        owner: MemberId::fresh("host"),
        serial: 152,
        attempt: 1,
        version: Version::from_us(1_767_323_045_678_901),
        id: MessageId::new("01JH0000000000000000000000")?,
    };
    Ok((SigningKey::fresh()?, receipt))
}

#[divan::bench]
fn receipt_sign(bencher: Bencher<'_, '_>) {
    let Ok((key, receipt)) = receipt() else { return };
    bencher.bench(|| black_box(&receipt).signed(&key));
}

#[divan::bench]
fn receipt_read(bencher: Bencher<'_, '_>) {
    let Ok((key, receipt)) = receipt() else { return };
    let (text, keys) = (receipt.signed(&key), [key]);
    bencher.bench(|| Receipt::read(black_box(&text), &keys));
}

/// A text that somebody made up.
#[divan::bench]
fn receipt_refuse(bencher: Bencher<'_, '_>) {
    let (Ok((key, receipt)), Ok(other)) = (receipt(), SigningKey::fresh()) else { return };
    let (text, keys) = (receipt.signed(&other), [key]);
    bencher.bench(|| Receipt::read(black_box(&text), &keys));
}

struct KeyBytes(usize);

impl fmt::Display for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key_bytes={}", self.0)
    }
}

/// Bytes of the payload, and entries of meta.
struct Shape(usize, usize);

impl Shape {
    fn message(&self) -> Result<Message> {
        let mut new = NewMessage::new(vec![b'x'; self.0]);
        new.id = Some(MessageId::new("01JH0000000000000000000000")?);
        new.key = Some(Key::new("customer-4711")?);
        new.meta = (0..self.1).map(|n| (format!("name-{n}"), "a value of some length".to_owned())).collect();
        new.accept(Timestamp::from_ms(1_767_323_045_678))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "payload_bytes={} meta={}", self.0, self.1)
    }
}
