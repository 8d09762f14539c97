//! Finding a message by its id, with or without the key that it was pushed with.
//!
//! A message is identified by its id and its key. The key decides the partition, so without it every partition is asked.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::Broker;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::{Key, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::store::Peeked;

/// Partitions that are asked at the same time.
const TOGETHER: usize = 64;

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// It was found there, or can be nowhere else.
    In(Partition),
    /// No partition has it, and nothing says in which it was.
    Nowhere,
}

impl Location {
    /// The partition, or the one in which the message is if it has no key.
    pub(super) fn or_home(self, descriptor: &Descriptor, id: &MessageId) -> Partition {
        match self {
            Location::In(partition) => partition,
            Location::Nowhere => descriptor.partition_of(id.as_str()),
        }
    }
}

impl Broker {
    /// Finds the partition of a message, in the store and on the local disk.
    ///
    /// # Errors
    /// `NotFound` when the message of this id has another key, `Ambiguous` when there are several and no key is given, and the
    /// store's.
    pub(super) async fn locate(&self, descriptor: &Descriptor, id: &MessageId, key: Option<&Key>) -> Result<Location> {
        let home = |key: Option<&Key>| descriptor.partition_of(key.map_or(id.as_str(), Key::as_str));
        let buffered = self.store.messages.buffered(&descriptor.topic, id).await?;
        let is_buffered = !buffered.is_empty();
        let mut found: BTreeSet<(Partition, Option<Key>)> =
            buffered.into_iter().map(|key| (home(key.as_ref()), key)).collect();
        let partitions = match key {
            Some(key) => vec![home(Some(key))],
            None => descriptor.partitions().collect(),
        };
        let is_certain = partitions.len() == 1;
        match self.find_message(descriptor, &partitions, id).await {
            Ok(stored) => found.extend(stored.into_iter().map(|(at, peeked)| (at, peeked.message.envelope.key))),
            // The verb says what is wrong, or finds what it needs on the disk.
            Err(error) if error.is_outage() && (is_buffered || is_certain) => {}
            Err(error) => return Err(error),
        }
        let Some(key) = key else {
            return match found.first() {
                Some(_) if found.len() > 1 => Err(ambiguous(id, found.iter().map(|(_, key)| key.as_ref()))),
                Some((partition, _)) => Ok(Location::In(*partition)),
                None if is_certain => Ok(Location::In(home(None))),
                None => Ok(Location::Nowhere),
            };
        };
        let partition = home(Some(key));
        let has_other = found.iter().any(|(at, other)| *at == partition && other.as_ref() != Some(key));
        let has_it = found.iter().any(|(_, other)| other.as_ref() == Some(key));
        if has_other && !has_it {
            return Err(Error::not_found(format!(
                "there is no message {id} with this `key`: one of this id has another"
            )));
        }
        Ok(Location::In(partition))
    }

    /// Looks for a message in some partitions, in each group after group until one has it.
    async fn find_message(
        &self,
        descriptor: &Descriptor,
        partitions: &[Partition],
        id: &MessageId,
    ) -> Result<Vec<(Partition, Peeked)>> {
        let mut found = Vec::new();
        for partitions in partitions.chunks(TOGETHER) {
            let looks = partitions.iter().map(|partition| async move {
                for group in &descriptor.groups {
                    if let Some(peeked) = self.store.reads.peek(&descriptor.pair(*partition, group), id).await? {
                        return Ok(Some((*partition, peeked)));
                    }
                }
                Ok(None)
            });
            let looks = join_all(looks);
            // One partition is as cheap as any other verb; all of them share the store with live traffic.
            let asked = if descriptor.settings.partitions.get() as usize <= TOGETHER {
                looks.await
            } else {
                self.reads.begin().await?.call(looks).await
            };
            for look in asked {
                found.extend(look?);
            }
        }
        Ok(found)
    }
}

fn ambiguous<'a>(id: &MessageId, keys: impl Iterator<Item = Option<&'a Key>>) -> Error {
    let named = keys.map(|key| key.map_or("no key".to_owned(), |key| format!("the key {:?}", key.as_str())));
    let named = named.collect::<Vec<_>>().join(", ");
    Error::new(
        Kind::Ambiguous,
        format!("say with `key` which message {id} is meant; there is one with each of: {named}"),
    )
}
