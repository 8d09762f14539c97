//! A search of the outage design: what the logs of two brokers may do to what clients were told, tried in every order
//! within small bounds.
//!
//! The world is one partition of one topic in Redis and two brokers, each with a WAL and a journal. Clients push, replace,
//! reschedule and cancel, delete the topic and purge it; consumers take, ack, also too late, and nack. A live call can lose its request or its
//! reply, is repeated or given up, and a copy of it can arrive later. Brokers are cut off, killed and started, or stop and
//! hand over their logs, of which all, a part or no answer arrives; Redis comes back as it was earlier, or empty. Then the WALs are replayed, in pages of one or two records, and the journals restored,
//! in every order of the two brokers.
//!
//! A ledger knows what was answered. In every state of a search, and at the end of each run, when both brokers are up and
//! their logs are empty; then once more when everything was consumed and both were restarted; or when Redis lost
//! everything and the journals restored it:
//!
//! * P1: the state of an id is that of its last acknowledged operation, or of a later one that may have happened;
//! * P2: what was refused never happens;
//! * P3: without a loss nothing that was settled, cancelled or replaced is handed out again;
//! * P4: no message is handed out in a state older than a broker knows that is alive;
//! * P5: an acknowledged push is gone only for a cancel of its id, a deletion of its topic or a settlement;
//! * a push that was told that it is a duplicate of another one is not delivered, and of the pushes with a dedup key one is;
//! * nothing is handed out before the due time of the last acknowledged reschedule;
//! * `stale` is never answered to a settlement that was applied.
//!
//! With all rules no bounded search finds a breach. Each rule is a switch in `rules`, and has a test here that removes it
//! and must find one: a rule without such a test does not compile. Run with `--nocapture` to read the counterexamples.
//! `DWELL_MODEL_STATES` makes the searches longer.
//!
//! One order is left open: two pushes of one id within the error of the brokers' clocks, when the first one is applied
//! after the second was settled (`Operation::is_overtaken`).
//!
//! Not in the model: groups, forwarded dead letters, the end of a dedup window, debounce, key order, the window of the journal and the seven days of the calls, a Redis
//! that loses data without the brokers noticing, copies that outlive the Redis they were sent to.

mod rules;
mod breach;
mod bounds;
mod state;
mod ledger;
mod action;
mod scripts;
mod broker;
mod logs;
mod delivery;
mod enabled;
mod apply;
mod drain;
mod hand_over;
mod search;
mod walk;

use bounds::Bounds;
use breach::Breach;
use rules::{Rule, Rules};
use search::{Report, search};
use state::Kind::{self, Cancel, Deduped, Push, Replace, Reschedule};
use walk::walk;

/// States of each search with all rules, and steps of each walk, unless `DWELL_MODEL_STATES` says otherwise.
const STATES: usize = 10_000;

/// Every counterexample below is found well before.
const STATES_WITHOUT_A_RULE_MAX: usize = 100_000;

const QUIET: Bounds = Bounds::QUIET;
/// One message that A pushed, and one more operation.
const PUSHED: Bounds = Bounds { pushed_before: true, operations: 1, ..QUIET };
/// Every operation on it.
const CHANGED: Bounds = Bounds { kinds: &Kind::ALL, ..PUSHED };
const NETWORK: Bounds = Bounds { lost_replies: 1, late_copies: 1, time_outs: 1, ..QUIET };
const OUTAGE: Bounds = Bounds { outages: 1, ..QUIET };
const LOSS: Bounds = Bounds { losses: 1, ..QUIET };
const HANDED_OVER: Bounds = Bounds { hand_overs: 1, ..OUTAGE };
const DELETION: Bounds = Bounds { deletions: 1, ..QUIET };
const PURGE: Bounds = Bounds { purges: 1, ..QUIET };
const DEDUPED: Bounds = Bounds { ids: 2, kinds: &[Deduped], ..QUIET };
/// The visibility timeout of a delivery ends before its ack.
const LATE: Bounds = Bounds { deliveries: 2, late_acks: 1, ..PUSHED };
const LAG: Bounds = Bounds { lag: 3, ..QUIET };

const EVERYTHING: Bounds = Bounds {
    ids: 2,
    pushed_before: false,
    operations: 6,
    kinds: &Kind::ALL,
    deliveries: 4,
    late_acks: 2,
    deletions: 1,
    purges: 1,
    outages: 2,
    kills: 2,
    hand_overs: 2,
    time_outs: 2,
    lost_replies: 2,
    late_copies: 2,
    losses: 2,
    page_records: 2,
    lag: 0,
    one_broker: false,
    ends_with_loss: true,
};

fn states_max() -> usize {
    let given = std::env::var("DWELL_MODEL_STATES").ok();
    given.and_then(|states| states.parse().ok()).unwrap_or(STATES)
}

fn assert_no_breach(world: &str, report: &Report) {
    println!("{world}: {report}");
    assert!(report.counterexample.is_none(), "{world}: {report}");
}

fn assert_needed(rule: Rule, bounds: Bounds, expected: Breach) {
    let report = search(Rules::without(rule), bounds, STATES_WITHOUT_A_RULE_MAX);
    println!("without {rule:?}: {report}");
    let found = report.counterexample.as_ref().map(|counterexample| counterexample.breach);
    assert_eq!(found, Some(expected), "without {rule:?}: {report}");
}

#[test]
fn no_search_finds_a_breach() {
    let all = &Kind::ALL;
    let worlds = [
        ("a network that loses and delays", NETWORK),
        ("the same, with every operation", Bounds { operations: 3, kinds: all, ends_with_loss: true, ..NETWORK }),
        ("an outage", Bounds { operations: 3, kinds: all, ends_with_loss: true, ..OUTAGE }),
        ("two outages and lost replies", Bounds { operations: 3, kinds: all, outages: 2, lost_replies: 1, ..QUIET }),
        (
            "brokers that die",
            Bounds { kinds: all, kills: 1, lost_replies: 1, time_outs: 1, ends_with_loss: true, ..OUTAGE },
        ),
        ("a loss", Bounds { kinds: all, ..LOSS }),
        ("a loss after a push", Bounds { kinds: all, operations: 2, pushed_before: true, ..LOSS }),
        ("a loss in a bad network", Bounds { losses: 1, ..NETWORK }),
        ("a loss of two messages", Bounds { ids: 2, operations: 3, losses: 1, one_broker: true, ..NETWORK }),
        ("a loss, an outage and a death", Bounds { losses: 1, kills: 1, deliveries: 2, ..OUTAGE }),
        ("two losses", Bounds { losses: 2, kills: 1, deliveries: 2, one_broker: true, ..QUIET }),
        ("a hand-over", Bounds { kinds: all, lost_replies: 1, ends_with_loss: true, ..HANDED_OVER }),
        ("a hand-over of two messages", Bounds { ids: 2, late_copies: 1, ends_with_loss: true, ..HANDED_OVER }),
        ("a hand-over after a loss", Bounds { losses: 1, pushed_before: true, ..HANDED_OVER }),
        ("a deletion", Bounds { kinds: all, outages: 1, losses: 1, ..DELETION }),
        (
            "a deletion in a bad network",
            Bounds { kinds: &[Push, Replace], deletions: 1, outages: 1, ends_with_loss: true, ..NETWORK },
        ),
        ("a purge", Bounds { kinds: all, outages: 1, losses: 1, ..PURGE }),
        (
            "a purge in a bad network",
            Bounds { kinds: &[Push, Replace], purges: 1, outages: 1, ends_with_loss: true, ..NETWORK },
        ),
        ("a purge that is handed over", Bounds { purges: 1, ends_with_loss: true, ..HANDED_OVER }),
        ("a dedup key", Bounds { operations: 3, lost_replies: 2, ends_with_loss: true, ..DEDUPED }),
        ("a dedup key in a bad network", Bounds { ids: 2, kinds: &[Deduped], ends_with_loss: true, ..NETWORK }),
        (
            "a dedup key and an outage",
            Bounds { operations: 3, outages: 2, lost_replies: 1, ends_with_loss: true, ..DEDUPED },
        ),
        ("a dedup key and a loss", Bounds { operations: 3, losses: 1, lost_replies: 1, ..DEDUPED }),
        ("a dedup key, a loss, an outage and a death", Bounds { losses: 1, outages: 1, kills: 1, ..DEDUPED }),
        (
            "a dedup key of a cancelled message",
            Bounds { kinds: &[Deduped, Cancel], operations: 3, losses: 1, ..DEDUPED },
        ),
        ("a late ack", Bounds { kinds: all, outages: 1, losses: 1, lost_replies: 1, ..LATE }),
        ("a late ack after a takeover", Bounds { kills: 1, outages: 1, ends_with_loss: true, ..LATE }),
        (
            "a clock that is behind",
            Bounds { operations: 3, kinds: all, lost_replies: 1, late_copies: 1, ends_with_loss: true, ..LAG },
        ),
    ];
    for (world, bounds) in worlds {
        assert_no_breach(world, &search(Rules::ALL, bounds, states_max()));
    }
}

#[test]
fn no_walk_finds_a_breach() {
    assert_no_breach("walks, two messages", &walk(Rules::ALL, EVERYTHING, states_max()));
    let one = Bounds { ids: 1, ..EVERYTHING };
    assert_no_breach("walks, one message", &walk(Rules::ALL, one, states_max()));
    let kept = Bounds { losses: 0, deletions: 0, purges: 0, outages: 3, late_copies: 3, ..one };
    assert_no_breach("walks, no loss", &walk(Rules::ALL, kept, states_max()));
    let pushes = Bounds { kinds: &[Push, Replace], deletions: 0, ..one };
    assert_no_breach("walks, pushes", &walk(Rules::ALL, pushes, states_max()));
    let deduped = Bounds { kinds: &[Deduped, Cancel], deletions: 0, ..EVERYTHING };
    assert_no_breach("walks, a dedup key", &walk(Rules::ALL, deduped, states_max()));
    let calm = Bounds { outages: 0, kills: 0, hand_overs: 0, time_outs: 0, losses: 0, deletions: 0, ..one };
    let behind = Bounds { lag: 3, purges: 0, ..calm };
    assert_no_breach("walks, a clock that is behind", &walk(Rules::ALL, behind, states_max()));
}

/// One test for each rule: without it, this breach is found in this world.
macro_rules! every_rule_is_needed {
    ($($test:ident: $rule:ident, $bounds:expr => $breach:expr;)+) => {
        $(
            #[test]
            fn $test() {
                assert_needed(Rule::$rule, $bounds, $breach);
            }
        )+

        /// Does not compile while a rule has no test.
        const fn _covers(rule: Rule) {
            match rule {
                $(Rule::$rule => {})+
            }
        }
    };
}

every_rule_is_needed! {
    // Versions. Push, cancel and push of one id; what was cancelled or rescheduled comes as it was; a clock is set back.
    live_versions_that_go_back_break_p1: LivePushesAreAboveWhatIsThere,
        DELETION => Breach::Returned(0);
    live_changes_below_what_is_there_break_p1: LiveChangesGoAboveWhatIsThere,
        Bounds { kinds: &[Push, Cancel], ..LAG } => Breach::Lost(0);
    logs_that_apply_in_the_order_of_arrival_break_p1: LogsApplyByVersion,
        Bounds { operations: 3, kinds: &[Push, Cancel], ends_with_loss: true, ..QUIET } => Breach::Returned(0);
    one_version_for_payload_and_due_time_breaks_p1: PayloadAndDueTimeAreVersionedApart,
        Bounds { operations: 2, outages: 1, ..CHANGED } => Breach::Undone(0);
    a_clock_that_a_restart_sets_back_breaks_p1: ClockIsKept,
        Bounds { kills: 1, one_broker: true, ..OUTAGE } => Breach::Undone(0);
    a_cancel_without_a_tombstone_breaks_p1: CancelLeavesTombstone,
        Bounds { operations: 3, outages: 1, kinds: &[Replace, Cancel], ..PUSHED } => Breach::Returned(0);
    a_push_that_clears_the_tombstone_breaks_p1: PushKeepsTombstone,
        Bounds { operations: 3, outages: 1, kinds: &[Push, Cancel], ..PUSHED } => Breach::Returned(0);
    a_settlement_of_any_version_breaks_p5: SettlementEndsItsVersion,
        Bounds { outages: 1, kinds: &[Replace], ..PUSHED } => Breach::Lost(0);
    a_settled_replacement_without_a_tombstone_breaks_p1: SettlementOfChangedLeavesTombstone,
        Bounds { kinds: &[Replace], ..OUTAGE } => Breach::Returned(0);
    a_settled_restored_message_without_a_tombstone_breaks_p1: SettlementOfRestoredLeavesTombstone,
        Bounds { losses: 1, time_outs: 1, lost_replies: 1, one_broker: true, ..QUIET } => Breach::Returned(0);
    a_settlement_during_a_restore_without_a_tombstone_breaks_p1: SettlementWhileRestoringLeavesTombstone,
        Bounds { losses: 1, kills: 1, ..PUSHED } => Breach::Returned(0);

    a_repeated_cancel_that_relies_on_the_first_breaks_p1: RepeatedCancelGoesAbove,
        Bounds { operations: 3, outages: 1, kinds: &[Push, Cancel], ..PUSHED } => Breach::Returned(0);

    a_purge_without_a_version_breaks_p1: PurgeLeavesVersion,
        Bounds { outages: 1, ..PURGE } => Breach::Returned(0);

    // Dedup keys. Both pushes of a key were delivered.
    a_dedup_key_that_is_not_looked_for_breaks_the_promise: DedupKeyIsRemembered,
        DEDUPED => Breach::SecondOfKey(0);
    a_replay_that_ignores_dedup_keys_breaks_the_promise: ReplayLooksForDedupKey,
        Bounds { outages: 1, ..DEDUPED } => Breach::SecondOfKey(0);
    an_ended_record_that_forgets_its_dedup_key_breaks_the_promise: EndedRecordLeavesDedupKey,
        Bounds { outages: 1, purges: 1, ..DEDUPED } => Breach::SecondOfKey(0);
    a_repeated_page_that_forgets_a_duplicate_breaks_the_promise: RepeatedPageKnowsDuplicates,
        Bounds { outages: 1, lost_replies: 1, ends_with_loss: true, ..DEDUPED } => Breach::SecondOfKey(0);
    a_fence_that_takes_a_duplicate_for_set_breaks_the_promise: FenceKnowsDuplicates,
        Bounds { lost_replies: 1, time_outs: 1, ends_with_loss: true, ..DEDUPED } => Breach::SecondOfKey(0);
    a_dedup_key_that_is_not_restored_breaks_the_promise: DedupKeyIsRestored,
        Bounds { losses: 1, ..DEDUPED } => Breach::SecondOfKey(0);
    a_dedup_key_that_another_journal_has_breaks_the_promise: DedupWaitsForRestores,
        Bounds { losses: 1, ..DEDUPED } => Breach::SecondOfKey(0);

    // Late settlements.
    a_late_ack_of_another_version_breaks_p5: LateAckNeedsItsVersion,
        Bounds { kinds: &[Replace], ..LATE } => Breach::Lost(0);
    a_late_ack_without_a_tombstone_breaks_p1: LateAckLeavesTombstone,
        Bounds { kinds: &[Replace], deliveries: 2, late_acks: 1, ..OUTAGE } => Breach::Returned(0);
    late_acks_in_no_journal_break_p1: LateAcksAreJournaled,
        Bounds { ends_with_loss: true, ..LATE } => Breach::Returned(0);

    // Calls. The order of a key was inverted after a lost reply, for the repeat stored a message that was settled.
    a_cancel_without_a_number_breaks_p2: CancelsAreNumbered,
        Bounds { late_copies: 1, kinds: &[Push, Cancel], ..QUIET } => Breach::Lost(0);
    a_repeat_that_is_executed_again_breaks_p3: RepeatIsAnsweredFromMemory,
        Bounds { operations: 1, lost_replies: 1, ..QUIET } => Breach::Returned(0);
    a_late_copy_that_is_executed_breaks_p3: LateCopyDoesNothing,
        NETWORK => Breach::Returned(0);
    a_call_behind_a_gap_breaks_p5: GapsAreRefused,
        Bounds { ids: 2, losses: 1, ..PUSHED } => Breach::Lost(0);
    a_cancel_that_does_not_expire_takes_effect_late: ChangesExpire,
        Bounds { late_copies: 1, time_outs: 1, kinds: &[Cancel], ..PUSHED } => Breach::TookEffectLate(0);

    // The WAL. What was settled came again although Redis lost nothing.
    a_replay_without_a_fence_breaks_p3: FenceBeforeReplay,
        Bounds { operations: 1, ..NETWORK } => Breach::Returned(0);
    a_fence_that_only_asks_breaks_p3: FenceClosesStream,
        Bounds { operations: 1, ..NETWORK } => Breach::Returned(0);
    a_page_that_is_applied_twice_breaks_p3: AppliedNumberIsRemembered,
        Bounds { operations: 1, ..NETWORK } => Breach::Returned(0);
    a_page_that_is_appended_anew_while_unknown_breaks_p3: UnknownOutcomeHoldsPage,
        Bounds { operations: 1, ..NETWORK } => Breach::Returned(0);
    a_refused_cancel_that_removes_a_push_breaks_p1: RefusedCancelRemovesNothing,
        Bounds { operations: 3, outages: 2, lost_replies: 1, one_broker: true, kinds: &[Push, Cancel], ..QUIET } => Breach::Undone(0);
    a_replay_before_the_restore_breaks_p5: ReplayWaitsForRestore,
        Bounds { ids: 2, one_broker: true, losses: 1, outages: 1, deliveries: 0, ..QUIET } => Breach::Lost(0);

    // SessionReceipts-over. What was given was replayed again by its first broker, or never.
    a_record_that_two_brokers_replay_breaks_p3: HandedOverIsReplayedOnce,
        Bounds { operations: 1, ..HANDED_OVER } => Breach::Returned(0);
    a_log_that_keeps_its_name_is_never_replayed: HandOverRenamesLog,
        Bounds { ids: 2, deliveries: 0, ..HANDED_OVER } => Breach::Stuck;
    a_late_page_after_a_hand_over_breaks_p3: HandedOverLogIsClosed,
        Bounds { operations: 1, outages: 2, late_copies: 1, hand_overs: 1, ..QUIET } => Breach::Returned(0);
    a_journal_that_goes_with_its_disk_breaks_p5: JournalIsHandedOver,
        Bounds { ends_with_loss: true, ..HANDED_OVER } => Breach::Lost(0);
    deletions_that_go_with_their_disk_break_p1: DeletionsAreHandedOver,
        Bounds { deletions: 1, ends_with_loss: true, ..HANDED_OVER } => Breach::Returned(0);
    a_journal_in_two_parts_breaks_p5: JournalIsGivenWhole,
        Bounds { ids: 2, deliveries: 0, ends_with_loss: true, ..HANDED_OVER } => Breach::Lost(0);
    a_taken_journal_that_waits_for_the_next_loss_breaks_p5: TakenJournalIsRestored,
        Bounds { operations: 0, losses: 1, ..Bounds { pushed_before: true, ..HANDED_OVER } } => Breach::Lost(0);
    versions_that_a_taker_does_not_witness_break_p1: TakenVersionsAreWitnessed,
        Bounds { lag: 3, kinds: &[Push, Replace], ..HANDED_OVER } => Breach::Undone(0);

    // The journal. What was refused took effect.
    a_journal_that_keeps_requests_breaks_p2: JournalKeepsAnswers,
        Bounds { kinds: &[Replace], ends_with_loss: true, ..PUSHED } => Breach::RefusedHappened(0);
    an_answer_before_the_journal_breaks_p1: JournalBeforeAnswer,
        Bounds { kills: 1, ends_with_loss: true, ..QUIET } => Breach::Lost(0);
    settlements_in_no_journal_break_p1: SettlementsAreJournaled,
        Bounds { ends_with_loss: true, ..PUSHED } => Breach::Returned(0);
    cancels_in_no_journal_break_p1: CancelsAreJournaled,
        Bounds { ends_with_loss: true, ..CHANGED } => Breach::Returned(0);
    reschedules_in_no_journal_are_early: ReschedulesAreJournaled,
        Bounds { kinds: &[Reschedule], ends_with_loss: true, ..PUSHED } => Breach::Early(0);
    replayed_records_in_no_journal_break_p5: ReplayedIsJournaled,
        Bounds { ends_with_loss: true, ..OUTAGE } => Breach::Lost(0);
    deletions_in_no_journal_break_p1: DeletionsAreJournaled,
        Bounds { deletions: 1, ends_with_loss: true, ..PUSHED } => Breach::Returned(0);
    purges_in_no_journal_break_p1: PurgesAreJournaled,
        Bounds { purges: 1, ends_with_loss: true, ..PUSHED } => Breach::Returned(0);
    duplicates_in_no_journal_break_p1: DuplicatesAreJournaled,
        Bounds { kills: 1, lost_replies: 1, ends_with_loss: true, ..QUIET } => Breach::Lost(0);
    evidence_in_no_journal_breaks_p5: EvidenceIsJournaled,
        Bounds { deletions: 1, outages: 1, lost_replies: 1, ends_with_loss: true, ..PUSHED } => Breach::Undone(0);

    // Restoring. Redis was only restarted, and what was settled came again.
    restoring_what_redis_kept_breaks_p3: KeptCallsAreNotRestored,
        Bounds { kills: 1, ..PUSHED } => Breach::Returned(0);
    a_restored_end_without_a_tombstone_breaks_p1: RestoredEndLeavesTombstone,
        Bounds { kinds: &[Push, Cancel], ends_with_loss: true, ..QUIET } => Breach::Returned(0);

    // Topics. A topic was lost, or created again by another broker, and its records were dropped.
    dropping_the_records_of_a_lost_topic_breaks_p5: OnlyDeletionDrops,
        Bounds { ends_with_loss: true, ..QUIET } => Breach::Lost(0);
    records_from_before_a_deletion_break_p1: DeletionDrops,
        Bounds { outages: 1, ..DELETION } => Breach::Returned(0);
    a_new_topic_that_forgets_the_deletion_breaks_p1: DeletionIsInherited,
        Bounds { ids: 2, outages: 1, deliveries: 0, ..DELETION } => Breach::Returned(0);

    // The barrier. What was cancelled or replaced was handed out as it was before.
    a_hand_out_before_the_own_restore_breaks_p4: HandOutsWaitForOwnJournal,
        Bounds { losses: 1, kinds: &[Cancel], ..PUSHED } => Breach::OlderThanKnown(0);
    a_hand_out_before_the_other_restores_breaks_p4: HandOutsWaitForOthers,
        Bounds { losses: 1, kinds: &[Cancel], ..PUSHED } => Breach::OlderThanKnown(0);
    brokers_that_the_loss_forgot_break_p4: BrokersAreRemembered,
        Bounds { losses: 1, kinds: &[Cancel], ..PUSHED } => Breach::OlderThanKnown(0);
    a_newcomer_that_does_not_wait_breaks_p4: NewcomersWait,
        Bounds { losses: 1, kills: 1, kinds: &[Cancel], ..PUSHED } => Breach::OlderThanKnown(0);

    // Outcomes. `stale` for an ack that was applied.
    a_settlement_nobody_answered_is_not_stale: UnknownOutcomesAreNamed,
        Bounds { lost_replies: 1, losses: 1, operations: 0, ..PUSHED } => Breach::FalseStale;
}
