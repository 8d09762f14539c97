//! Demand of a member begins and ends.

use super::*;
use crate::model::error::Error;

impl Story {
    fn lose_demand(&mut self) -> Vec<Action> {
        self.wants = false;
        while self.member.standing().has_demand {
            let (_, actions) = self.wait();
            if !self.member.standing().has_demand {
                return actions;
            }
            self.tell(list(&["m", "n idle"]));
        }
        Vec::new()
    }
}

#[test]
fn demand_end_is_announced_after_lingering_and_start_at_once() -> Result<()> {
    let mut story = Story::owner()?;
    let since = story.now;
    assert_eq!(story.lose_demand(), [Action::Heartbeat]);
    assert_eq!(story.now.since(since), LINGER);
    assert_eq!(story.tell(list(&["m idle"])), []);
    story.pass(1);
    story.wants = true;
    assert_eq!(story.tell(Event::Tick), [Action::Heartbeat]);
    assert!(story.member.standing().has_demand);
    assert_eq!(story.tell(Event::Tick), [], "once is enough");
    Ok(())
}

/// A delivery whose deadline passed is in flight no more, and what is known then is when its consumer asked, long before.
#[test]
fn demand_lingers_after_an_unsettled_delivery() -> Result<()> {
    let mut story = Story::owner()?;
    let asked = story.now;
    story.beat(&["m"]);
    story.wants = false;
    story.member.wanted(asked);
    story.pass(900);
    story.tell(Event::Tick);
    assert!(story.member.standing().has_demand);
    Ok(())
}

#[test]
fn member_without_demand_releases_to_members_with_demand() -> Result<()> {
    let mut story = Story::owner()?;
    story.lose_demand();
    let released: Vec<Action> = story.order.iter().rev().copied().map(Action::Release).collect();
    assert_eq!(story.tell(list(&["m idle", "n"])), released);
    for partition in story.order.clone() {
        assert_eq!(story.tell(Event::Released(partition)), []);
    }
    for _ in 0..100 {
        let actions = story.wait().1;
        assert!(actions == [Action::Heartbeat] || actions.is_empty(), "it takes nothing: {actions:?}");
        story.tell(list(&["m idle", "n"]));
    }
    assert!(!story.member.standing().is_waiting, "nothing is wanted");
    Ok(())
}

#[test]
fn partitions_that_nobody_has_a_message_of_are_released_first() -> Result<()> {
    let mut story = Story::owner()?;
    let [first, second, third, last] = story.order[..] else { return Err(Error::bug("four partitions")) };
    story.busy = vec![last, second];
    assert_eq!(story.tell(list(&["m", "n"])), [Action::Release(third), Action::Release(first)]);
    Ok(())
}

#[test]
fn nothing_moves_while_no_member_has_demand() -> Result<()> {
    let mut story = Story::owner()?;
    story.lose_demand();
    assert_eq!(story.tell(list(&["m idle", "n idle"])), []);
    assert_eq!(story.owned(), 4);
    for _ in 0..100 {
        let actions = story.wait().1;
        assert!(actions == [Action::Heartbeat] || actions.is_empty(), "{actions:?}");
        story.tell(list(&["m idle", "n idle"]));
    }
    assert_eq!(story.beat(&["m idle", "n"]).len(), 4, "until another one has");
    Ok(())
}

#[test]
fn members_without_demand_have_no_share() -> Result<()> {
    let mut story = Story::new(4)?;
    assert_eq!(story.tell(list(&["m", "n idle", "o idle"])).len(), 4);
    assert_eq!(story.member.standing().quota, 4);
    Ok(())
}

#[test]
fn lease_of_a_live_idle_member_is_not_waited_for() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    assert_eq!(story.tell(list(&["m", "n idle"])), [Action::Acquire(only)]);
    assert_eq!(story.tell(held(only, "n", 9_000)), [], "it renews its lease, or gives it up");
    assert_eq!(story.tell(Event::Freed(only)), [Action::Acquire(only)]);
    Ok(())
}

#[test]
fn demand_change_during_a_heartbeat_is_sent_immediately_after() -> Result<()> {
    let mut story = Story::owner()?;
    story.lose_demand();
    story.wants = true;
    assert_eq!(story.tell(Event::Tick), [], "one is in flight");
    assert_eq!(story.tell(Event::HeartbeatFailed), [Action::Heartbeat], "the retry would come later");
    assert_eq!(story.tell(Event::HeartbeatFailed), []);
    assert_eq!(story.wait(), (250, vec![Action::Heartbeat]));
    Ok(())
}

#[test]
fn sweep_claims_are_released_without_demand() -> Result<()> {
    let mut story = Story::new(1)?;
    let mut actions = story.tell(list(&["m", "a", "d"]));
    while story.owned() == 0 {
        match actions.pop() {
            Some(Action::Acquire(partition)) => actions.extend(story.tell(Event::Acquired(partition))),
            Some(Action::Heartbeat) => actions.extend(story.tell(list(&["m", "a", "d"]))),
            _ => actions = story.wait().1,
        }
    }
    assert_eq!(story.member.standing().kept, 1);
    story.lose_demand();
    assert_eq!(story.tell(list(&["m idle", "a", "d"])), [Action::Release(Partition(0))]);
    Ok(())
}

/// Another member holds every partition that it tries. Returns how many partitions it tries.
fn tries(story: &mut Story, mut actions: Vec<Action>) -> usize {
    let mut tried = 0;
    while let Some(action) = actions.pop() {
        let Action::Acquire(partition) = action else { continue };
        tried += 1;
        actions.extend(story.tell(held(partition, "n", 9_000)));
    }
    tried
}

#[test]
fn member_tries_all_partitions_after_demand_ends_or_a_leave() -> Result<()> {
    let mut story = Story::new(400)?;
    let mut actions = story.tell(list(&["m", "n", "o", "p"]));
    while let Some(action) = actions.pop() {
        let Action::Acquire(partition) = action else { continue };
        actions.extend(story.tell(Event::Acquired(partition)));
    }
    let owned = story.owned();
    assert!((90..=100).contains(&owned), "{owned}");
    for members in [&["m", "n", "o", "p idle"][..], &["m", "n", "o"]] {
        let actions = story.beat(members);
        assert_eq!(tries(&mut story, actions), 400 - owned, "{members:?}");
    }
    Ok(())
}

#[test]
fn sweep_runs_despite_constant_demand_changes() -> Result<()> {
    let mut story = Story::new(1)?;
    let (mut actions, mut beats) = (story.tell(list(&["m", "a", "d", "e"])), 0);
    while story.owned() == 0 {
        match actions.pop() {
            Some(Action::Acquire(partition)) => actions.extend(story.tell(Event::Acquired(partition))),
            Some(Action::Heartbeat) => {
                beats += 1;
                assert!(beats < 1_000, "nobody finds what nobody takes");
                // Each five heartbeats, which is more often than sweeps come.
                actions.extend(story.tell(list(&["m", "a", "d", ["e", "e idle"][beats / 5 % 2]])));
            }
            _ => actions = story.wait().1,
        }
    }
    assert_eq!(story.member.standing().quota, 0);
    Ok(())
}
