//! Conversations with one member: the events that it gets, and the actions that it asks for.

mod demand;

use std::time::Duration;

use super::*;
use crate::model::error::Result;

const TTL: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(1);

struct Story {
    member: Member,
    now: Instant,
    wants: bool,
    order: Vec<Partition>,
    /// Partitions of which consumers have had messages for long.
    busy: Vec<Partition>,
}

impl Story {
    fn new(partitions: u16) -> Result<Story> {
        let (topic, group, id) = (TopicName::new("orders")?, GroupName::standard(), MemberId::from_store("m"));
        let order = RankedMember::new(&topic, &group, &id).order(partitions);
        let member = Member::new(topic, group, partitions, id, Timing::new(TTL, HEARTBEAT));
        let mut story = Story { member, now: Instant::START.plus(TTL), wants: true, order, busy: Vec::new() };
        assert_eq!(story.tell(Event::Tick), [Action::Heartbeat]);
        Ok(story)
    }

    fn owner() -> Result<Story> {
        let mut story = Story::new(4)?;
        assert_eq!(story.tell(list(&["m"])).len(), 4);
        for partition in story.order.clone() {
            assert_eq!(story.tell(Event::Acquired(partition)), []);
        }
        Ok(story)
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        if self.wants {
            self.member.wanted(self.now);
        }
        let actions = self.member.step(self.now, event, |partition| self.busy.contains(&partition));
        assert!(self.member.next_wake() > self.now, "it would spin");
        actions
    }

    /// Lets time pass until it wakes by itself; returns how long that was and what it did.
    fn wait(&mut self) -> (u128, Vec<Action>) {
        let since = std::mem::replace(&mut self.now, self.member.next_wake());
        (self.now.since(since).as_millis(), self.tell(Event::Tick))
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Duration::from_millis(ms));
    }

    fn beat(&mut self, members: &[&str]) -> Vec<Action> {
        assert_eq!(self.wait().1, [Action::Heartbeat]);
        self.tell(list(members))
    }

    fn owned(&self) -> usize {
        self.member.standing().owned
    }
}

/// The answer to a heartbeat: these members, without demand if their name ends so.
fn list(members: &[&str]) -> Event {
    let live = |name: &&str| LiveMember {
        id: MemberId::from_store(name.trim_end_matches(" idle")),
        has_demand: !name.ends_with(" idle"),
    };
    Event::HeartbeatAnswered(members.iter().map(live).collect())
}

fn held(partition: Partition, by: &str, ms: u64) -> Event {
    Event::Held { partition, by: MemberId::from_store(by), expires_in: Duration::from_millis(ms) }
}

#[test]
fn single_member_acquires_all_partitions_in_its_order() -> Result<()> {
    let mut story = Story::new(4)?;
    let expected: Vec<_> = story.order.iter().copied().map(Action::Acquire).collect();
    assert_eq!(story.tell(list(&["m"])), expected);
    Ok(())
}

#[test]
fn no_more_acquisitions_are_in_flight_than_the_limit() -> Result<()> {
    let mut story = Story::new(100)?;
    assert_eq!(story.tell(list(&["m"])).len(), crate::model::limits::ACQUIRES_MAX);
    assert_eq!(story.tell(Event::Acquired(story.order[0])), [Action::Acquire(story.order[32])]);
    Ok(())
}

#[test]
fn held_partition_is_retried_after_a_heartbeat_or_an_announcement() -> Result<()> {
    let mut story = Story::new(2)?;
    let [first, second] = [story.order[0], story.order[1]];
    assert_eq!(story.tell(list(&["m", "n"])), [Action::Acquire(first)]);
    assert_eq!(story.tell(held(first, "n", 300)), [Action::Acquire(second)]);
    assert_eq!(story.tell(held(second, "n", 300)), []);
    assert_eq!(story.tell(Event::Freed(second)), [Action::Acquire(second)]);
    assert_eq!(story.tell(held(second, "n", 9_000)), []);
    assert_eq!(story.beat(&["m", "n"]), [Action::Acquire(first)], "its release may have gone unheard");
    Ok(())
}

#[test]
fn partition_of_a_dead_member_is_tried_at_lease_expiry() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    story.tell(list(&["m"]));
    assert_eq!(story.tell(held(only, "dead", 300)), []);
    assert_eq!(story.wait(), (300, vec![Action::Acquire(only)]));
    Ok(())
}

#[test]
fn draining_member_is_not_waited_for() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    story.tell(list(&["m"]));
    assert_eq!(story.tell(held(only, "leaving", 9_000)), []);
    assert_eq!(story.beat(&["m"]), [Action::Acquire(only)]);
    Ok(())
}

#[test]
fn claim_in_flight_does_not_end_the_search() -> Result<()> {
    let mut story = Story::new(1_000)?;
    story.tell(Event::HeartbeatFailed);
    let mut tried = BTreeSet::new();
    for _ in 0..9 {
        // The last answer of each heartbeat comes after the next.
        let mut actions = story.beat(&["m", "n", "o", "p", "q", "r", "s", "t", "u", "v"]);
        while let Some(Action::Acquire(partition)) = actions.pop() {
            tried.insert(partition);
            if story.member.standing().acquiring > 1 {
                actions.extend(story.tell(held(partition, "n", 9_000)));
            }
        }
    }
    assert_eq!(tried.len(), 1_000);
    Ok(())
}

#[test]
fn claims_double_until_all_partitions_were_tried() -> Result<()> {
    let mut story = Story::new(1_000)?;
    let mut tries = Vec::new();
    story.tell(Event::HeartbeatFailed);
    while tries.len() < 3 {
        let mut actions = story.beat(&["m", "n", "o", "p", "q", "r", "s", "t", "u", "v"]);
        let mut count = 0;
        while let Some(Action::Acquire(partition)) = actions.pop() {
            count += 1;
            actions.extend(story.tell(held(partition, "n", 9_000)));
        }
        tries.push(count);
    }
    assert_eq!(tries, [232, 464, 928]);
    Ok(())
}

/// One of a thousand members that misses its only partition of a thousand, after so many heartbeats: how many guesses it
/// made at once after each, and the last ones.
fn long_search(heartbeats: usize) -> Result<(Story, Vec<usize>, Vec<Action>)> {
    let mut story = Story::new(1_000)?;
    story.tell(Event::HeartbeatFailed);
    let others: Vec<String> = (1..1_000).map(|n| format!("n{n}")).collect();
    let members: Vec<&str> = others.iter().map(String::as_str).chain(["m"]).collect();
    let (mut at_once, mut actions) = (Vec::new(), Vec::new());
    while at_once.len() < heartbeats {
        while let Some(Action::Acquire(partition)) = actions.pop() {
            actions.extend(story.tell(held(partition, "n1", 9_000)));
        }
        actions = story.beat(&members);
        at_once.push(actions.len());
    }
    Ok((story, at_once, actions))
}

#[test]
fn long_search_claims_in_parallel_and_releases_the_excess() -> Result<()> {
    let (mut story, at_once, last) = long_search(6)?;
    assert_eq!(at_once, [1, 1, 1, 1, 2, 3], "one for each 256");
    let [Action::Acquire(first), Action::Acquire(second), Action::Acquire(third)] = last[..] else {
        unreachable!("{last:?}")
    };
    assert_eq!(story.tell(Event::Acquired(first)), [], "that is its share");
    assert_eq!(story.tell(Event::Acquired(second)), [Action::Release(second)]);
    assert_eq!(story.tell(held(third, "n1", 9_000)), []);
    Ok(())
}

#[test]
fn announced_partition_is_tried_before_further_claims() -> Result<()> {
    let (mut story, _, guesses) = long_search(6)?;
    let freed = story.order[999];
    assert_eq!(story.tell(Event::Freed(freed)), [], "as many are on their way as are missing, and more");
    let mut next = Vec::new();
    for guess in guesses {
        let Action::Acquire(partition) = guess else { unreachable!("{guess:?}") };
        assert_eq!(next, []);
        next = story.tell(held(partition, "n1", 9_000));
    }
    assert_eq!(next.first(), Some(&Action::Acquire(freed)));
    Ok(())
}

#[test]
fn announcement_ahead_of_a_reply_is_honoured() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    story.tell(list(&["m"]));
    assert_eq!(story.tell(Event::Freed(only)), []);
    assert_eq!(story.tell(held(only, "m2", 9_000)), [Action::Acquire(only)]);
    assert_eq!(story.tell(held(only, "m2", 9_000)), []);
    Ok(())
}

#[test]
fn new_member_gets_exactly_the_last_acquired_half() -> Result<()> {
    let mut story = Story::owner()?;
    story.pass(100);
    assert_eq!(story.tell(Event::MembersChanged), [Action::Heartbeat]);
    assert_eq!(story.tell(list(&["m", "n"])), [Action::Release(story.order[3]), Action::Release(story.order[2])]);
    assert_eq!(story.tell(Event::Released(story.order[3])), []);
    assert_eq!(story.tell(Event::Freed(story.order[3])), [], "its own release: nothing is missing");
    assert_eq!(story.tell(Event::Released(story.order[2])), []);
    assert_eq!(story.owned(), 2);
    Ok(())
}

#[test]
fn announcements_are_coalesced_into_few_heartbeats() -> Result<()> {
    let mut story = Story::owner()?;
    assert_eq!(story.tell(Event::MembersChanged), []);
    assert_eq!(story.wait(), (50, vec![Action::Heartbeat]));
    assert_eq!(story.tell(Event::MembersChanged), [], "one is in flight");
    assert_eq!(story.tell(list(&["m"])), []);
    assert_eq!(story.wait(), (50, vec![Action::Heartbeat]), "its list may have been too old");
    assert_eq!(story.tell(list(&["m"])), []);
    let (ms, actions) = story.wait();
    assert!(ms <= 1_000 && actions == [Action::Heartbeat], "{ms} {actions:?}");
    Ok(())
}

#[test]
fn regular_heartbeats_of_all_groups_are_aligned() -> Result<()> {
    let mut due = BTreeSet::new();
    for pause in [0, 1, 300, 999, 1_000, 2_345] {
        let mut story = Story::owner()?;
        story.pass(pause);
        while story.now < Instant::START.plus(TTL * 2) {
            story.beat(&["m"]);
        }
        due.insert(story.now);
    }
    assert_eq!(due.len(), 1, "{due:?}");
    Ok(())
}

#[test]
fn member_list_without_self_changes_nothing() -> Result<()> {
    let mut story = Story::owner()?;
    assert_eq!(story.beat(&["n", "o"]), []);
    assert_eq!(story.owned(), 4);
    assert_eq!(story.wait(), (250, vec![Action::Heartbeat]));
    Ok(())
}

#[test]
fn surplus_members_wait() -> Result<()> {
    let mut story = Story::new(1)?;
    story.tell(list(&["m", "a", "b", "c", "d", "e", "f"]));
    assert_eq!((story.member.standing().quota, story.member.standing().is_waiting), (0, true));
    Ok(())
}

#[test]
fn member_defers_to_owners_after_a_store_outage() -> Result<()> {
    let mut story = Story::owner()?;
    story.beat(&["m", "n"]);
    let lost = story.order[0];
    story.pass(20_000);
    assert_eq!(story.tell(Event::Lost(lost)), [Action::Heartbeat]);
    assert_eq!(story.tell(Event::HeartbeatFailed), []);
    assert_eq!(story.wait(), (250, vec![Action::Heartbeat]));
    assert_eq!(story.tell(list(&["m"])), [], "n was there before");
    let back = story.now;
    while story.now.since(back) < TTL / 3 + HEARTBEAT {
        let (_, actions) = story.wait();
        assert_eq!(actions.contains(&Action::Acquire(lost)), story.now.since(back) == TTL / 3 + HEARTBEAT);
        if actions == [Action::Heartbeat] {
            assert_eq!(story.tell(list(&["m"])), []);
        }
    }
    Ok(())
}

#[test]
fn member_does_not_defer_after_its_own_pause() -> Result<()> {
    let mut story = Story::owner()?;
    story.beat(&["m", "n"]);
    let lost = story.order[0];
    story.pass(20_000);
    assert_eq!(story.tell(Event::Lost(lost)), [Action::Heartbeat]);
    story.pass(20);
    assert_eq!(story.tell(list(&["n", "m"])), [Action::Acquire(lost)], "n is there, so the store was");
    Ok(())
}

#[test]
fn backoff_grows_with_each_failure() -> Result<()> {
    let mut story = Story::new(1)?;
    story.tell(list(&["m"]));
    let mut pauses = Vec::new();
    while pauses.len() < 5 {
        assert_eq!(story.tell(Event::AcquireFailed(Partition(0))), []);
        let failed = story.now;
        let mut actions = story.wait().1;
        if actions == [Action::Heartbeat] {
            story.tell(list(&["m"]));
            actions = story.wait().1;
        }
        assert_eq!(actions, [Action::Acquire(Partition(0))]);
        pauses.push(story.now.since(failed).as_millis());
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320]);
    assert_eq!(story.tell(Event::Acquired(Partition(0))), []);
    assert_eq!(story.tell(Event::Lost(Partition(0))), []);
    assert_eq!(story.tell(Event::Freed(Partition(0))), [], "lost as soon as acquired: that is a failure too");
    Ok(())
}

#[test]
fn simultaneous_failures_count_once() -> Result<()> {
    let mut story = Story::new(32)?;
    assert_eq!(story.tell(list(&["m"])).len(), 32);
    for pause in [20, 40] {
        for partition in (0..32).map(Partition) {
            assert_eq!(story.tell(Event::AcquireFailed(partition)), []);
        }
        let (ms, actions) = story.wait();
        assert_eq!((ms, actions.len()), (pause, 32), "a race of many partitions is no reason to stand still");
    }
    Ok(())
}

#[test]
fn leaving_member_announces_first_and_ends_once_released() -> Result<()> {
    let mut story = Story::owner()?;
    let actions = story.tell(Event::Leave);
    assert_eq!((actions.len(), actions[0]), (5, Action::Depart));
    for partition in story.order.clone() {
        assert_eq!(story.tell(Event::Released(partition)), []);
    }
    assert_eq!(story.tell(Event::Departed), [Action::Gone]);
    assert_eq!((story.tell(Event::Tick), story.member.next_wake()), (vec![], Instant::FAR));
    Ok(())
}

#[test]
fn leaving_member_stops_announcing_without_a_store() -> Result<()> {
    let mut story = Story::new(1)?;
    assert_eq!(story.tell(Event::Leave), [], "a heartbeat is in flight: the leave call must not overtake it");
    for _ in 0..3 {
        assert_eq!(story.tell(Event::HeartbeatFailed), []);
        assert_eq!(story.wait(), (250, vec![Action::Depart]));
    }
    assert_eq!(story.tell(Event::HeartbeatFailed), [Action::Gone]);
    Ok(())
}

#[test]
fn returning_consumer_keeps_the_membership() -> Result<()> {
    let mut story = Story::owner()?;
    assert_eq!(story.tell(Event::Leave).len(), 5);
    assert_eq!(story.tell(Event::Stay), []);
    assert_eq!(story.tell(Event::Departed), [Action::Heartbeat]);
    let first = story.order[0];
    assert_eq!(story.tell(Event::Released(first)), [Action::Acquire(first)]);
    Ok(())
}

#[test]
fn after_data_loss_only_validly_owned_partitions_are_acquired() -> Result<()> {
    let mut story = Story::new(2)?;
    assert_eq!(story.tell(list(&["m"])).len(), 2);
    let [own, late] = [story.order[0], story.order[1]];
    story.tell(Event::Acquired(own));
    let until = story.now.plus(TTL);
    assert_eq!(story.tell(Event::Hold { until, valid: BTreeSet::from([own]) }), []);
    assert_eq!(story.tell(Event::Acquired(late)), [Action::Release(late)], "it overlapped the loss");
    assert_eq!(story.tell(Event::Released(late)), []);
    assert_eq!(story.tell(Event::Lost(own)), []);
    assert_eq!(story.wait(), (20, vec![Action::Acquire(own)]));
    assert_eq!(story.tell(Event::Acquired(own)), []);
    while story.now < until {
        let actions = story.wait().1;
        assert!(actions.contains(&Action::Acquire(late)) == (story.now >= until), "{actions:?}");
        if actions.contains(&Action::Heartbeat) {
            story.tell(list(&["m"]));
        }
    }
    Ok(())
}

/// A partition was released for a member that never takes it: how it comes and goes, with seconds since its release.
#[test]
fn unclaimed_surplus_is_kept_and_offered_again() -> Result<()> {
    let mut story = Story::new(1)?;
    // One member has the share, the other is broken: both begin without the partition.
    let mut steps = Vec::new();
    assert_eq!(story.tell(list(&["m", "a", "d"])), [], "the share is another's");
    let since = story.now;
    let mut actions = Vec::new();
    while steps.len() < 6 {
        let seconds = story.now.since(since).as_secs();
        match actions.pop() {
            Some(Action::Heartbeat) => actions.extend(story.tell(list(&["m", "a", "d"]))),
            Some(Action::Acquire(partition)) => {
                steps.push(("takes", seconds));
                actions.extend(story.tell(Event::Acquired(partition)));
            }
            Some(Action::Release(partition)) => {
                steps.push(("offers", seconds));
                actions.extend(story.tell(Event::Released(partition)));
            }
            _ => actions = story.wait().1,
        }
    }
    let first = steps[0].1;
    assert!([20, 60].contains(&first), "{steps:?}");
    let times = [0, 5, 15, 25, 35, 55].map(|after| first + after);
    assert_eq!(steps.iter().map(|(_, seconds)| *seconds).collect::<Vec<_>>(), times, "{steps:?}");
    Ok(())
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn member_expires_after_three_missed_heartbeats_by_default() {
    let timing = Timing::new(ms(10_000), ms(1_000));
    assert_eq!(timing.absent_after(), ms(3_000));
    assert_eq!(Timing::new(ms(900), ms(1_000)).heartbeat(), ms(300));
}

#[test]
fn backoff_grows_and_resets() {
    let timing = Timing::new(ms(10_000), ms(1_000));
    assert_eq!([1, 2, 3, 6, 7, u32::MAX].map(|n| timing.retry(n).as_millis()), [20, 40, 80, 640, 1_000, 1_000]);
    assert_eq!([0, 1, 4, 5, u32::MAX].map(|n| timing.sweep_after(n).as_secs()), [20, 40, 320, 320, 320]);
    assert_eq!([0, 1, 7, 8, u32::MAX].map(|n| timing.keep(n).as_secs()), [5, 10, 640, 640, 640]);
}
