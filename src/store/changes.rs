//! Taking a message out of its groups, or giving it another due time, while it waits: what is asked and what is answered.

use super::Pushed;
use crate::model::message::{GroupName, MessageId};
use crate::model::time::Timestamp;
use crate::model::version::Version;

/// What became of a message in one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It waited there, scheduled or ready, and what was asked is done. Also what a cancel finds done already.
    Done,
    /// The owner of the pair has it: with a consumer, or ready in its memory. Not touched.
    InFlight,
    /// It is dead. Not touched.
    Dead,
    /// The group does not have it: it never did, or it was settled.
    Absent,
}

impl Fate {
    /// Every fate.
    pub const ALL: [Fate; 4] = [Fate::Done, Fate::InFlight, Fate::Dead, Fate::Absent];

    /// The stable name, as scripts say it.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Done => "done",
            Fate::InFlight => "in_flight",
            Fate::Dead => "dead",
            Fate::Absent => "absent",
        }
    }
}

/// The fate of a message in each group of its topic, in the order of the descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fates(pub Vec<(GroupName, Fate)>);

impl Fates {
    /// The same fate in all groups.
    pub fn all(groups: &[GroupName], fate: Fate) -> Fates {
        Fates(groups.iter().map(|group| (group.clone(), fate)).collect())
    }

    /// Whether it has this fate in any group.
    pub fn has(&self, fate: Fate) -> bool {
        self.0.iter().any(|(_, found)| *found == fate)
    }

    /// The groups in which it has this fate.
    pub fn of(&self, fate: Fate) -> impl Iterator<Item = &GroupName> {
        self.0.iter().filter(move |(_, found)| *found == fate).map(|(group, _)| group)
    }
}

/// What came of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// In each group.
    pub fates: Fates,
    /// The version of the cancel: what has a lower one does not come back from a log. None if nothing was cancelled.
    pub version: Option<Version>,
    /// It was on the local disk, on its way to the store, and is not any more.
    pub buffered: bool,
}

/// What a reschedule asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reschedule {
    /// The message.
    pub id: MessageId,
    /// Its new due time.
    pub due_at: Timestamp,
    /// What it has to be now, in every group in which it waits.
    pub expected: Expected,
}

/// What a message has to be so that it is rescheduled. Who finds the new due time in place already finds what it expects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// Due at that time, as the producer said it or a reschedule did.
    pub due_at: Option<Timestamp>,
    /// Tried so often.
    pub attempts: Option<u32>,
}

/// What came of a push with a policy about ids that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It was accepted, or is a duplicate.
    Pushed(Pushed),
    /// Not replaced and not moved: a group has it in flight. Nothing changed.
    InFlight,
    /// Not replaced and not moved: it is dead in a group. Nothing changed.
    Dead,
    /// What is there has this id and another key, so it is another message. Nothing changed.
    OtherKey,
    /// Not moved: it expires before the due time that was asked for. Nothing changed.
    Expires,
}

/// What came of a reschedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rescheduled {
    /// It has the new due time in every group in which it waited. With its fate in each group.
    Done(Fates),
    /// In this group it is not what was expected. Nothing was changed anywhere.
    Changed(GroupName),
    /// It expires before the due time that was asked for. Nothing was changed anywhere.
    Expires,
}
