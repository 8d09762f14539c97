//! One history: the operations of the client, and what is owed to it in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use fastrand::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::dedup::Deduped;
use super::deployment::{Deployment, Kind};
use super::exemptions::{Acknowledged, Exemptions, Identity};
use crate::support::{
    HttpClient, Process, Proxy, empty, eventually, eventually_within, failed, from_environment, scratch, signal_to,
};

/// Reserves without a delivery, after which no delivery is expected any more.
const QUIET_MAX: usize = 60;

/// Lines of a log that are printed when a history fails.
const LOG_LINES: usize = 200;

/// Within this time every broker noticed a loss, and uses the primary that all agree on: twice the lease ttl.
pub(super) const NOTICED: Duration = Duration::from_secs(2);

/// The clocks of two brokers that started without Redis agree on it within this time.
const CLOCKS: Duration = Duration::from_millis(250);

/// Ids that are set, moved and cancelled again and again.
const IDS: usize = 8;

/// One push in so many goes to a topic without consumers; what it has is moved to the other one.
const ARRIVALS_EACH: usize = 4;
pub(super) const ARRIVALS: &str = "arrivals";

/// Before the numbers of its messages.
const ARRIVAL: &str = "na";

/// One operation in so many is a purge.
const PURGE_EACH: usize = 40;

/// What keeps what Redis may lose: a journal, or a replica.
const JOURNAL: [(&str, &str); 2] = [("DURABILITY", "journal"), ("JOURNAL_WINDOW", "1h")];
const REPLICAS: [(&str, &str); 2] = [("DURABILITY", "standard"), ("REDIS_MIN_REPLICAS", "1")];

const SETTINGS: [(&str, &str); 6] = [
    ("LOG_LEVEL", "warn"),
    ("LEASE_TTL", "1s"),
    ("REDIS_TIMEOUT", "300ms"),
    ("TOPIC_VISIBILITY_TIMEOUT", "3s"),
    ("TOPIC_BACKOFF_INITIAL", "50ms"),
    ("TOPIC_BACKOFF_MAX", "200ms"),
];

/// What a history is made of.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) brokers: usize,
    pub(super) kind: Kind,
    /// Whether brokers start again without their data directory.
    pub(super) loses_disks: bool,
}

/// The state of an id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Gone,
    /// With this payload, due so many hours from the beginning.
    There(String, u64),
}

impl State {
    fn payload(&self) -> Option<String> {
        match self {
            State::There(payload, _) => Some(payload.clone()),
            State::Gone => None,
        }
    }
}

/// A broker, its connection to Redis, and its directory.
pub(super) struct Broker {
    pub(super) process: Option<Process>,
    pub(super) proxy: Option<Proxy>,
    dir: tempfile::TempDir,
    pub(super) identity: Identity,
    /// It gets no requests, because it is frozen.
    pub(super) is_frozen: bool,
    /// How much of its log was read.
    log_read: usize,
}

pub(super) struct Run {
    seed: u64,
    pub(super) plan: Plan,
    pub(super) redis: Deployment,
    pub(super) brokers: Vec<Broker>,
    pub(super) rng: Rng,
    pub(super) by: Acknowledged,
    pub(super) exempt: Exemptions,
    /// Brokers that use the primary of before, while others use another one. Each id is then changed by one broker only,
    /// since the answers of two primaries have no order.
    pub(super) apart: Option<BTreeSet<usize>>,
    /// When Redis lost something, until every broker noticed it and gave back what it has.
    pub(super) lost_at: Option<Instant>,
    pub(super) faults: BTreeMap<&'static str, usize>,
    /// How many faults were brought about.
    pub(super) begun: usize,
    identities: usize,
    /// The journals of brokers, by the files with their names.
    journals: BTreeMap<String, Identity>,
    /// What each id may be: more than one state after an operation without an answer.
    states: BTreeMap<String, BTreeSet<State>>,
    /// Payloads that an id has in Redis, or in the WAL of this broker, since it was changed in a WAL of which the others know
    /// nothing yet.
    hidden: BTreeMap<String, BTreeSet<(Option<usize>, String)>>,
    /// Which broker buffered the last change of an id, and when.
    buffered: BTreeMap<String, (usize, Instant)>,
    /// Messages with an ack that was sent, without an answer that says what became of it.
    pub(super) perhaps_acked: BTreeSet<String>,
    pub(super) again: Vec<String>,
    /// Deliveries that are acked late, each with the broker that handed it out.
    pub(super) later: Vec<(usize, Value)>,
    /// Messages that are dead letters for certain.
    pub(super) buried: BTreeSet<String>,
    /// Deliveries of what was forwarded that were buried, and nobody has deleted yet.
    pub(super) buried_again: Vec<Value>,
    pub(super) deduped: Deduped,
    pub(super) batches: usize,
    /// What brokers said of others that they did not wait for.
    silent: Vec<String>,
    /// What was answered about each id.
    told: BTreeMap<String, Vec<String>>,
    operations: usize,
    answers: BTreeMap<u16, usize>,
}

impl Run {
    pub(super) async fn begin(plan: Plan) -> Result<Run> {
        let seed = from_environment("DWELL_SEED")?.unwrap_or_else(|| fastrand::u64(..));
        eprintln!("{}: DWELL_SEED={seed}", plan.name);
        let redis = Deployment::start(plan.kind).await?;
        let mut run = Run {
            seed,
            redis,
            brokers: Vec::new(),
            rng: Rng::with_seed(seed),
            by: Acknowledged::default(),
            exempt: Exemptions::default(),
            apart: None,
            lost_at: None,
            faults: BTreeMap::new(),
            begun: 0,
            identities: 0,
            journals: BTreeMap::new(),
            states: BTreeMap::new(),
            hidden: BTreeMap::new(),
            buffered: BTreeMap::new(),
            perhaps_acked: BTreeSet::new(),
            again: Vec::new(),
            later: Vec::new(),
            buried: BTreeSet::new(),
            buried_again: Vec::new(),
            deduped: Deduped::default(),
            batches: 0,
            silent: Vec::new(),
            told: BTreeMap::new(),
            operations: 0,
            answers: BTreeMap::new(),
            plan,
        };
        for at in 0..run.plan.brokers {
            let (proxy, dir) = (run.redis.proxy()?, scratch()?);
            run.brokers.push(Broker { process: None, proxy, dir, identity: at, is_frozen: false, log_read: 0 });
        }
        for at in 0..run.plan.brokers {
            run.start(at).await?;
        }
        run.identities = run.plan.brokers;
        run.declare().await?;
        Ok(run)
    }

    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    pub(super) async fn start(&mut self, at: usize) -> Result<()> {
        let next = self.brokers.get(at + 1).unwrap_or(&self.brokers[0]).dir.path().join("dwell.sock");
        let next = format!("unix:{}", next.display());
        let broker = &mut self.brokers[at];
        let url = broker.proxy.as_ref().map_or_else(|| self.redis.url(), Proxy::url);
        // A cluster spreads them over its nodes.
        let partitions = if self.plan.kind == Kind::Cluster { "6" } else { "2" };
        let kept = if self.plan.kind == Kind::Replicated { REPLICAS } else { JOURNAL };
        let more = [("REDIS_URL", url.as_str()), ("TOPIC_PARTITIONS", partitions), ("WAL_HAND_OVER", next.as_str())];
        let settings: Vec<(&str, &str)> = SETTINGS.into_iter().chain(more).chain(kept).collect();
        broker.process = Some(Process::serve(broker.dir.path(), &settings).await?);
        Ok(())
    }

    /// Notes which names each journal has or had; brokers choose them after they are ready.
    fn name_journals(&mut self) {
        for broker in &self.brokers {
            let names = std::fs::read(broker.dir.path().join("journal/log-id")).unwrap_or_default();
            self.journals.insert(String::from_utf8_lossy(&names).into_owned(), broker.identity);
        }
    }

    /// Exempts the acks of brokers that another one no longer waited for after a loss, as it says in its log since the last look.
    pub(super) fn read_logs(&mut self) {
        self.name_journals();
        for at in 0..self.brokers.len() {
            let log = std::fs::read_to_string(self.brokers[at].dir.path().join("dwell.log")).unwrap_or_default();
            let new = log.get(self.brokers[at].log_read..).unwrap_or(&log);
            for line in new.lines().filter(|line| line.contains("no longer waited for")) {
                *self.faults.entry("silent broker not waited for").or_default() += 1;
                self.silent.push(format!("#{} at {at}: {line}", self.operations));
                for name in line.split('"').skip(1).step_by(2) {
                    let identity = self.journals.iter().find(|(names, _)| names.contains(name)).map(|(_, at)| *at);
                    assert!(identity.is_some(), "{line}: not the journal of a broker: {:?}", self.journals);
                    identity.into_iter().for_each(|identity| self.exempt.silent(identity, &self.by));
                }
            }
            self.brokers[at].log_read = log.len();
        }
    }

    /// Kills a broker.
    pub(super) fn kill(&mut self, at: usize) -> Result<()> {
        self.brokers[at].process.take().map_or(Ok(()), |mut process| process.kill())?;
        self.read_logs();
        Ok(())
    }

    /// Gives a killed broker an empty directory: its WAL and its journal are gone.
    pub(super) fn wipe(&mut self, at: usize) -> Result<()> {
        self.exempt.wipe(self.brokers[at].identity);
        self.renew_disk(at)
    }

    /// Stops a broker, and gives it an empty directory if it handed over all that it had. Otherwise it said what stays on its
    /// disk, and keeps it.
    pub(super) async fn stop(&mut self, at: usize) -> Result<()> {
        let mut process =
            self.brokers[at].process.take().ok_or_else(|| Error::bug("a broker that does not run stops"))?;
        self.read_logs();
        let before = self.brokers[at].log_read;
        signal_to(process.id(), Signal::TERM)?;
        process.ended().await?;
        self.read_logs();
        let log = std::fs::read_to_string(self.brokers[at].dir.path().join("dwell.log")).map_err(failed("the log"))?;
        if log.get(before..).unwrap_or(&log).contains("not handed over") {
            *self.faults.entry("not handed over in time").or_default() += 1;
            return Ok(());
        }
        let next = self.brokers.get(at + 1).unwrap_or(&self.brokers[0]).identity;
        self.by.handed_over(self.brokers[at].identity, next);
        self.renew_disk(at)
    }

    /// Empties the directory of a broker, whose socket stays where others know it.
    fn renew_disk(&mut self, at: usize) -> Result<()> {
        empty(self.brokers[at].dir.path())?;
        self.brokers[at].log_read = 0;
        self.brokers[at].identity = self.identities;
        self.identities += 1;
        Ok(())
    }

    /// A random broker that may be asked about an id; `None` if all are frozen.
    pub(super) fn broker_for(&mut self, id: Option<&str>) -> Option<usize> {
        let n = id.and_then(|id| id.trim_start_matches('m').parse::<usize>().ok());
        let one = n.filter(|_| self.apart.is_some()).map(|n| n % self.brokers.len());
        let answers = |at: &usize| !self.brokers[*at].is_frozen && one.is_none_or(|one| one == *at);
        let able: Vec<usize> = (0..self.brokers.len()).filter(answers).collect();
        self.rng.choice(able)
    }

    pub(super) fn client(&self, at: usize) -> Result<HttpClient> {
        let process = self.brokers[at].process.as_ref();
        process.map(|process| process.client.clone()).ok_or_else(|| Error::bug("a broker that does not run is asked"))
    }

    pub(super) fn count(&mut self, answer: Option<&(u16, Value)>) {
        *self.answers.entry(answer.map_or(0, |(status, _)| *status)).or_default() += 1;
    }

    /// Notes what was answered about an id.
    pub(super) fn tell(&mut self, id: &str, at: usize, told: String) {
        let now = dwell::platform::clock::Clock::System.now();
        let told = format!("#{} {now} after {:?} at {at}: {told}", self.operations, self.faults);
        self.told.entry(id.to_owned()).or_default().push(told);
    }

    fn states_of(&mut self, id: &str) -> &mut BTreeSet<State> {
        self.states.entry(id.to_owned()).or_insert_with(|| BTreeSet::from([State::Gone]))
    }

    /// A change of an id was acknowledged, and is in the WAL of a broker or not.
    fn note_hidden(&mut self, id: &str, at: usize, is_buffered: bool, payload: Option<&str>) {
        if !is_buffered {
            self.hidden.remove(id);
            self.buffered.remove(id);
            return;
        }
        self.buffered.insert(id.to_owned(), (at, Instant::now()));
        let before = self.states_of(id).iter().filter_map(State::payload).map(|payload| (None, payload)).collect();
        let hidden = self.hidden.entry(id.to_owned()).or_insert(before);
        hidden.extend(payload.map(|payload| (Some(at), payload.to_owned())));
    }

    /// An operation was acknowledged, after which the id is in this state.
    fn acknowledged(&mut self, id: &str, at: usize, state: State) {
        *self.states_of(id) = BTreeSet::from([state]);
        self.by.ids.insert(id.to_owned(), self.brokers[at].identity);
        self.exempt.is_set(id);
    }

    /// Waits until the next change of an id is later, by the clock of any broker, than the one that another broker buffered.
    async fn be_later(&self, id: &str, at: usize) -> Result<()> {
        let buffered = self.buffered.get(id).filter(|(by, _)| *by != at);
        let is_over = || buffered.is_none_or(|(_, changed_at)| changed_at.elapsed() >= CLOCKS);
        eventually("the clocks agree on the order", async || Ok(is_over().then_some(()))).await
    }

    /// Replaces an id, whatever is there.
    async fn set(&mut self, id: &str, at: usize) -> Result<()> {
        self.batches += 1;
        let (payload, hours) = (format!("p{}", self.batches), self.rng.u64(100..1_000));
        let message = json!({"messages": [{
            "id": id, "key": key_of(id), "payload": payload, "conflict": "replace", "delay": format!("{hours}h"),
        }]});
        let answer = self.client(at)?.post("/v1/topics/orders/messages/batch", &message).await;
        self.count(answer.as_ref());
        let status = answer.as_ref().map_or("", |(_, body)| body["results"][0]["status"].as_str().unwrap_or(""));
        let code = answer.as_ref().map_or(0, |(status, _)| *status);
        let new = State::There(payload.clone(), hours);
        self.tell(id, at, format!("set {new:?}: {code} {status}"));
        match status {
            "stored" | "journaled" | "replaced" | "buffered" => {
                self.note_hidden(id, at, status == "buffered", Some(&payload));
                self.acknowledged(id, at, new);
            }
            _ if is_certain(code, &answer) => {}
            _ => drop(self.states_of(id).insert(new)),
        }
        Ok(())
    }

    /// Names a message by its id and key, or by its id alone.
    fn path_of(&mut self, id: &str) -> String {
        let query = key_of(id).filter(|_| self.rng.bool()).map_or(String::new(), |key| format!("?key={key}"));
        format!("/v1/topics/orders/messages/{id}{query}")
    }

    async fn cancel(&mut self, id: &str, at: usize) -> Result<()> {
        let path = self.path_of(id);
        let answer = self.client(at)?.delete(&path).await;
        self.count(answer.as_ref());
        self.tell(id, at, format!("cancel: {answer:?}"));
        match answer {
            Some((200, body)) => {
                self.note_hidden(id, at, body["buffered"] == true, None);
                self.acknowledged(id, at, State::Gone);
            }
            // It was not there: whatever is acknowledged is in a log of a broker that could not say so.
            Some((404 | 409 | 503, _)) => {}
            _ => drop(self.states_of(id).insert(State::Gone)),
        }
        Ok(())
    }

    async fn reschedule(&mut self, id: &str, at: usize) -> Result<()> {
        let hours = self.rng.u64(100..1_000);
        let body = json!({"delay": format!("{hours}h")});
        let path = self.path_of(id);
        let answer = self.client(at)?.patch(&path, &body).await;
        self.count(answer.as_ref());
        self.tell(id, at, format!("reschedule to {hours}: {answer:?}"));
        let identity = self.brokers[at].identity;
        let hidden = self.hidden.get(id).cloned().unwrap_or_default();
        let states = self.states_of(id);
        let moved = |state: &State| match state {
            State::There(payload, _) => State::There(payload.clone(), hours),
            State::Gone => State::Gone,
        };
        match answer {
            Some((200, body)) => {
                *states = states.iter().map(moved).filter(|state| *state != State::Gone).collect();
                // Another broker may have an earlier change in its WAL. The later change counts, of what this broker knew.
                let known = hidden.into_iter().filter(|(by, _)| by.is_none_or(|by| by == at));
                states.extend(known.map(|(_, payload)| State::There(payload, hours)));
                self.by.ids.insert(id.to_owned(), identity);
                if body["buffered"] == true {
                    self.buffered.insert(id.to_owned(), (at, Instant::now()));
                }
            }
            Some((404 | 409 | 503, _)) => {}
            _ => {
                let more: Vec<State> = states.iter().map(moved).collect();
                states.extend(more);
            }
        }
        Ok(())
    }

    /// Pushes a few messages that are due, each under an id of its own; some to the topic that is moved to the one with consumers.
    async fn push(&mut self, at: usize) -> Result<()> {
        let (topic, prefix) = if self.rng.usize(0..ARRIVALS_EACH) == 0 { (ARRIVALS, ARRIVAL) } else { ("orders", "n") };
        let ids: Vec<String> = (0..self.rng.usize(1..8)).map(|n| format!("{prefix}{}-{n}", self.batches)).collect();
        self.batches += 1;
        let messages: Vec<Value> = ids.iter().map(|id| json!({"id": id, "payload": id})).collect();
        let path = format!("/v1/topics/{topic}/messages/batch");
        let answer = self.client(at)?.post(&path, &json!({"messages": messages})).await;
        self.count(answer.as_ref());
        if topic == ARRIVALS {
            ids.iter().for_each(|id| self.exempt.ends_elsewhere(id));
        }
        let Some((_, body)) = answer else { return Ok(()) };
        for (id, result) in ids.into_iter().zip(body["results"].as_array().into_iter().flatten()) {
            self.tell(&id, at, format!("push: {}", result["status"]));
            if matches!(result["status"].as_str(), Some("stored" | "journaled" | "buffered")) {
                self.by.pushes.insert(id, self.brokers[at].identity);
            }
        }
        Ok(())
    }

    /// Moves what arrived to the topic with consumers; answers whether that is all.
    async fn move_arrivals(&mut self, at: usize) -> Result<bool> {
        let path = format!("/v1/topics/{ARRIVALS}/move");
        let answer = self.client(at)?.post(&path, &json!({"to": "orders"})).await;
        self.count(answer.as_ref());
        let arrived = self.by.pushes.keys().filter(|id| id.starts_with(ARRIVAL) && !self.by.acks.contains_key(*id));
        let arrived: Vec<String> = arrived.cloned().collect();
        for id in &arrived {
            self.tell(id, at, format!("moved: {answer:?}"));
        }
        match answer {
            Some((200, body)) => Ok(body["done"] == true),
            // What was moved may be acked before any journal has that it was moved.
            _ => {
                arrived.iter().for_each(|id| self.exempt.perhaps_moved(id));
                Ok(false)
            }
        }
    }

    /// Purges the group. What an owner that did not hear of it has in memory may still be handed out, for as long as its lease
    /// is valid.
    async fn purge(&mut self, at: usize) -> Result<()> {
        let purge = json!({"all": true, "dead_letters": self.rng.bool()});
        let answer = self.client(at)?.post("/v1/topics/orders/groups/default/purge", &purge).await;
        self.count(answer.as_ref());
        let identity = self.brokers[at].identity;
        let is_done = matches!(answer, Some((200, _)));
        if matches!(answer, Some((404 | 503, _))) {
            return Ok(());
        }
        for n in 0..IDS {
            let id = format!("m{n}");
            self.tell(&id, at, format!("purge: {answer:?}"));
            if is_done {
                self.acknowledged(&id, at, State::Gone);
            } else {
                self.states_of(&id).insert(State::Gone);
            }
        }
        self.purged_keys(identity, is_done);
        let open: Vec<String> = self.by.pushes.keys().filter(|id| !self.by.acks.contains_key(*id)).cloned().collect();
        for id in open {
            // Where it is is not known.
            if is_done && !id.starts_with(ARRIVAL) {
                self.exempt.acked_apart(&id);
                self.by.acks.insert(id, identity);
            } else {
                self.perhaps_acked.insert(id);
            }
        }
        Ok(())
    }

    async fn operate(&mut self) -> Result<()> {
        if self.apart.is_none() && self.rng.usize(0..PURGE_EACH) == 0 {
            let Some(at) = self.broker_for(None) else { return Ok(()) };
            self.operations += 1;
            return self.purge(at).await;
        }
        let id = format!("m{}", self.rng.usize(0..IDS));
        let operation = self.rng.usize(0..16);
        let Some(at) = self.broker_for((operation < 6).then_some(&id)) else { return Ok(()) };
        self.operations += 1;
        if operation < 6 {
            self.be_later(&id, at).await?;
        }
        match operation {
            0..3 => self.set(&id, at).await,
            3..5 => self.cancel(&id, at).await,
            5 => self.reschedule(&id, at).await,
            6..8 => self.push(at).await,
            8..10 => self.push_deduped().await,
            10 => self.take_forwarded(at).await,
            11 if self.apart.is_none() => self.ack_later().await,
            12 if self.apart.is_none() => self.move_arrivals(at).await.map(drop),
            13 if self.apart.is_none() => self.delete_dead(at).await,
            _ => self.take(at).await,
        }
    }

    pub(super) async fn pass(&mut self, operations: usize) -> Result<()> {
        for _ in 0..operations {
            self.operate().await?;
        }
        Ok(())
    }

    /// So many operations, or fewer if they take longer than that.
    pub(super) async fn pass_within(&mut self, operations: usize, time: Duration) -> Result<()> {
        let since = Instant::now();
        for _ in 0..operations {
            if since.elapsed() >= time {
                break;
            }
            self.operate().await?;
        }
        Ok(())
    }

    /// Operations that are made for so long.
    pub(super) async fn pass_for(&mut self, time: Duration) -> Result<()> {
        let since = Instant::now();
        eventually_within(time * 100, "the time is over", async || {
            self.operate().await?;
            Ok((since.elapsed() >= time).then_some(()))
        })
        .await
    }

    /// Waits until every broker has nothing buffered and nothing to restore.
    pub(super) async fn settled(&mut self) -> Result<()> {
        let noticed = self.lost_at.is_none_or(|lost_at| lost_at.elapsed() >= NOTICED);
        for (at, broker) in self.brokers.iter().enumerate() {
            let Some(process) = &broker.process else { continue };
            let mut last = None;
            let ready = async || {
                last = process.client.get("/readyz").await;
                let is_ready = |(status, body): &(u16, Value)| *status == 200 && body["status"] == "ready";
                Ok(last.as_ref().is_some_and(is_ready).then_some(()))
            };
            let waited = eventually_within(Duration::from_secs(60), "a broker has nothing left to do", ready).await;
            waited.inspect_err(|_| {
                eprintln!("broker {at} after {:?}: {last:?}", self.faults);
                self.print_logs();
            })?;
        }
        self.hidden.clear();
        self.lost_at = self.lost_at.filter(|_| !noticed);
        Ok(())
    }

    /// What was accepted, and nobody acked.
    fn lost(&self) -> Vec<String> {
        let is_open = |id: &&String| {
            !self.by.acks.contains_key(*id) && !self.perhaps_acked.contains(*id) && !self.exempt.may_be_missing(id)
        };
        self.by.pushes.keys().filter(is_open).cloned().collect()
    }

    pub(super) async fn end(mut self) -> Result<()> {
        self.settled().await?;
        let mut moves = 0;
        while !self.move_arrivals(0).await? {
            moves += 1;
            assert!(moves < QUIET_MAX, "what arrived cannot be moved: {:?}", self.answers);
            self.settled().await?;
        }
        self.delete_dead(0).await?;
        let mut quiet = 0;
        while quiet < 3 * self.brokers.len() || (quiet < QUIET_MAX && !self.lost().is_empty()) {
            let Some(at) = self.broker_for(None) else { break };
            quiet = if self.drain(at).await? == 0 { quiet + 1 } else { 0 };
        }
        self.settled().await?;
        let mut undone = Vec::new();
        for (id, states) in &self.states {
            let found = self.look(id).await?;
            let is_one = states.iter().any(|state| match (state, &found) {
                (State::Gone, None) => true,
                (State::There(payload, hours), Some((there, due))) => payload == there && due.abs_diff(*hours) <= 1,
                _ => false,
            });
            if !is_one && !self.exempt.may_be_anything(id) {
                undone.push(format!("{id} is {found:?}, and not one of {states:?}: {:#?}", self.last_of(id)));
            }
        }
        let dead = self.dead_letters().await?;
        let is_both = |id: &&String| self.by.acks.contains_key(*id) && !self.exempt.may_come_again(id);
        let both: Vec<String> = dead.iter().filter(is_both).cloned().collect();
        let mut lost = self.lost();
        lost.retain(|id| !dead.contains(id) && !self.deduped.is_dead(id, &dead));
        let acknowledged: usize =
            self.answers.iter().filter(|(status, _)| matches!(status, 200..300)).map(|(_, n)| n).sum();
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            self.plan.name,
            self.operations,
            acknowledged + self.by.acks.len(),
            self.by.pushes.len(),
            lost.len(),
            self.again.len(),
            undone.len(),
            self.exempt.count(),
            self.exempt.again,
            self.faults.iter().map(|(fault, n)| format!("{n} {fault}")).collect::<Vec<_>>().join(", "),
        );
        let seed = format!("DWELL_SEED={}", self.seed);
        let wrong = &self.deduped.wrong;
        if !(lost.is_empty() && self.again.is_empty() && undone.is_empty() && both.is_empty() && wrong.is_empty()) {
            self.print_logs();
        }
        let of = |ids: &[String]| ids.iter().take(5).map(|id| (id.clone(), self.last_of(id))).collect::<Vec<_>>();
        assert!(lost.is_empty(), "{seed}, {} lost: {:#?}", lost.len(), of(&lost));
        assert!(self.again.is_empty(), "{seed}, {} again after the ack: {:#?}", self.again.len(), of(&self.again));
        assert!(undone.is_empty(), "{seed}: {undone:#?}");
        assert!(both.is_empty(), "{seed}, {} acked and dead: {:#?}", both.len(), of(&both));
        assert!(wrong.is_empty(), "{seed}, {} in spite of their dedup keys: {:#?}", wrong.len(), of(wrong));
        Ok(())
    }

    /// What the brokers said about losses and silence, and the end of their logs.
    fn print_logs(&self) {
        for said in &self.silent {
            eprintln!("{said}");
        }
        for (at, broker) in self.brokers.iter().enumerate() {
            let log = std::fs::read_to_string(broker.dir.path().join("dwell.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("broker {at}:\n{}", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"));
        }
    }

    /// The last answers about an id.
    fn last_of(&self, id: &str) -> &[String] {
        self.told.get(id).map_or(&[][..], |told| &told[told.len().saturating_sub(8)..])
    }

    /// The payload of a message, and in how many hours it is due.
    async fn look(&self, id: &str) -> Result<Option<(String, u64)>> {
        let client = self.client(0)?;
        let looked =
            async || Ok(client.get(&format!("/v1/topics/orders/messages/{id}")).await.filter(|(s, _)| *s != 503));
        let (status, body) = eventually_within(Duration::from_secs(20), "an answer", looked).await?;
        if status == 404 {
            return Ok(None);
        }
        let due: dwell::model::time::Timestamp =
            body["due_at"].as_str().unwrap_or_default().parse().map_err(|_| Error::bug("a due time"))?;
        let hours = due.since(dwell::platform::clock::Clock::System.now()).as_secs().div_ceil(3_600);
        Ok(Some((body["payload"].as_str().unwrap_or_default().to_owned(), hours)))
    }
}

/// Every other id has a key, which decides its partition.
fn key_of(id: &str) -> Option<String> {
    let n: usize = id.strip_prefix('m')?.parse().ok()?;
    (n % 2 == 1).then(|| format!("key-{n}"))
}

/// Whether an answer says that nothing was done.
fn is_certain(status: u16, answer: &Option<(u16, Value)>) -> bool {
    let item = answer.as_ref().map(|(_, body)| &body["results"][0]["error"]["type"]);
    let unknown = item.and_then(Value::as_str).is_some_and(|kind| kind.contains("outcome-unknown"));
    !unknown && (status == 207 || status == 503 || status == 409)
}
