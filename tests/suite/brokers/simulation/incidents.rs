//! What befalls the world.

use super::network::{LATE_MAX, Network};
use super::store::{Ms, Who};
use super::world::{What, World};

#[derive(Debug, Clone)]
pub(super) enum Fate {
    Join,
    /// Someone stops gracefully.
    Leave,
    /// Someone stops asking and asks again a little later.
    Hesitate,
    Crash,
    /// Someone stops stepping for a while, and then goes on with what it knew.
    Pause(Ms),
    /// The store answers nobody for a while.
    Outage(Ms),
    /// The store writes what it has to disk.
    Save,
    /// The store loses what came after it saved.
    Rewind,
    /// Consumers of a member come, or go.
    Want(Who, bool),
    /// The network changes.
    Weather(Network),
}

impl World {
    pub(super) fn suffer(&mut self, fate: Fate) {
        match fate {
            Fate::Join => {
                self.join();
            }
            Fate::Leave => {
                if let Some(who) = self.someone() {
                    self.leave(who);
                }
            }
            Fate::Hesitate => {
                if let Some(who) = self.someone() {
                    self.leave(who);
                    let delay = self.random.u64(0..100);
                    self.after(delay, What::Hear(who, dwell::coordination::membership::Event::Stay));
                    // It may be gone by then: another process comes in its place.
                    self.after(delay, What::Fate(Fate::Join));
                }
            }
            Fate::Crash => {
                if let Some(who) = self.someone() {
                    self.crash(who);
                }
            }
            Fate::Pause(ms) => {
                if let Some(who) = self.someone() {
                    let process = &mut self.processes[who];
                    process.asleep_until = process.asleep_until.max(self.now + ms);
                }
            }
            Fate::Outage(ms) => self.away_until = self.now + ms,
            Fate::Save => self.saved = Some(self.store.clone()),
            Fate::Rewind => {
                if let Some(saved) = self.saved.take() {
                    self.store.rewind(self.now, &saved);
                }
            }
            Fate::Want(who, wants) => self.want(who, wants),
            Fate::Weather(network) => self.network = network,
        }
    }

    /// When the last pause and the last outage are over, and no late request is on its way.
    pub(super) fn trouble_until(&self) -> Ms {
        let there = self.processes.iter().filter(|process| process.is_alive);
        let asleep = there.map(|process| process.asleep_until);
        asleep.max().unwrap_or(0).max(self.away_until).max(self.now) + LATE_MAX
    }

    /// Someone who takes part, by chance.
    pub(super) fn someone(&mut self) -> Option<Who> {
        let there: Vec<Who> = (0..self.processes.len()).filter(|who| self.processes[*who].takes_part()).collect();
        self.random.choice(there)
    }

    pub(super) fn leave(&mut self, who: Who) {
        self.processes[who].has_left = true;
        self.tell(who, dwell::coordination::membership::Event::Leave);
    }

    /// Consumers come to a member, or go. It learns of the first one at once, and of the last one when it looks.
    pub(super) fn want(&mut self, who: Who, wants: bool) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(who) else { return };
        if process.takes_part() && process.wants != wants {
            (process.wants, process.wanted, process.since) = (wants, now, now);
            if wants {
                self.after(0, What::Hear(who, dwell::coordination::membership::Event::Tick));
            }
        }
    }

    pub(super) fn crash(&mut self, who: Who) {
        let process = &mut self.processes[who];
        process.is_alive = false;
        process.owned.clear();
    }
}
