//! Receipts cannot be made, and not changed: below HTTP, at every verb that takes them.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Receipt, UnknownReason, Verdict};
use dwell::model::error::{Error, Result};
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::platform::signing_key::SigningKey;
use dwell::store::MessageState;

use crate::support::{Running, World, stories};

stories! {
    a_changed_receipt_is_invalid_at_every_verb, a_made_up_receipt_neither_acks_nor_delivers,
    a_receipt_with_another_field_is_invalid, receipts_of_before_are_invalid,
}

const INVALID: Verdict = Verdict::Unknown(UnknownReason::Invalid);

struct Shop {
    broker: Broker,
    topic: TopicName,
    group: GroupName,
    _running: Running,
}

impl Shop {
    async fn open(world: &World) -> Result<Shop> {
        let topic_defaults = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        let lease_ttl = Duration::from_secs(86_400);
        let running = Running::start(world, Options { topic_defaults, lease_ttl, ..Options::default() })?;
        let (broker, topic) = (running.broker.clone(), TopicName::new("orders")?);
        Ok(Shop { broker, topic, group: GroupName::standard(), _running: running })
    }

    async fn push(&self, id: &str, delay: Duration) -> Result<()> {
        let mut message = NewMessage::new("x").id(MessageId::new(id)?);
        message.due = Due::In(delay);
        self.broker.push(&self.topic, message).await.map(drop)
    }

    async fn take(&self, id: &str) -> Result<Delivery> {
        self.push(id, Duration::ZERO).await?;
        let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: None };
        let taken = self.broker.reserve(&self.topic, &self.group, request).await?.pop();
        taken.ok_or_else(|| Error::bug("no delivery"))
    }

    /// The verdicts of every verb, in time and late, on these receipts.
    async fn every_verb(&self, receipts: &[String]) -> Result<Vec<Verdict>> {
        let (topic, group, broker, minute) = (&self.topic, &self.group, &self.broker, Duration::from_secs(60));
        let mut verdicts = Vec::new();
        let decisions = [
            Decision::Ack,
            Decision::Nack { delay: Some(Duration::ZERO), reason: None },
            Decision::Bury { reason: None },
        ];
        for decision in decisions {
            let decided = || receipts.iter().map(|receipt| (receipt.clone(), decision.clone())).collect();
            verdicts.extend(broker.settle(topic, group, decided()).await?);
            for late in [false, true] {
                let rulings = broker.settle_anywhere(topic, group, decided(), late).await?;
                verdicts.extend(rulings.iter().map(|ruling| ruling.verdict));
            }
        }
        verdicts.extend(broker.extend(topic, group, receipts, minute).await?);
        for late in [false, true] {
            let rulings = broker.extend_anywhere(topic, group, receipts.to_vec(), minute, late).await?;
            verdicts.extend(rulings.iter().map(|ruling| ruling.verdict));
        }
        Ok(verdicts)
    }

    async fn state(&self, id: &str) -> Result<MessageState> {
        Ok(self.broker.peek(&self.topic, &self.group, &MessageId::new(id)?, None).await?.1.state)
    }

    async fn ack(&self, receipt: &str) -> Result<Verdict> {
        Ok(self.broker.settle(&self.topic, &self.group, vec![(receipt.to_owned(), Decision::Ack)]).await?[0])
    }
}

async fn key_of(world: &World) -> Result<SigningKey> {
    world.store.backend.receipt_key(&SigningKey::fresh()?).await
}

async fn read(world: &World, delivery: &Delivery) -> Result<Receipt> {
    Receipt::read(&delivery.receipt, &[key_of(world).await?]).map_err(|_| Error::bug("no receipt"))
}

async fn a_changed_receipt_is_invalid_at_every_verb(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let taken = shop.take("a").await?;
    let other = |at: usize| {
        let mut text = taken.receipt.clone().into_bytes();
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(text).unwrap_or_default()
    };
    let changed: Vec<String> = (0..taken.receipt.len()).map(other).collect();
    let verdicts = shop.every_verb(&changed).await?;
    assert!(verdicts.iter().all(|verdict| *verdict == INVALID), "{verdicts:?}");
    assert!(matches!(shop.state("a").await?, MessageState::InFlight));
    assert_eq!(shop.ack(&taken.receipt).await?, Verdict::Acked);
    Ok(())
}

/// What a consumer could make of one receipt, before receipts were signed: it acked, and delivered early, whatever waits.
async fn a_made_up_receipt_neither_acks_nor_delivers(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let own = read(&world, &shop.take("own").await?).await?;
    shop.push("b", Duration::from_secs(3_600)).await?;
    let (mine, version) = (SigningKey::fresh()?, own.version.as_us());
    let guess = |n: u64| {
        let version = dwell::model::version::Version::from_us(version / 1_000 * 1_000 + n);
        Ok(Receipt { id: MessageId::new("b")?, attempt: 0, version, ..own.clone() }.signed(&mine))
    };
    let guessed = (0..200).map(guess).collect::<Result<Vec<_>>>()?;
    let verdicts = shop.every_verb(&guessed).await?;
    assert!(verdicts.iter().all(|verdict| *verdict == INVALID), "{verdicts:?}");
    assert!(matches!(shop.state("b").await?, MessageState::Scheduled));
    Ok(())
}

async fn a_receipt_with_another_field_is_invalid(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    let (first, second) = (shop.take("a").await?, shop.take("b").await?);
    let (a, b) = (read(&world, &first).await?, read(&world, &second).await?);
    let mine = SigningKey::fresh()?;
    let forged: Vec<String> = [
        Receipt { serial: b.serial, ..a.clone() },
        Receipt { id: b.id.clone(), ..a.clone() },
        Receipt { version: b.version, ..a.clone() },
        Receipt { attempt: 2, ..a.clone() },
        Receipt { incarnation: a.incarnation + 1, ..a.clone() },
        Receipt { owner: dwell::store::MemberId::fresh("nobody"), ..a.clone() },
        Receipt { epoch: dwell::store::Epoch::after(a.epoch.number()), ..a.clone() },
        Receipt { partition: dwell::model::partition::Partition(7), ..a.clone() },
    ]
    .iter()
    .map(|receipt| receipt.signed(&mine))
    .collect();
    let verdicts = shop.every_verb(&forged).await?;
    assert!(verdicts.iter().all(|verdict| *verdict == INVALID), "{verdicts:?}");
    assert_eq!((shop.ack(&first.receipt).await?, shop.ack(&second.receipt).await?), (Verdict::Acked, Verdict::Acked));
    Ok(())
}

async fn receipts_of_before_are_invalid(world: World) -> Result<()> {
    let shop = Shop::open(&world).await?;
    shop.take("a").await?;
    let before = "0.1.k3Zq9xT0aB1c.0.9f3a1c2e.1.6475f6b8e0c1d.a".to_owned();
    let verdicts = shop.every_verb(&[before]).await?;
    assert!(verdicts.iter().all(|verdict| *verdict == INVALID), "{verdicts:?}");
    Ok(())
}
