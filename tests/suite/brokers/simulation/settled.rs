//! What a group comes to rest as: every partition owned by a member that somebody wants messages from, the shares equal to
//! within one. If nobody wants any, nothing moves.

use dwell::model::partition::Partition;

use super::store::{Ms, Who};
use super::world::World;

impl World {
    /// Why the group is not at rest, if so.
    pub(super) fn unrest(&self) -> Option<String> {
        let there: Vec<Who> = (0..self.processes.len()).filter(|who| self.processes[*who].takes_part()).collect();
        let (there, idle): (Vec<Who>, Vec<Who>) = there.into_iter().partition(|who| self.processes[*who].wants);
        if there.is_empty() {
            let moving = idle.iter().find(|who| self.processes[**who].serving().is_none());
            return moving.map(|who| format!("member {who} is not done"));
        }
        if let Some(who) = idle.iter().find(|who| self.processes[**who].serving() != Some(0)) {
            return Some(format!("member {who} keeps what nobody wants from it"));
        }
        let is_whole = there.iter().all(|who| !self.processes[*who].is_broken);
        let (mut least, mut most) = (usize::MAX, 0);
        for who in &there {
            let process = &self.processes[*who];
            let Some(serving) = process.serving() else { return Some(format!("member {who} is not done")) };
            let quota = process.member.standing().quota;
            if is_whole && serving != quota {
                return Some(format!("member {who} has {serving} of {quota}"));
            }
            (least, most) = (least.min(serving), most.max(serving));
        }
        let mut owners = vec![0; usize::from(self.partitions)];
        for who in &there {
            for (partition, owned) in &self.processes[*who].owned {
                if owned.valid_until <= self.now {
                    return Some(format!("member {who} owns {partition} no more"));
                }
                owners[usize::from(partition.0)] += 1;
            }
        }
        if let Some(at) = owners.iter().position(|owners| *owners != 1) {
            return Some(format!("{} has {} owners", Partition(u16::try_from(at).unwrap_or(0)), owners[at]));
        }
        (is_whole && most - least > 1).then(|| format!("shares from {least} to {most}"))
    }

    /// Runs until the group is at rest, at most so long; returns how long that took.
    pub(super) fn run_until_settled(&mut self, limit: Ms) -> Ms {
        // It is looked at seldom if it is large.
        let (since, pause) = (self.now, u64::from(self.partitions) / 100);
        let mut looked = 0;
        let mut unrest = self.unrest();
        while let Some(why) = unrest {
            assert!(self.now < since + limit, "not at rest after {limit} ms: {why}");
            loop {
                let is_idle = self.next_at() > self.now && self.now >= looked + pause;
                if is_idle && (self.record.touched > looked || self.now > looked + self.ttl() / 50) {
                    break;
                }
                self.happen();
            }
            looked = self.now;
            unrest = self.unrest();
        }
        self.now - since
    }

    /// Nothing moves for so long.
    pub(super) fn stay_at_rest(&mut self, ms: Ms) {
        let (until, moves) = (self.now + ms, self.record.moves);
        self.run_until(until);
        // Something may be about to be swept.
        self.run_until_settled(self.ttl() / 10);
        assert_eq!(self.record.moves, moves, "it moves at rest");
    }
}
