//! Which member an epoch belongs to: it never changes hands, so what was learnt once stays true.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Place;
use crate::delivery::Receipt;
use crate::model::limits::REMOTE_EPOCHS_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::store::{Epoch, MemberId};

/// The last known epoch of each pair, and its owner.
#[derive(Default)]
pub(super) struct Epochs(Mutex<Owners>);

type Owners = HashMap<(TopicName, GroupName, Partition), (Epoch, MemberId)>;

impl Epochs {
    /// Who owns the epoch of this receipt, if that was learnt.
    pub(super) fn owner(&self, place: Place<'_>, receipt: &Receipt) -> Option<MemberId> {
        let owners = self.lock();
        owners.get(&key(place, receipt)).filter(|(epoch, _)| *epoch == receipt.epoch).map(|(_, owner)| owner.clone())
    }

    /// The epoch is this member's.
    pub(super) fn learn(&self, place: Place<'_>, receipt: &Receipt, owner: &MemberId) {
        let mut owners = self.lock();
        if owners.len() >= REMOTE_EPOCHS_MAX {
            owners.clear();
        }
        owners.insert(key(place, receipt), (receipt.epoch.clone(), owner.clone()));
    }

    /// Its owner did not answer: another one may have taken over.
    pub(super) fn forget(&self, place: Place<'_>, receipt: &Receipt) {
        self.lock().remove(&key(place, receipt));
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key((topic, group): Place<'_>, receipt: &Receipt) -> (TopicName, GroupName, Partition) {
    (topic.clone(), group.clone(), receipt.partition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::GroupTag;
    use crate::model::error::Result;

    #[test]
    fn only_the_very_epoch_is_known_and_never_too_many() -> Result<()> {
        let (topic, group, epochs) = (TopicName::new("orders")?, GroupName::standard(), Epochs::default());
        let place = (&topic, &group);
        let tag = GroupTag::of(&topic, &group);
        let receipt = |epoch: &Epoch, partition| Receipt {
            partition: Partition(partition),
            epoch: epoch.clone(),
            serial: 7,
            group: tag,
        };
        let (epoch, owner) = (Epoch::after(1), MemberId::from_store("b"));
        epochs.learn(place, &receipt(&epoch, 0), &owner);
        assert_eq!(epochs.owner(place, &receipt(&epoch, 0)), Some(owner.clone()));
        assert_eq!(epochs.owner(place, &receipt(&Epoch::after(1), 0)), None);
        assert_eq!(epochs.owner(place, &receipt(&epoch, 1)), None);
        epochs.forget(place, &receipt(&epoch, 0));
        assert_eq!(epochs.owner(place, &receipt(&epoch, 0)), None);
        for partition in 0..=u16::try_from(REMOTE_EPOCHS_MAX).unwrap_or(u16::MAX) {
            epochs.learn(place, &receipt(&epoch, partition), &owner);
            assert!(epochs.lock().len() <= REMOTE_EPOCHS_MAX);
        }
        assert_eq!(epochs.lock().len(), 1);
        Ok(())
    }
}
