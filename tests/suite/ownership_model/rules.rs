//! The rules of the ownership protocol, each one a switch.

/// One rule. The text says what holds while the rule is in force; a search may remove exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    // A push may be repeated under its id.
    /// A push of an id that has a body, or is dead, changes nothing: it must not move what is in flight.
    PushLeavesExistingAlone,
    /// A push of an id that was acked within the dedup window is refused.
    PushRemembersAcked,
    /// A push carries a valid-until that ends before the dedup window; a later copy does nothing.
    PushExpires,

    // The chain: an owner's calls to a partition are numbered, and one is in flight at a time.
    /// A call of another epoch than the owner line's is stale and has no effect.
    StaleCallsAreRefused,
    /// Epochs are told apart by number and token, not by the number alone.
    TokenIsCompared,
    /// A token is never used for a second acquisition.
    TokenIsNeverReused,
    /// A call whose line is already written was applied: its repeat has no effect.
    RepeatIsRecognised,
    /// The repeat of a reserve returns the bodies of its reservation again.
    RepeatedReserveReturnsBodies,
    /// A call is repeated unchanged until it is answered; no other call takes its number.
    UnansweredCallIsRepeated,
    /// An owner line behind the one the owner last saw means that Redis lost data.
    RewindIsDetected,
    /// So does the right sequence with another stamp (the microsecond the line was written).
    StampIsCompared,
    /// A call older than the owner line is a late copy and has no effect.
    LateCopyIsIgnored,

    // One place: a body is in the zset or in exactly one reservation.
    /// A nack takes the id out of its reservation in the call that schedules it again.
    NackRewritesReservation,
    /// The reservation goes in the call that settles its last message.
    EmptyReservationGoes,
    /// After data loss a reserve whose HLEN - ZCARD is not what the owner holds ends the epoch.
    AuditEndsEpoch,
    /// An owner reserves at once after it reconnected, so that the audit happens at all.
    ReserveAfterReconnect,

    // Acquiring and giving up a partition.
    /// The lease is taken with SET NX: not while it names another member.
    LeaseExcludesOthers,
    /// A member id has a random part per process, so no two processes share one.
    MemberIdsDiffer,
    /// An acquisition names the epoch it saw, and fails when the line has moved on.
    AcquireComparesEpoch,
    /// An acquisition repeated with the token the line carries returns the line as it is.
    RepeatedAcquireKeepsLine,
    /// Every acquisition is a new epoch, also by the member that had the last one.
    EveryAcquireIsNewEpoch,
    /// A release of an epoch that is over leaves the lease alone.
    ReleaseComparesEpoch,
    /// A release writes a line nobody holds, so that calls still under way are stale.
    ReleaseEndsEpoch,
    /// A lapsed owner resumes its epoch only while the line still carries it.
    ResumeNeedsEpoch,
    /// A lapsed owner resumes its epoch only with its table in memory.
    ResumeNeedsTable,

    // Validity by the owner's own clock.
    /// An owner stops handing out by its own clock before Redis lets the lease lapse.
    LapsedOwnerHandsOutNothing,
    /// Validity counts from when a renewal was sent, not from when its answer came.
    ValidityCountsFromSend,

    // Holding back after Redis lost data (another run, another primary).
    /// Nobody acquires for one ttl after data loss.
    HoldAfterLoss,
    /// A process that starts during the hold, and so never saw the change, holds back too.
    HoldCoversNewProcesses,
    /// The hold spares only a process that the lease names and that was a valid owner at the loss.
    HoldSparesOnlyValidOwners,
    /// An acquisition that overlapped the loss hands nothing out for one ttl.
    OverlappingAcquireWaits,
    /// An owner that was not valid at the loss forgets its epoch.
    InvalidOwnerForgets,

    // Recovering what earlier epochs reserved.
    /// A new owner recovers the reservations of earlier epochs before it reserves.
    RecoverBeforeReserve,
    /// Recovery belongs to an epoch: a copy of an earlier one does nothing.
    RecoverComparesEpoch,
    /// An id without a body is not scheduled again and loses its count.
    RecoverChecksBody,
    /// A page of recovery keeps the ids of the reservation that it did not reach.
    RecoverKeepsRest,
    /// Recovery charges an attempt to what a consumer may have seen...
    RecoverCharges,
    /// ...but only once: a message nobody was given is not buried by processes that die.
    RecoverChargesOnce,

    // Attempts and verdicts.
    /// A message that has a count is charged before it is handed out.
    StartChargesBeforeHandOut,
    /// A nack sets the count the consumer saw, it does not add one.
    NackSetsCount,
    /// A message that no consumer was given goes back without a charge.
    GiveBackIsUncharged,
    /// An ack counts only for the delivery in the table of the epoch that made it.
    AckNeedsItsDelivery,
    /// The first decision on a delivery stands: an ack not yet answered stops the deadline.
    FirstDecisionStands,
    /// `acked` is answered only once the chain accepted the call.
    VerdictWaitsForChain,
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
