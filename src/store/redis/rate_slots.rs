//! The slots of a group, in which messages may be handed out.

use std::time::Duration;

use super::Shared;
use super::scripts::{Call, SCRIPTS};
use crate::model::error::Result;
use crate::model::limits::{SLOT_AHEAD_MAX, SLOT_OPEN};
use crate::model::message::{GroupName, TopicName};
use crate::store::{SlotAsk, Slots};

impl Shared {
    pub(super) async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots> {
        let call = Call::new(&SCRIPTS.slots, &[&self.keys.slots(topic, group)])
            .arg(ask.count)
            .arg(us(ask.spacing))
            .arg(us(ask.within.min(SLOT_AHEAD_MAX)))
            .arg(us(SLOT_AHEAD_MAX + SLOT_OPEN))
            .arg(self.time_override());
        let (_, mut reply) = self.ask(&call).await?;
        let count = u32::try_from(reply.number()?).unwrap_or(0);
        Ok(Slots { count, after: Duration::from_micros(reply.number()?) })
    }
}

fn us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
