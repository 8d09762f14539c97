//! Schedules: `c`, a cron expression and a time zone, a line each; or `j` and the JSON that is kept.

use std::time::Duration;

use dwell::model::cron_search::time_zone;
use dwell::model::schedule::{Occurrences, Schedule, Timing};
use dwell::model::time::Timestamp;
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::walker::{Naive, Wall};

/// 2026-03-28T12:00:00Z: the clocks of Europe go forward the next night.
const NOW: Timestamp = Timestamp::from_ms(1_774_699_200_000);

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    if let Some(lines) = text.strip_prefix('c') {
        let (cron, time_zone) = lines.split_once('\n').unwrap_or((lines, "UTC"));
        return kept(occurs(&Timing::Cron { cron: cron.to_owned(), time_zone: time_zone.to_owned() }));
    }
    let Some(json) = text.strip_prefix('j') else { return Corpus::Reject };
    let Ok(schedule) = Schedule::from_json(json) else { return Corpus::Reject };
    let again = schedule.to_json().expect("what was read is written");
    assert_eq!(Schedule::from_json(&again).as_ref(), Ok(&schedule));
    occurs(&schedule.timing);
    let fires = schedule.fires(NOW.minus(Duration::from_secs(3 * 86_400)), NOW);
    if let Some(fires) = fires {
        assert!(fires.done <= NOW && fires.occurrences.is_sorted());
        for occurrence in fires.occurrences {
            let _ = schedule.message(occurrence, NOW);
        }
    }
    kept(schedule.check(NOW).is_ok())
}

/// Occurrences go on, and never back.
fn occurs(timing: &Timing) -> bool {
    let mut last = NOW;
    for _ in 0..5 {
        let Some(next) = timing.next(last) else { break };
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    if let (Timing::Cron { cron, time_zone }, Ok(occurrences)) = (timing, timing.occurrences()) {
        are_those_of_the_clock(cron, time_zone, &occurrences);
    }
    let checked = timing.check(NOW);
    assert!(checked.is_err() || last > NOW, "{timing:?} is accepted and never occurs");
    checked.is_ok()
}

/// Two days, with the change of the clocks of Europe between them, walked minute by minute.
fn are_those_of_the_clock(cron: &str, zone: &str, occurrences: &Occurrences) {
    let zone = time_zone(zone).expect("it was found before");
    let seconds = |at: Timestamp| i64::try_from(at.as_ms() / 1_000).unwrap_or_default();
    let to = NOW.plus(Duration::from_secs(2 * 86_400));
    // A clock that goes back before what is compared shows some minutes again.
    let wall = Wall::new(&zone, seconds(NOW) - 2 * 86_400, seconds(to));
    let expected: Vec<i64> = Naive::new(cron).occurrences(&wall).into_iter().filter(|at| *at > seconds(NOW)).collect();
    assert_eq!(occurrences.within(NOW, to).map(seconds).collect::<Vec<_>>(), expected, "{cron:?}");
}
