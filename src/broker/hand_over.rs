//! Taking over what another broker had buffered.

use super::Broker;
use crate::model::error::{Error, Kind, Result};
use crate::model::topic::Descriptor;
use crate::store::{HandedOver, TakenOver};
use crate::wal::Record;

impl Broker {
    /// Keeps records of a broker that stops, durably. `is_admin` says whether whoever brings them may create and delete
    /// topics; without, only what a push would create is taken, and deletions are left out.
    ///
    /// # Errors
    /// `Forbidden`, and those of [`crate::store::Store::take_over`].
    pub async fn take_over(&self, handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        let is_pushed = |wanted: &Descriptor| {
            let pushed = Descriptor::new(wanted.topic.clone(), self.options.topic_defaults.clone());
            self.options.auto_create && *wanted == pushed
        };
        let created = handed.records.iter().filter_map(|record| match &record.record {
            Record::Create(wanted) => Some(wanted),
            _ => None,
        });
        if let Some(wanted) = created.filter(|_| !is_admin).find(|wanted| !is_pushed(wanted)) {
            let why =
                format!("topic {} was created with settings of its own: that needs a token with `admin`", wanted.topic);
            return Err(Error::new(Kind::Forbidden, why));
        }
        self.store.messages.take_over(handed, is_admin).await
    }
}
