//! When something goes wrong.

use super::*;

#[test]
fn after_a_while_without_answers_it_lets_owners_come_first() -> Result<()> {
    let mut story = Story::owner()?;
    story.beat(&["m", "n"]);
    let lost = story.order[0];
    story.pass(20_000);
    assert_eq!(story.tell(Event::Lost(lost)), [Action::Beat]);
    assert_eq!(story.tell(Event::BeatFailed), []);
    assert_eq!(story.wait(), (250, vec![Action::Beat]));
    assert_eq!(story.tell(list(&["m"])), [], "n was there before");
    let back = story.now;
    while story.now.since(back) < TTL / 3 + HEARTBEAT {
        let (_, actions) = story.wait();
        assert_eq!(actions.contains(&Action::Acquire(lost)), story.now.since(back) == TTL / 3 + HEARTBEAT);
        if actions == [Action::Beat] {
            assert_eq!(story.tell(list(&["m"])), []);
        }
    }
    Ok(())
}

#[test]
fn after_a_pause_of_its_own_it_waits_for_nobody() -> Result<()> {
    let mut story = Story::owner()?;
    story.beat(&["m", "n"]);
    let lost = story.order[0];
    story.pass(20_000);
    assert_eq!(story.tell(Event::Lost(lost)), [Action::Beat]);
    story.pass(20);
    assert_eq!(story.tell(list(&["n", "m"])), [Action::Acquire(lost)], "n is there, so the store was");
    Ok(())
}

#[test]
fn failures_pause_longer_each_time() -> Result<()> {
    let mut story = Story::new(1)?;
    story.tell(list(&["m"]));
    let mut pauses = Vec::new();
    while pauses.len() < 5 {
        assert_eq!(story.tell(Event::AcquireFailed(Partition(0))), []);
        let failed = story.now;
        let mut actions = story.wait().1;
        if actions == [Action::Beat] {
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
fn what_fails_at_once_counts_once() -> Result<()> {
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
fn who_leaves_says_so_first_and_is_gone_when_everything_is_released() -> Result<()> {
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
fn who_leaves_while_the_store_is_away_gives_up_saying_so() -> Result<()> {
    let mut story = Story::new(1)?;
    assert_eq!(story.tell(Event::Leave), [], "a heartbeat is in flight: the farewell must not overtake it");
    for _ in 0..3 {
        assert_eq!(story.tell(Event::BeatFailed), []);
        assert_eq!(story.wait(), (250, vec![Action::Depart]));
    }
    assert_eq!(story.tell(Event::BeatFailed), [Action::Gone]);
    Ok(())
}

#[test]
fn a_consumer_that_comes_back_keeps_the_member() -> Result<()> {
    let mut story = Story::owner()?;
    assert_eq!(story.tell(Event::Leave).len(), 5);
    assert_eq!(story.tell(Event::Stay), []);
    assert_eq!(story.tell(Event::Departed), [Action::Beat]);
    let first = story.order[0];
    assert_eq!(story.tell(Event::Released(first)), [Action::Acquire(first)]);
    Ok(())
}

#[test]
fn after_a_data_loss_only_what_it_validly_owned_is_acquired() -> Result<()> {
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
        if actions.contains(&Action::Beat) {
            story.tell(list(&["m"]));
        }
    }
    Ok(())
}

/// A partition was released for a member that never takes it: how it comes and goes, with seconds since its release.
#[test]
fn what_nobody_takes_is_kept_beyond_the_share_and_offered_again() -> Result<()> {
    let mut story = Story::new(1)?;
    // Whoever has the share here, the other is broken: both begin without the partition.
    let mut told = Vec::new();
    assert_eq!(story.tell(list(&["m", "a", "d"])), [], "the share is another's");
    let since = story.now;
    let mut actions = Vec::new();
    while told.len() < 6 {
        let seconds = story.now.since(since).as_secs();
        match actions.pop() {
            Some(Action::Beat) => actions.extend(story.tell(list(&["m", "a", "d"]))),
            Some(Action::Acquire(partition)) => {
                told.push(("takes", seconds));
                actions.extend(story.tell(Event::Acquired(partition)));
            }
            Some(Action::Release(partition)) => {
                told.push(("offers", seconds));
                actions.extend(story.tell(Event::Released(partition)));
            }
            _ => actions = story.wait().1,
        }
    }
    let first = told[0].1;
    assert!([20, 60].contains(&first), "{told:?}");
    let times = [0, 5, 15, 25, 35, 55].map(|after| first + after);
    assert_eq!(told.iter().map(|(_, seconds)| *seconds).collect::<Vec<_>>(), times, "{told:?}");
    Ok(())
}
