//! A Redis Cluster: which node has which slot, and a connection to each.
//!
//! Each node has its own connection, failures and history: when one is unavailable only its partitions
//! wait. An answer that a call belongs elsewhere (MOVED, ASK) is certain not to have applied it, so the call goes there.
//! A partition that is half moved (TRYAGAIN) is waited for as long as a call may take.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Cmd, Value};
use tokio::sync::watch;

use super::RedisOptions;
use super::address::Address;
use super::confirmed::Confirmation;
use super::connection::{Connection, ConnectionOptions};
use super::failure::{self, Redirect};
use super::info::{History, LastSeen, Losses, Note};
use super::keys::{Keys, SLOTS, slot_of_command, slot_of_key};
use super::scripts::{Reply, Script, ScriptCall, maybe_text};
use super::sentinel::{Parts, PrimaryDiscovery};
use crate::model::error::{Error, Result};
use crate::model::spelling::counted;
use crate::platform::clock::{Clock, Instant};
use crate::store::NodeMemory;

const HOPS_MAX: u32 = 5;

/// The pause before a call to a partition that is half moved is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The span within which the map is not asked for again.
const MAP_LASTS: Duration = Duration::from_millis(100);

type Node = (String, u16);

pub(super) struct Cluster {
    seeds: Vec<Address>,
    options: ConnectionOptions,
    keys: Keys,
    clock: Clock,
    began: Instant,
    losses: Losses,
    map: Mutex<Map>,
    places: watch::Sender<BTreeSet<String>>,
    /// When the map was asked for last. Held while it is.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Map {
    ranges: Vec<Range>,
    /// With the slot in which the history of each is kept.
    nodes: HashMap<Node, (u16, Arc<Connection>)>,
    /// Each node as it was met last, also those that have no slots any more.
    met: HashMap<Node, LastSeen>,
    is_known: bool,
}

/// Slots of one node, the first and the last among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) node: Node,
}

#[derive(Clone, Copy)]
enum Request<'a> {
    Script(&'a ScriptCall),
    Command(&'a Cmd),
}

impl Map {
    fn node_of(&self, slot: u16) -> Option<Node> {
        self.ranges.iter().find(|range| (range.first..=range.last).contains(&slot)).map(|range| range.node.clone())
    }

    fn has(&self, node: &Node, slot: u16) -> bool {
        self.node_of(slot).as_ref() == Some(node)
    }
}

impl Cluster {
    pub(super) fn new(
        options: &RedisOptions,
        parts: &Parts<'_>,
        (connection_options, keys, clock, losses): (ConnectionOptions, Keys, Clock, Losses),
    ) -> Result<Cluster> {
        let Parts { scheme, login, .. } = parts;
        let seed = |host: &&str| Address::new(options, &format!("{scheme}://{login}{host}"));
        let seeds = parts.hosts.iter().map(seed).collect::<Result<_>>()?;
        let began = clock.instant();
        Ok(Cluster {
            seeds,
            options: connection_options,
            keys,
            clock,
            began,
            losses,
            map: Mutex::default(),
            places: watch::Sender::default(),
            asked: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(super) fn confirmation(&self) -> Confirmation {
        self.options.confirmation
    }

    pub(super) fn location(&self) -> String {
        let seeds: Vec<_> = self.seeds.iter().map(Address::location).collect();
        format!("cluster at {}", seeds.join(", "))
    }

    pub(super) fn durability(&self) -> Option<String> {
        let mut durabilities: Vec<_> = self.nodes().iter().filter_map(|node| Some(node.info()?.durability())).collect();
        let reached = durabilities.len();
        durabilities.sort();
        durabilities.dedup();
        (reached > 0).then(|| format!("{}: {}", counted(reached, "node"), durabilities.join(" · ")))
    }

    pub(super) async fn look_at_memory(&self) {
        join_all(self.nodes().iter().map(|node| node.look_at_memory())).await;
    }

    pub(super) fn memory(&self) -> Vec<NodeMemory> {
        self.nodes().iter().filter_map(|node| Some(node.info()?.memory)).collect()
    }

    /// Connects in advance; answers why that failed. Errors: `Invalid` when a node must not be used.
    pub(super) async fn try_now(&self) -> Result<Option<Error>> {
        let looked = self.look(Clock::System.instant()).await.err();
        let tried: Vec<_> =
            join_all(self.nodes().iter().map(|node| node.try_now())).await.into_iter().collect::<Result<_>>()?;
        Ok(looked.or(tried.into_iter().flatten().next()))
    }

    pub(super) async fn subscribe(&self, place: &str, sink: impl AsyncPushSender) -> Result<MultiplexedConnection> {
        let gone = || Error::unavailable(format!("{place} is no node of the cluster any more"));
        let node = self.nodes().into_iter().find(|node| node.place().location() == place).ok_or_else(gone)?;
        node.subscribe(sink).await
    }

    /// Where the nodes are. Changes when a slot is moved, too.
    pub(super) fn places(&self) -> watch::Receiver<BTreeSet<String>> {
        self.places.subscribe()
    }

    pub(super) fn place_of(&self, key: &str) -> String {
        let map = self.map();
        let connection = map.node_of(slot_of_key(key.as_bytes())).and_then(|node| map.nodes.get(&node));
        connection.map_or(String::new(), |(_, connection)| connection.place().location())
    }

    pub(super) async fn look_again(&self) {
        let _ = self.look(Clock::System.instant()).await;
    }

    pub(super) async fn eval(&self, call: &ScriptCall) -> Result<Value> {
        self.send(Request::Script(call)).await
    }

    pub(super) async fn call(&self, command: &Cmd) -> Result<Value> {
        self.send(Request::Command(command)).await
    }

    /// Calls a script many times, in one write for each node; each call is answered for itself.
    pub(super) async fn eval_all(&self, script: &'static Script, calls: Vec<ScriptCall>) -> Vec<Result<Value>> {
        let count = calls.len();
        let mut groups: HashMap<Option<Node>, (Vec<usize>, Vec<ScriptCall>)> = HashMap::new();
        for (index, call) in calls.into_iter().enumerate() {
            let slot = slot_of_command(&call.command).unwrap_or_default();
            let group = groups.entry(self.map().node_of(slot)).or_default();
            group.0.push(index);
            group.1.push(call);
        }
        let answered = groups.into_iter().map(async |(node, (indexes, calls))| {
            let known = node.and_then(|node| self.map().nodes.get(&node).map(|(_, connection)| connection.clone()));
            let mut answers = match known {
                Some(connection) => connection.eval_all(script, &calls).await,
                // Each finds its way alone, and makes it known.
                None => calls.iter().map(|_| Err(failure::nowhere())).collect(),
            };
            for (answer, call) in answers.iter_mut().zip(&calls) {
                if failure::redirect(answer).is_some() {
                    *answer = self.eval(call).await;
                }
            }
            indexes.into_iter().zip(answers).collect::<Vec<_>>()
        });
        let mut answers: Vec<(usize, Result<Value>)> = join_all(answered).await.into_iter().flatten().collect();
        answers.sort_by_key(|(index, _)| *index);
        debug_assert_eq!(answers.len(), count);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn send(&self, request: Request<'_>) -> Result<Value> {
        let command = match request {
            Request::Script(call) => &call.command,
            Request::Command(command) => command,
        };
        // A command without a key may go to any node.
        let slot = slot_of_command(command).unwrap_or_default();
        let (began, mut hops) = (Clock::System.instant(), 0);
        let (mut node, mut asking) = (self.node_of(slot).await?, false);
        loop {
            let connection = self.connection(&node, slot);
            let answer = match request {
                Request::Script(call) if asking => connection.asking_call(call).await,
                Request::Command(command) if asking => connection.asking(command).await,
                Request::Script(call) => connection.eval(call).await,
                Request::Command(command) => connection.call(command).await,
            };
            hops += 1;
            match failure::redirect(&answer) {
                Some(Redirect::Again) if Clock::System.instant().since(began) < self.options.timeout => {
                    Clock::System.sleep(AGAIN_AFTER).await;
                    (node, asking, hops) = (self.node_of(slot).await?, false, 0);
                }
                Some(Redirect::Moved(host, port)) if hops < HOPS_MAX => {
                    // Where it went counts, whether the map knows it by now or not.
                    let _ = self.look(began).await;
                    (node, asking) = (elsewhere(&node, host, port), false);
                }
                Some(Redirect::Ask(host, port)) if hops < HOPS_MAX => {
                    (node, asking) = (elsewhere(&node, host, port), true);
                }
                _ => {
                    let failed = |error: &Error| error.is_outage();
                    if answer.as_ref().is_err_and(failed) {
                        // Another one may be the primary of this slot by now.
                        let _ = self.look(Clock::System.instant()).await;
                    }
                    return answer;
                }
            }
        }
    }

    async fn node_of(&self, slot: u16) -> Result<Node> {
        if let Some(node) = self.map().node_of(slot) {
            return Ok(node);
        }
        self.look(Clock::System.instant()).await?;
        let missing = || Error::unavailable(format!("no node of the cluster has slot {slot}; look at `CLUSTER INFO`"));
        self.map().node_of(slot).ok_or_else(missing)
    }

    fn connection(&self, node: &Node, slot: u16) -> Arc<Connection> {
        let mut map = self.map();
        if let Some((_, connection)) = map.nodes.get(node) {
            return connection.clone();
        }
        let slot = map.ranges.iter().find(|range| range.node == *node).map_or(slot, |range| range.first);
        // A node that comes later may be one of before, at another address and without what it had.
        let is_later = map.is_known;
        let met = map.met.entry(node.clone()).or_insert_with(|| LastSeen::new(is_later)).clone();
        let note = Note::of_node(&self.keys, slot, self.began);
        let history = History::new(self.keys.clone(), self.clock.clone(), note, met, self.losses.clone());
        let place = PrimaryDiscovery::Fixed(self.seeds[0].at(&node.0, node.1));
        let connection = Arc::new(Connection::new(place, self.options.clone(), history));
        map.nodes.insert(node.clone(), (slot, connection.clone()));
        connection
    }

    fn nodes(&self) -> Vec<Arc<Connection>> {
        self.map().nodes.values().map(|(_, connection)| connection.clone()).collect()
    }

    fn map(&self) -> std::sync::MutexGuard<'_, Map> {
        // Nothing panics while the lock is held; if it did, the next look would repair it.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks which node has which slot, unless somebody did since.
    async fn look(&self, since: Instant) -> Result<()> {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at >= since || Clock::System.instant().since(at) < MAP_LASTS) {
            return Ok(());
        }
        let known = self.nodes().into_iter().filter_map(|node| match node.place() {
            PrimaryDiscovery::Fixed(address) => Some(address.clone()),
            PrimaryDiscovery::Watched(_) => None,
        });
        let asking = known.chain(self.seeds.iter().cloned()).map(|address| Box::pin(self.ask(address)));
        let (ranges, _) = select_ok(asking).await?;
        *asked = Some(Clock::System.instant());
        let mut map = self.map();
        let moved = map.ranges != ranges;
        map.ranges = ranges;
        let kept =
            std::mem::take(&mut map.nodes).into_iter().filter(|(node, (slot, _))| map.has(node, *slot)).collect();
        map.nodes = kept;
        let missing: Vec<_> = map.ranges.iter().map(|range| (range.node.clone(), range.first)).collect();
        drop(map);
        for (node, slot) in missing {
            self.connection(&node, slot);
        }
        self.map().is_known = true;
        let places = self.nodes().iter().map(|node| node.place().location()).collect();
        if moved {
            self.places.send_replace(places);
        }
        Ok(())
    }

    async fn ask(&self, address: Address) -> Result<Vec<Range>> {
        let asked = async {
            let mut connection = address.log_in().await?;
            match connection.send_packed_command(redis::cmd("CLUSTER").arg("SLOTS")).await {
                Ok(Value::ServerError(error)) => Err(failure::of_connecting(&error.into())),
                Ok(answer) => read_ranges(answer, address.host()),
                Err(error) => Err(failure::of_connecting(&error)),
            }
        };
        tokio::select! {
            answer = asked => answer,
            () = Clock::System.sleep(self.options.timeout) => Err(failure::silent()),
        }
    }
}

/// Where a redirection leads to; without a host, to the host that said so.
fn elsewhere(here: &Node, host: String, port: u16) -> Node {
    (if host.is_empty() { here.0.clone() } else { host }, port)
}

/// Reads CLUSTER SLOTS: for each range the primary comes first. A node that does not know its own host omits it.
pub(super) fn read_ranges(answer: Value, host: &str) -> Result<Vec<Range>> {
    Reply::of(answer)?.each(|entries| {
        let mut entry = entries.list()?;
        let slot = |number: u64| u16::try_from(number).unwrap_or(SLOTS);
        let (first, last) = (slot(entry.number()?), slot(entry.number()?));
        let mut primary = entry.list()?;
        let named = maybe_text(primary.value()?)?.filter(|named| !named.is_empty() && named != "?");
        let port = u16::try_from(primary.number()?).unwrap_or_default();
        Ok(Range { first, last, node: (named.unwrap_or_else(|| host.to_owned()), port) })
    })
}
