use super::*;
use crate::model::error::Kind;
use crate::model::message::{NewMessage, TopicName};
use crate::model::time::Timestamp;
use crate::store::{Reservation, ReservedMessage};
use crate::telemetry::metrics::Metrics;
use crate::wal::{LIMIT_BYTES, WalOptions};

/// An owner of a partition with one message, whose store loses data and gets it back just after it settled.
struct LosesAfterwards {
    epoch: Epoch,
    losses: watch::Sender<Loss>,
}

#[async_trait]
impl Owner for LosesAfterwards {
    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn is_in_doubt(&self) -> bool {
        false
    }

    fn keep_positions(&mut self) {}

    async fn recover(&mut self) -> Result<Recovered> {
        Err(Error::bug("not asked"))
    }

    async fn repair(&mut self, _from: Option<RepairCursor>) -> Result<Repaired> {
        Err(Error::bug("not asked"))
    }

    async fn reserve(&mut self, _limit: ReserveLimit) -> Result<Reserved> {
        let message = NewMessage::new("x").id(MessageId::new("m")?).accept(Timestamp::from_ms(1))?;
        let (ready_at, version) = (Timestamp::from_ms(1), Version::from_us(1));
        let reserved = ReservedMessage {
            id: message.id.clone(),
            ready_at,
            position: ready_at,
            attempts: 0,
            bytes: 1,
            version,
            message: Ok(message),
        };
        let messages = vec![reserved];
        Ok(Reserved {
            reservation: Reservation(1),
            messages,
            head: None,
            sorted_left: Vec::new(),
            sorted: Vec::new(),
            paused: Vec::new(),
            dropped: 0,
            unsettled: 0,
        })
    }

    async fn reserve_by_key(
        &mut self,
        _limit: ReserveLimit,
        _keys: &[KeyCount],
        _share: Option<usize>,
    ) -> Result<Reserved> {
        Err(Error::bug("not asked"))
    }

    async fn sorted_keys(&mut self, _after: Option<&KeyCount>) -> Result<SortedKeys> {
        Err(Error::bug("not asked"))
    }

    async fn settle(&mut self, _settlement: &Settlement) -> Result<()> {
        self.losses.send_modify(|loss| loss.count += 1);
        Ok(())
    }

    async fn start(&mut self, _charges: &[Charge]) -> Result<()> {
        Err(Error::bug("not asked"))
    }

    fn last_delivery(&self) -> Timestamp {
        Timestamp::ZERO
    }

    async fn release(self: Box<Self>, _last_delivery: Timestamp) -> Result<()> {
        Ok(())
    }
}

/// An owner that reserved its message, the decision to acknowledge it, and the directory of its journal.
async fn owner() -> Result<(JournaledOwner, Settlement, tempfile::TempDir)> {
    let dir = tempfile::tempdir().map_err(|error| Error::bug(error.to_string()))?;
    let (clock, metrics) = (Clock::System, Metrics::new()?.wal("journal"));
    let options = WalOptions::new(dir.path().join("journal"), LIMIT_BYTES, clock.clone());
    let log = Wal::open(options, metrics.clone())?;
    let journal = Arc::new(Journal::new(log, Duration::from_secs(60), clock, metrics));
    let (sender, losses) = watch::channel(Loss::default());
    let inner = Box::new(LosesAfterwards { epoch: Epoch::after(1), losses: sender });
    let (topic, partition, group) = (TopicName::new("orders")?, Partition(0), GroupName::standard());
    let mut owner = JournaledOwner::new(inner, journal, losses, GroupPartition { topic, partition, group });
    owner.reserve(ReserveLimit::default()).await?;
    let ack = Settlement { acked: vec![MessageId::new("m")?], ..Settlement::default() };
    Ok((owner, ack, dir))
}

#[tokio::test]
async fn ack_journaled_too_late_for_a_restore_is_in_doubt() -> Result<()> {
    let (mut owner, ack, _dir) = owner().await?;
    let settled = owner.settle(&ack).await.map_err(|error| error.kind());
    assert_eq!(settled, Err(Kind::Stale));
    assert!(owner.is_in_doubt(), "the store has it: no consumer may hear that it was not settled");
    assert_eq!(owner.journal.log().depth().records, 1, "it is kept all the same");
    Ok(())
}

#[tokio::test]
async fn ack_whose_lease_ends_while_journaling_is_in_doubt() -> Result<()> {
    let (mut owner, ack, _dir) = owner().await?;
    tokio::select! {
        biased;
        _ = owner.settle(&ack) => {}
        () = std::future::ready(()) => {}
    }
    assert!(owner.is_in_doubt());
    Ok(())
}
