//! Conversations with one member: what it is told, and what it asks for.

mod demand;
mod trouble;

use std::time::Duration;

use super::*;
use crate::model::error::Result;

const TTL: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A member `m` of a topic of four partitions, at some time.
struct Story {
    member: Member,
    now: Instant,
    /// Consumers wait there.
    wants: bool,
    /// Its order of preference.
    order: Vec<Partition>,
}

impl Story {
    fn new(partitions: u16) -> Result<Story> {
        let (topic, group, id) = (TopicName::new("orders")?, GroupName::standard(), MemberId::from_store("m"));
        let order = Seat::new(&topic, &group, &id).order(partitions);
        let member = Member::new(topic, group, partitions, id, Timing::new(TTL, HEARTBEAT));
        let mut story = Story { member, now: Instant::START.plus(TTL), wants: true, order };
        assert_eq!(story.tell(Event::Tick), [Action::Beat]);
        Ok(story)
    }

    /// A member that owns all four partitions alone.
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
        let actions = self.member.step(self.now, event);
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

    /// Beats once, answered by these members.
    fn beat(&mut self, members: &[&str]) -> Vec<Action> {
        assert_eq!(self.wait().1, [Action::Beat]);
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
    Event::Beaten(members.iter().map(live).collect())
}

fn held(partition: Partition, by: &str, ms: u64) -> Event {
    Event::Held { partition, by: MemberId::from_store(by), expires_in: Duration::from_millis(ms) }
}

#[test]
fn alone_it_takes_everything_in_its_order() -> Result<()> {
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
fn a_held_partition_is_tried_again_after_a_heartbeat_or_when_it_is_announced_as_free() -> Result<()> {
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
fn what_a_dead_member_holds_is_tried_when_its_lease_ends() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    story.tell(list(&["m"]));
    assert_eq!(story.tell(held(only, "dead", 300)), []);
    assert_eq!(story.wait(), (300, vec![Action::Acquire(only)]));
    Ok(())
}

#[test]
fn a_member_that_drains_is_not_waited_for_until_its_leases_end() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    story.tell(list(&["m"]));
    assert_eq!(story.tell(held(only, "leaving", 9_000)), []);
    assert_eq!(story.beat(&["m"]), [Action::Acquire(only)]);
    Ok(())
}

#[test]
fn a_guess_in_flight_does_not_end_the_search() -> Result<()> {
    let mut story = Story::new(1_000)?;
    story.tell(Event::BeatFailed);
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
fn guesses_are_few_and_double_until_everything_was_tried() -> Result<()> {
    let mut story = Story::new(1_000)?;
    let mut tries = Vec::new();
    story.tell(Event::BeatFailed);
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
    story.tell(Event::BeatFailed);
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
fn a_long_search_makes_several_guesses_at_once_and_gives_back_what_is_too_much() -> Result<()> {
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
fn what_is_announced_is_tried_before_more_guesses() -> Result<()> {
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
fn an_announcement_that_overtakes_an_answer_counts() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    story.tell(list(&["m"]));
    assert_eq!(story.tell(Event::Freed(only)), []);
    assert_eq!(story.tell(held(only, "m2", 9_000)), [Action::Acquire(only)]);
    assert_eq!(story.tell(held(only, "m2", 9_000)), []);
    Ok(())
}

#[test]
fn a_new_member_gets_the_last_acquired_half_and_no_more() -> Result<()> {
    let mut story = Story::owner()?;
    story.pass(100);
    assert_eq!(story.tell(Event::MembersChanged), [Action::Beat]);
    assert_eq!(story.tell(list(&["m", "n"])), [Action::Release(story.order[3]), Action::Release(story.order[2])]);
    assert_eq!(story.tell(Event::Released(story.order[3])), []);
    assert_eq!(story.tell(Event::Freed(story.order[3])), [], "its own release: nothing is missing");
    assert_eq!(story.tell(Event::Released(story.order[2])), []);
    assert_eq!(story.owned(), 2);
    Ok(())
}

#[test]
fn announcements_are_answered_by_few_heartbeats() -> Result<()> {
    let mut story = Story::owner()?;
    assert_eq!(story.tell(Event::MembersChanged), []);
    assert_eq!(story.wait(), (50, vec![Action::Beat]));
    assert_eq!(story.tell(Event::MembersChanged), [], "one is in flight");
    assert_eq!(story.tell(list(&["m"])), []);
    assert_eq!(story.wait(), (50, vec![Action::Beat]), "its list may have been too old");
    assert_eq!(story.tell(list(&["m"])), []);
    let (ms, actions) = story.wait();
    assert!(ms <= 1_000 && actions == [Action::Beat], "{ms} {actions:?}");
    Ok(())
}

#[test]
fn regular_heartbeats_of_all_groups_of_a_process_are_due_at_the_same_instants() -> Result<()> {
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
fn a_list_without_itself_changes_nothing() -> Result<()> {
    let mut story = Story::owner()?;
    assert_eq!(story.beat(&["n", "o"]), []);
    assert_eq!(story.owned(), 4);
    assert_eq!(story.wait(), (250, vec![Action::Beat]));
    Ok(())
}

#[test]
fn more_members_than_partitions_wait() -> Result<()> {
    let mut story = Story::new(1)?;
    story.tell(list(&["m", "a", "b", "c", "d", "e", "f"]));
    assert_eq!((story.member.standing().quota, story.member.standing().is_waiting), (0, true));
    Ok(())
}
