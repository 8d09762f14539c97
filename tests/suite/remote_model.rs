//! A search of settling at another broker: what may go wrong between a consumer, the broker it asks, the owner of its
//! delivery and a Redis, tried in every order within small bounds.
//!
//! The world is one delivery of one message. Broker A owns the partition in its first epoch and has handed the message
//! out; a consumer has brought the receipt to broker B. The receipt names A, and B asks it by datagrams. Each datagram may
//! be lost, doubled or late. Its consumer may repeat its request at B, or say something else about the delivery at A. A's
//! call to Redis settles only in the epoch that Redis names; it may be lost on its way, and the epoch may end at any time:
//! by a release, a lapse, or the death of A. Redis may lose its newest write. Then the message is recovered and handed out
//! anew in the next epoch, by A or by B, whose consumer settles it in its own way.
//!
//! In every state of a search, a verdict that the consumer was told is true:
//!
//! * `acked`: the message is gone, by this delivery, unless Redis lost it since;
//! * `stale`: this request did not settle the message, and never will;
//! * after `unknown_outcome` and `unreachable` it may have, and nothing more is decided once the request has expired;
//! * two answers to one request are equal, whatever became of the epoch meanwhile;
//! * a delivery is settled once.
//!
//! With all rules no search finds a wrong verdict. Each rule is a switch, and has a test that removes it and must find one.

mod search;
mod world;

use search::search;
use world::{Breach, Rule, World};

/// Every world below is smaller.
const STATES_MAX: usize = 4_000_000;

#[test]
fn no_search_finds_a_wrong_verdict() {
    for losses in [0, 1] {
        let report = search(&World::new(None, losses), STATES_MAX);
        println!("{losses} losses: {report}");
        assert!(report.exhausted && report.breach.is_none(), "{report}");
    }
}

fn assert_needed(rule: Rule, expected: Breach) {
    let report = search(&World::new(Some(rule), 0), STATES_MAX);
    println!("without {rule:?}: {report}");
    assert_eq!(report.breach, Some(expected), "without {rule:?}: {report}");
}

/// One test for each rule: without it, this verdict is wrong.
macro_rules! every_rule_is_needed {
    ($($test:ident: $rule:ident => $breach:ident;)+) => {
        $(
            #[test]
            fn $test() {
                assert_needed(Rule::$rule, Breach::$breach);
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
    wrong_without_owner_epoch_check: OwnerComparesEpoch => SettledByAnotherEpoch;
    wrong_without_first_decision_stands: FirstDecisionStands => SettledTwice;
    wrong_without_reply_waits_for_redis: AnswerWaitsForRedis => AckedButNotSettled;
    wrong_without_same_reply_for_a_copy: CopyGetsSameAnswer => AnswersDiffer;
    wrong_without_room_to_remember_a_request: NothingIsBegunThatCannotBeRemembered => AnswersDiffer;
    wrong_without_stale_only_if_not_received: StaleOnlyIfNotReceived => StaleButSettled;
    wrong_without_request_expiry: RequestExpires => SettledAfterItExpired;
    wrong_without_request_id_in_reply: AnswerNamesItsRequest => AckedButNotSettled;
}
