//! Demand of a member begins and ends.

use super::*;

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
fn the_end_of_demand_is_announced_after_it_lingered_and_its_begin_at_once() -> Result<()> {
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
fn demand_lingers_after_a_delivery_that_was_not_settled() -> Result<()> {
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
fn without_demand_it_gives_everything_up_for_those_with_demand() -> Result<()> {
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
fn while_nobody_has_demand_nothing_moves() -> Result<()> {
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
fn a_lease_of_a_live_member_without_demand_is_not_waited_for() -> Result<()> {
    let mut story = Story::new(1)?;
    let only = Partition(0);
    assert_eq!(story.tell(list(&["m", "n idle"])), [Action::Acquire(only)]);
    assert_eq!(story.tell(held(only, "n", 9_000)), [], "it renews its lease, or gives it up");
    assert_eq!(story.tell(Event::Freed(only)), [Action::Acquire(only)]);
    Ok(())
}

#[test]
fn demand_that_changes_during_a_heartbeat_is_announced_by_the_next_at_once() -> Result<()> {
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
fn what_a_sweep_found_is_not_kept_without_demand() -> Result<()> {
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
fn after_demand_has_ended_somewhere_and_after_a_member_has_left_it_tries_everything() -> Result<()> {
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
fn a_sweep_comes_although_demand_changes_all_the_time() -> Result<()> {
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
