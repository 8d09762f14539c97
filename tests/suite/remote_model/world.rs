//! What the world consists of, what can happen in it, and what that changes.

use std::collections::BTreeSet;

/// One rule. The text says what holds while the rule is in force; a search may remove exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// A request is decided in the table of the epoch that its receipt names, or not at all.
    OwnerComparesEpoch,
    /// A delivery that is decided is not decided otherwise.
    FirstDecisionStands,
    /// The owner answers `acked` when Redis has answered its call.
    AnswerWaitsForRedis,
    /// A copy of a request is answered as the first one was.
    CopyGetsSameAnswer,
    /// A request is dropped if there is no room to remember its answer.
    NothingIsBegunThatCannotBeRemembered,
    /// The broker that was asked says `stale` by itself only if the owner received no copy of the request.
    StaleOnlyIfNotReceived,
    /// A request whose time is over is dropped.
    RequestExpires,
    /// An answer is taken only under the name of the request that waits for it.
    AnswerNamesItsRequest,
}

/// A verdict that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    AckedButNotSettled,
    StaleButSettled,
    SettledTwice,
    SettledByAnotherEpoch,
    SettledAfterItExpired,
    AnswersDiffer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Verdict {
    Acked,
    Stale,
    UnknownOutcome,
    Unreachable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    // Broker B, which the consumer asked.
    /// It reads the owner record before it sends anything, since A was silent before.
    Look,
    /// It sends the request, or a copy of it.
    Send,
    /// Nobody received its last copy, and the epoch is over.
    Concludes,
    Takes(Verdict),
    /// It takes an answer to another request.
    TakesAnother,
    GivesUp,
    /// The time limit of the request passes.
    Expires,

    // Broker A, which handed the delivery out.
    Receives,
    /// It has no room to remember the answer.
    ReceivesWhileFull,
    /// A consumer at A nacks the delivery.
    LocalNack,
    SendsCall,
    /// The call, or its answer, is lost; it is repeated.
    CallUnanswered,
    CallAnswered,
    CallRefused,
    LearnsThatItLost,
    Acquires,
    Dies,

    // Redis.
    Executes,
    /// Another owner acquires the partition, or A's lease lapses and is taken.
    EpochEnds,
    /// What Redis will remember after the next loss.
    Snapshot,
    LosesData,
}

/// Epochs have tokens, so no two have one number here. The run changes when data are lost, as stamps do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Redis {
    epoch: u8,
    run: u8,
}

/// How often B sends its request, at most.
const SENDS: u8 = 3;

/// The epoch of the receipt.
const FIRST: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum By {
    /// The ack of the request.
    Request,
    /// The nack at A.
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Delivery {
    Out,
    Decided {
        by: By,
        sent: bool,
        executed: bool,
        in_doubt: bool,
    },
    Settled(By),
    /// The message is gone.
    Nothing,
}

/// What A remembers of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Table {
    redis: Redis,
    delivery: Delivery,
}

/// What A remembers of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Memory {
    Nothing,
    Working,
    Answered(Verdict),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    removed: Option<Rule>,
    redis: Redis,
    snapshot: Option<Redis>,
    /// The process of A that handed the delivery out.
    is_alive: bool,
    table: Option<Table>,
    memory: Memory,
    /// The request waits for the decision.
    is_waiting: bool,
    /// Copies of the request on their way to A.
    copies: u8,
    /// Answers on their way to B.
    answers: BTreeSet<Verdict>,
    looked: bool,
    perhaps_received: bool,
    last_was_not_received: bool,
    told: Option<Verdict>,
    is_expired: bool,
    /// Ledger: what A answered first.
    answered: Option<Verdict>,
    /// Ledger: Redis executed the ack of the request.
    is_acked: bool,
    /// Ledger: how often the first delivery was settled.
    settled: u8,
    epochs: u8,
    runs: u8,
    sends_left: u8,
    epochs_left: u8,
    losses_left: u8,
}

impl World {
    pub(super) fn new(removed: Option<Rule>, losses: u8) -> World {
        let redis = Redis { epoch: FIRST, run: 0 };
        World {
            removed,
            redis,
            snapshot: None,
            is_alive: true,
            table: Some(Table { redis, delivery: Delivery::Out }),
            memory: Memory::Nothing,
            is_waiting: false,
            copies: 0,
            answers: BTreeSet::new(),
            looked: false,
            perhaps_received: false,
            last_was_not_received: false,
            told: None,
            is_expired: false,
            answered: None,
            is_acked: false,
            settled: 0,
            epochs: FIRST,
            runs: 0,
            sends_left: SENDS,
            epochs_left: 2,
            losses_left: losses,
        }
    }

    fn has(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn asks(&self) -> bool {
        self.told.is_none()
    }

    /// Whether Redis takes the calls of A's epoch.
    fn is_current(&self) -> bool {
        self.table.is_some_and(|table| table.redis == self.redis)
    }

    pub(super) fn enabled(&self) -> Vec<Action> {
        let delivery = self.table.map(|table| table.delivery);
        let (mut sent, mut executed, mut in_doubt) = (false, false, false);
        if let Some(Delivery::Decided { sent: s, executed: e, in_doubt: d, .. }) = delivery {
            (sent, executed, in_doubt) = (s, e, d);
        }
        let is_decided = matches!(delivery, Some(Delivery::Decided { .. }));
        let current = self.is_current();
        let mut enabled = vec![
            (Action::Look, !self.looked && self.sends_left == SENDS),
            (Action::Send, self.asks() && self.sends_left > 0),
            (Action::Concludes, self.asks() && self.last_was_not_received && self.redis.epoch != FIRST),
            (Action::TakesAnother, self.asks() && !self.has(Rule::AnswerNamesItsRequest)),
            (Action::GivesUp, self.asks()),
            (Action::Expires, self.told.is_some() && !self.is_expired),
            (Action::Receives, self.is_alive && self.copies > 0),
            (Action::ReceivesWhileFull, self.is_alive && self.copies > 0 && self.memory == Memory::Nothing),
            (Action::LocalNack, delivery == Some(Delivery::Out)),
            (Action::SendsCall, is_decided && !sent),
            (Action::CallUnanswered, sent && !in_doubt),
            (Action::CallAnswered, executed && (current || !in_doubt)),
            (Action::CallRefused, sent && !current && (in_doubt || !executed)),
            (Action::LearnsThatItLost, self.table.is_some() && !current),
            (Action::Acquires, self.is_alive && self.table.is_none() && self.epochs_left > 0),
            (Action::Dies, self.is_alive),
            (Action::Executes, sent && !executed && current),
            (Action::EpochEnds, self.epochs_left > 0),
            (Action::Snapshot, self.losses_left > 0 && self.snapshot != Some(self.redis)),
            (Action::LosesData, self.losses_left > 0 && self.snapshot.is_some()),
        ];
        if self.asks() {
            enabled.extend(self.answers.iter().map(|verdict| (Action::Takes(*verdict), true)));
        }
        enabled.into_iter().filter_map(|(action, may)| may.then_some(action)).collect()
    }

    pub(super) fn apply(&mut self, action: Action) -> Result<(), Breach> {
        match action {
            Action::Look => {
                self.looked = true;
                if self.redis.epoch != FIRST {
                    self.told = Some(Verdict::Stale);
                }
            }
            Action::Send => {
                self.sends_left -= 1;
                self.last_was_not_received = !self.is_alive;
                if self.is_alive {
                    self.copies += 1;
                    self.perhaps_received = true;
                }
            }
            Action::Concludes => {
                let is_unknown = self.perhaps_received && self.has(Rule::StaleOnlyIfNotReceived);
                self.told = Some(if is_unknown { Verdict::UnknownOutcome } else { Verdict::Stale });
            }
            Action::Takes(verdict) => self.told = Some(verdict),
            Action::TakesAnother => self.told = Some(Verdict::Acked),
            Action::GivesUp => self.told = Some(Verdict::Unreachable),
            Action::Expires => {
                self.is_expired = true;
                self.memory = Memory::Nothing;
            }
            Action::Receives => return self.receive(false),
            Action::ReceivesWhileFull => return self.receive(true),
            Action::LocalNack => self.decide(By::Local),
            Action::SendsCall | Action::CallUnanswered | Action::Executes => return self.call(action),
            Action::CallAnswered => {
                if let Some(table) = &mut self.table
                    && let Delivery::Decided { by, .. } = table.delivery
                {
                    table.delivery = Delivery::Settled(by);
                    if by == By::Request && self.is_waiting {
                        return self.answer(Verdict::Acked);
                    }
                }
            }
            Action::CallRefused | Action::LearnsThatItLost => return self.lose(action == Action::CallRefused),
            Action::Acquires => {
                self.begin_epoch();
                let delivery = if self.is_acked { Delivery::Nothing } else { Delivery::Out };
                self.table = Some(Table { redis: self.redis, delivery });
            }
            Action::Dies => {
                (self.is_alive, self.table, self.memory) = (false, None, Memory::Nothing);
                (self.is_waiting, self.copies) = (false, 0);
            }
            Action::EpochEnds => self.begin_epoch(),
            Action::Snapshot => self.snapshot = Some(self.redis),
            Action::LosesData => {
                self.losses_left -= 1;
                self.runs += 1;
                if let Some(snapshot) = self.snapshot.take() {
                    self.redis = Redis { run: self.runs, ..snapshot };
                }
            }
        }
        Ok(())
    }

    fn begin_epoch(&mut self) {
        self.epochs_left -= 1;
        self.epochs += 1;
        self.redis.epoch = self.epochs;
    }

    fn decide(&mut self, by: By) {
        if let Some(table) = &mut self.table {
            table.delivery = Delivery::Decided { by, sent: false, executed: false, in_doubt: false };
        }
    }

    fn receive(&mut self, is_full: bool) -> Result<(), Breach> {
        self.copies -= 1;
        if self.is_expired && self.has(Rule::RequestExpires) {
            return Ok(());
        }
        if self.has(Rule::CopyGetsSameAnswer) {
            match self.memory {
                Memory::Working => return Ok(()),
                Memory::Answered(verdict) => return self.answer(verdict),
                Memory::Nothing if is_full && self.has(Rule::NothingIsBegunThatCannotBeRemembered) => return Ok(()),
                Memory::Nothing if is_full => {}
                Memory::Nothing => self.memory = Memory::Working,
            }
        }
        let is_theirs = |table: &Table| table.redis.epoch == FIRST || !self.has(Rule::OwnerComparesEpoch);
        match self.table.filter(is_theirs).map(|table| table.delivery) {
            None | Some(Delivery::Nothing) => self.answer(Verdict::Stale),
            Some(Delivery::Settled(By::Request)) => self.answer(Verdict::Acked),
            Some(Delivery::Decided { by: By::Request, .. }) => {
                self.is_waiting = true;
                Ok(())
            }
            Some(Delivery::Decided { .. } | Delivery::Settled(_)) if self.has(Rule::FirstDecisionStands) => {
                self.answer(Verdict::Stale)
            }
            Some(_) if self.is_expired => Err(Breach::SettledAfterItExpired),
            Some(_) => {
                self.decide(By::Request);
                self.is_waiting = true;
                if self.has(Rule::AnswerWaitsForRedis) { Ok(()) } else { self.answer(Verdict::Acked) }
            }
        }
    }

    fn call(&mut self, action: Action) -> Result<(), Breach> {
        let Some(Table { redis, delivery: Delivery::Decided { by, sent, executed, in_doubt } }) = &mut self.table
        else {
            return Ok(());
        };
        match action {
            Action::SendsCall => *sent = true,
            Action::CallUnanswered => *in_doubt = true,
            _ => {
                *executed = true;
                let (by, epoch) = (*by, redis.epoch);
                self.is_acked |= by == By::Request;
                self.settled += u8::from(epoch == FIRST);
                if by == By::Request && epoch != FIRST {
                    return Err(Breach::SettledByAnotherEpoch);
                }
            }
        }
        Ok(())
    }

    /// The epoch is over, as a refused call says or something else.
    fn lose(&mut self, is_refused: bool) -> Result<(), Breach> {
        let delivery = self.table.take().map(|table| table.delivery);
        let Some(Delivery::Decided { by: By::Request, sent, in_doubt, .. }) = delivery.filter(|_| self.is_waiting)
        else {
            return Ok(());
        };
        let is_unknown = if is_refused { in_doubt } else { sent };
        self.answer(if is_unknown { Verdict::UnknownOutcome } else { Verdict::Stale })
    }

    fn answer(&mut self, verdict: Verdict) -> Result<(), Breach> {
        self.is_waiting = false;
        if self.memory == Memory::Working {
            self.memory = Memory::Answered(verdict);
        }
        self.answers.insert(verdict);
        match self.answered.replace(verdict) {
            Some(first) if first != verdict => Err(Breach::AnswersDiffer),
            _ => Ok(()),
        }
    }

    /// Whether what the consumer was told is true.
    pub(super) fn check(&self) -> Result<(), Breach> {
        match self.told {
            _ if self.settled > 1 => Err(Breach::SettledTwice),
            Some(Verdict::Acked) if !self.is_acked => Err(Breach::AckedButNotSettled),
            Some(Verdict::Stale) if self.is_acked => Err(Breach::StaleButSettled),
            _ => Ok(()),
        }
    }
}
