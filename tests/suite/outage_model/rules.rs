//! The rules of the outage design, each one a switch.

/// One rule. The text says what holds while the rule is in force; a search may remove exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    // Versions.
    /// A live push whose version is not above what is there changes nothing, and is stamped anew.
    LivePushesAreAboveWhatIsThere,
    /// A live cancel or reschedule takes a version above what is there.
    LiveChangesGoAboveWhatIsThere,
    /// A record of a log applies only above the version that is there.
    LogsApplyByVersion,
    /// Payload and due time have versions of their own.
    PayloadAndDueTimeAreVersionedApart,
    /// A broker's clock is kept with its logs: a restart does not set it back.
    ClockIsKept,
    /// A cancel leaves its version behind.
    CancelLeavesTombstone,
    /// A later push leaves the tombstone where it is.
    PushKeepsTombstone,
    /// A settlement ends the version that was delivered; a newer one that a log set meanwhile waits.
    SettlementEndsItsVersion,
    /// The settlement of a message that was replaced or rescheduled leaves a tombstone.
    SettlementOfChangedLeavesTombstone,
    /// So does the settlement of a message that came out of a journal: it may be in a WAL as well.
    SettlementOfRestoredLeavesTombstone,
    /// So does every settlement while a broker that is known has not restored.
    SettlementWhileRestoringLeavesTombstone,

    /// A cancel that finds an earlier one leaves its own version: a push from between the two may be in a WAL.
    RepeatedCancelGoesAbove,

    /// A purge leaves its version: no log brings back what has a lower one.
    PurgeLeavesVersion,

    // Dedup keys.
    /// A push with a dedup key that was seen is a duplicate of the first one.
    DedupKeyIsRemembered,
    /// So is one that comes out of a WAL.
    ReplayLooksForDedupKey,
    /// A record whose message is over leaves its dedup key all the same.
    EndedRecordLeavesDedupKey,
    /// A page that is offered again says of such a push what it said the first time.
    RepeatedPageKnowsDuplicates,
    /// A fence does not take a push that its call refused for its dedup key for one that it set: the replay finds the first one.
    FenceKnowsDuplicates,
    /// A dedup key is restored with the push that has it, whatever became of its message.
    DedupKeyIsRestored,
    /// A push with a dedup key waits in the WAL until every broker has restored.
    DedupWaitsForRestores,

    // Late settlements.
    /// A late ack ends the version that was delivered, and no other.
    LateAckNeedsItsVersion,
    /// A late ack leaves a tombstone.
    LateAckLeavesTombstone,
    LateAcksAreJournaled,

    // Calls.
    /// A cancel is a numbered call as well.
    CancelsAreNumbered,
    /// A repeat of the last call of a stream is answered from memory.
    RepeatIsAnsweredFromMemory,
    /// A copy of an earlier call of a stream does nothing.
    LateCopyDoesNothing,
    /// A call applies only behind the one before it: a gap means that Redis lost data.
    GapsAreRefused,
    /// A cancel or a reschedule does nothing once its caller has stopped waiting.
    ChangesExpire,

    // The WAL.
    /// The replay asks whether an unanswered call was applied before it repeats the request.
    FenceBeforeReplay,
    /// A fence closes the stream, so that a late copy does nothing. Its number stays, which says what Redis kept.
    FenceClosesStream,
    /// The partition remembers the last number of a log that was applied.
    AppliedNumberIsRemembered,
    /// A page whose outcome is unknown is offered again as it is.
    UnknownOutcomeHoldsPage,
    /// A cancel that is refused, since a push of its id is on its way to Redis, removes nothing from the WAL.
    RefusedCancelRemovesNothing,
    /// Nothing is replayed until the journal was offered.
    ReplayWaitsForRestore,

    // SessionReceipts-over.
    /// A record that was handed over is replayed once, by whichever broker that has it.
    HandedOverIsReplayedOnce,
    /// A log of which something was handed over takes another name: how far the rest was replayed says nothing of what was given.
    HandOverRenamesLog,
    /// A page that was sent before a hand-over does nothing once somebody has replayed what was given.
    HandedOverLogIsClosed,
    /// The journal is handed over as well.
    JournalIsHandedOver,
    /// And the deletions of topics in it.
    DeletionsAreHandedOver,
    /// A journal is given from its beginning, and is done only once all of it was taken.
    JournalIsGivenWhole,
    /// A broker that took a journal restores it, whatever it has restored before.
    TakenJournalIsRestored,
    /// The clock of a broker goes above the versions of what it took.
    TakenVersionsAreWitnessed,

    // The journal.
    /// The journal keeps what Redis answered, not what was asked.
    JournalKeepsAnswers,
    /// The client is answered once the journal is durable.
    JournalBeforeAnswer,
    SettlementsAreJournaled,
    CancelsAreJournaled,
    ReschedulesAreJournaled,
    /// A replayed record is in the journal before it leaves the WAL.
    ReplayedIsJournaled,
    DeletionsAreJournaled,
    PurgesAreJournaled,
    /// The message that makes a push a duplicate is journaled as it is there.
    DuplicatesAreJournaled,
    /// So is the evidence for which a record of the WAL is dropped: a message, a tombstone or the deletion of its topic.
    EvidenceIsJournaled,

    // Restoring.
    /// A set is skipped if the partition remembers its call.
    KeptCallsAreNotRestored,
    /// An end that is restored leaves a tombstone.
    RestoredEndLeavesTombstone,

    // Topics.
    /// A record without its topic is dropped only if a later deletion is known.
    OnlyDeletionDrops,
    /// A record from before the deletion of its topic is dropped.
    DeletionDrops,
    /// A topic that is created again inherits the deletion before it.
    DeletionIsInherited,

    // The barrier.
    /// Nothing is handed out before the broker has restored.
    HandOutsWaitForOwnJournal,
    /// Nothing is handed out before the other brokers have restored.
    HandOutsWaitForOthers,
    /// Brokers that were known before a loss count as registered.
    BrokersAreRemembered,
    /// A broker that knows no others waits one lease ttl for them.
    NewcomersWait,

    // Outcomes.
    /// A settlement that was sent and never answered is an unknown outcome, not `stale`.
    UnknownOutcomesAreNamed,
}

/// The rules in force: all of them, or all but one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    removed: Option<Rule>,
}

impl Rules {
    pub(super) const ALL: Self = Self { removed: None };

    pub(super) const fn without(rule: Rule) -> Self {
        Self { removed: Some(rule) }
    }

    pub(super) fn has(self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }
}
