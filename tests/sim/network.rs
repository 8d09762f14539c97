//! The network between brokers and the nodes of Redis: bytes take time, links are cut, and what was sent may come late.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use dwell::app::engine::{Dialer, Stream};
use dwell_simulated_redis::{ConnectionId, Deployment, NodeId, Time};
use tokio::sync::oneshot;

use crate::lock;
use crate::pipe::{End, Pipe};

/// How long a parcel of a cut link waits before it is tried again, microseconds.
const AGAIN: u64 = 20_000;
/// One way between a broker and a node takes so long, microseconds.
const DELAY: std::ops::Range<u64> = 100..1_500;

/// What brokers ask the network for.
#[derive(Clone, Default)]
pub(crate) struct Dials(Arc<Mutex<Vec<Dial>>>);

struct Dial {
    broker: usize,
    host: String,
    port: u16,
    answer: oneshot::Sender<io::Result<Pipe>>,
}

impl Dials {
    /// How a broker opens connections to Redis.
    pub(crate) fn dialer(&self, broker: usize) -> Dialer {
        let dials = self.clone();
        Dialer::new(move |host, port| {
            let (answer, answered) = oneshot::channel();
            let dial = Dial { broker, host, port, answer };
            lock(&dials.0).push(dial);
            Box::pin(async move {
                let pipe = answered.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))??;
                Ok(Box::new(pipe.broker_end()) as Box<dyn Stream>)
            })
        })
    }

    fn take(&self) -> Vec<Dial> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Which way of a link is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    /// Requests come, replies do not.
    Replies,
    Requests,
}

pub(crate) struct Network {
    dials: Dials,
    random: fastrand::Rng,
    streams: BTreeMap<u64, Connected>,
    by_connection: BTreeMap<ConnectionId, u64>,
    last_stream: u64,
    /// What is on its way, by when it arrives and in which order it was sent.
    on_the_way: BTreeMap<(Time, u64), Parcel>,
    sent: u64,
    cuts: BTreeMap<(usize, NodeId), Way>,
    /// Added to each way from and to a broker.
    slow_us: BTreeMap<usize, u64>,
}

struct Connected {
    broker: usize,
    node: NodeId,
    connection: ConnectionId,
    pipe: Pipe,
    /// Nothing overtakes on one stream.
    requests_until: Time,
    replies_until: Time,
    is_left: bool,
}

enum Parcel {
    Dial(Dial),
    Request(u64, Vec<u8>),
    Leave(u64),
    Reply(u64, Vec<u8>),
    End(u64, End),
}

impl Parcel {
    /// The stream that it belongs to, and whether it goes to the broker.
    fn stream(&self) -> Option<(u64, bool)> {
        match self {
            Parcel::Dial(_) => None,
            Parcel::Request(id, _) | Parcel::Leave(id) => Some((*id, false)),
            Parcel::Reply(id, _) | Parcel::End(id, _) => Some((*id, true)),
        }
    }
}

impl Network {
    pub(crate) fn new(seed: u64) -> Network {
        Network {
            dials: Dials::default(),
            random: fastrand::Rng::with_seed(seed),
            streams: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            last_stream: 0,
            on_the_way: BTreeMap::new(),
            sent: 0,
            cuts: BTreeMap::new(),
            slow_us: BTreeMap::new(),
        }
    }

    pub(crate) fn dials(&self) -> Dials {
        self.dials.clone()
    }

    pub(crate) fn cut(&mut self, broker: usize, node: NodeId, way: Way) {
        self.cuts.insert((broker, node), way);
    }

    /// Everything passes again. What was held comes now.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.slow_us.clear();
    }

    pub(crate) fn heal_link(&mut self, broker: usize, node: NodeId) {
        self.cuts.remove(&(broker, node));
    }

    pub(crate) fn slow(&mut self, broker: usize, us: u64) {
        match us {
            0 => self.slow_us.remove(&broker),
            _ => self.slow_us.insert(broker, us),
        };
    }

    /// Resets the connections of a broker: what is on its way to the nodes comes or not, and no reply does.
    pub(crate) fn reset(&mut self, broker: usize, with_requests: bool, now: Time) {
        let streams = self.streams.iter().filter(|(_, there)| there.broker == broker);
        let streams: Vec<(u64, Time)> = streams.map(|(id, there)| (*id, there.requests_until)).collect();
        for (id, requests_until) in streams {
            self.on_the_way.retain(|_, parcel| match parcel {
                Parcel::Request(of, _) => *of != id || with_requests,
                Parcel::Reply(of, _) => *of != id,
                _ => true,
            });
            if let Some(there) = self.streams.get(&id) {
                there.pipe.end(End::Reset);
            }
            // The node notices behind the requests.
            self.send(if with_requests { requests_until.max(now) } else { now }, 0, Parcel::Leave(id));
        }
    }

    /// What a broker has sent since it was collected last never left its machine.
    pub(crate) fn lose(&mut self, broker: usize) {
        for there in self.streams.values().filter(|there| there.broker == broker) {
            drop(there.pipe.take_sent());
        }
    }

    fn is_cut(&self, broker: usize, node: NodeId, is_reply: bool) -> bool {
        match self.cuts.get(&(broker, node)) {
            None => false,
            Some(Way::Both) => true,
            Some(Way::Replies) => is_reply,
            Some(Way::Requests) => !is_reply,
        }
    }

    fn send(&mut self, now: Time, after: u64, parcel: Parcel) {
        self.sent += 1;
        self.on_the_way.insert((now + after, self.sent), parcel);
    }

    fn delay(&mut self, broker: usize) -> u64 {
        let slow = self.slow_us.get(&broker).copied().unwrap_or(0);
        self.random.u64(DELAY) + if slow > 0 { self.random.u64(0..slow) } else { 0 }
    }

    /// Takes what the brokers have sent until now.
    pub(crate) fn collect(&mut self, now: Time) {
        for dial in self.dials.take() {
            let delay = self.delay(dial.broker);
            self.send(now, delay, Parcel::Dial(dial));
        }
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(there) = self.streams.get(&id) else { continue };
            let (broker, bytes, is_left) = (there.broker, there.pipe.take_sent(), there.pipe.is_left());
            let leaves = is_left && !there.is_left;
            if bytes.is_empty() && !leaves {
                continue;
            }
            let delay = self.delay(broker);
            let Some(there) = self.streams.get_mut(&id) else { continue };
            let at = (now + delay).max(there.requests_until);
            there.requests_until = at;
            there.is_left = is_left;
            if !bytes.is_empty() {
                self.send(at, 0, Parcel::Request(id, bytes));
            }
            if leaves {
                self.send(at, 0, Parcel::Leave(id));
            }
        }
    }

    /// When something arrives next, if anything is on its way.
    pub(crate) fn next_event(&self) -> Option<Time> {
        self.on_the_way.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything arrive that is due, and the nodes of Redis answer.
    pub(crate) fn step(&mut self, deployment: &mut Deployment, now: Time) {
        loop {
            let arrival = self.next_event().filter(|at| *at <= now);
            let event = deployment.next_event().filter(|at| *at <= now);
            match (arrival, event) {
                (None, None) => break,
                (arrival, Some(event)) if arrival.is_none_or(|at| event < at) => {
                    deployment.tick(event);
                    self.take_replies(deployment, event);
                }
                _ => {
                    let Some(((at, _), parcel)) = self.on_the_way.pop_first() else { break };
                    self.arrive(deployment, at, parcel);
                    self.take_replies(deployment, at);
                }
            }
        }
        deployment.tick(now);
        self.take_replies(deployment, now);
    }

    fn take_replies(&mut self, deployment: &mut Deployment, now: Time) {
        for connection in deployment.take_ready() {
            let Some(&id) = self.by_connection.get(&connection) else { continue };
            let (bytes, is_closed) = (deployment.take_output(connection), deployment.is_closed(connection));
            let Some(broker) = self.streams.get(&id).map(|there| there.broker) else { continue };
            let delay = self.delay(broker);
            let Some(there) = self.streams.get_mut(&id) else { continue };
            let at = (now + delay).max(there.replies_until);
            there.replies_until = at;
            if !bytes.is_empty() {
                self.send(at, 0, Parcel::Reply(id, bytes));
            }
            if is_closed {
                self.send(at, 0, Parcel::End(id, End::Closed));
            }
        }
    }

    fn arrive(&mut self, deployment: &mut Deployment, at: Time, parcel: Parcel) {
        if let Some((id, is_reply)) = parcel.stream()
            && self.streams.get(&id).is_some_and(|there| self.is_cut(there.broker, there.node, is_reply))
        {
            return self.hold((id, is_reply), at + AGAIN, parcel);
        }
        match parcel {
            Parcel::Dial(dial) => self.connect(deployment, at, dial),
            Parcel::Request(id, bytes) => {
                if let Some(there) = self.streams.get(&id) {
                    deployment.receive(there.connection, &bytes, at);
                }
            }
            Parcel::Reply(id, bytes) => {
                if let Some(there) = self.streams.get(&id) {
                    there.pipe.deliver(&bytes);
                }
            }
            Parcel::Leave(id) => self.close(deployment, id, None),
            Parcel::End(id, end) => self.close(deployment, id, Some(end)),
        }
    }

    fn connect(&mut self, deployment: &mut Deployment, at: Time, dial: Dial) {
        let Some(node) = deployment.node_at(&dial.host, dial.port) else {
            let _ = dial.answer.send(Err(io::ErrorKind::NotFound.into()));
            return;
        };
        if self.cuts.contains_key(&(dial.broker, node)) {
            if !dial.answer.is_closed() {
                self.send(at, AGAIN, Parcel::Dial(dial));
            }
            return;
        }
        match deployment.connect(node, at) {
            Some(connection) => self.open(dial, node, connection, at),
            None => {
                let _ = dial.answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
            }
        }
    }

    /// A stream is over, by the broker or as it is told.
    fn close(&mut self, deployment: &mut Deployment, id: u64, end: Option<End>) {
        if let Some(there) = self.streams.remove(&id) {
            if let Some(end) = end {
                there.pipe.end(end);
            }
            self.by_connection.remove(&there.connection);
            deployment.close(there.connection);
        }
    }

    fn open(&mut self, dial: Dial, node: NodeId, connection: ConnectionId, at: Time) {
        let pipe = Pipe::default();
        if dial.answer.send(Ok(pipe.clone())).is_err() {
            // Nobody waits for it any more: the stream ends as it begins.
            drop(pipe.broker_end());
        }
        self.last_stream += 1;
        self.by_connection.insert(connection, self.last_stream);
        let there = Connected {
            broker: dial.broker,
            node,
            connection,
            pipe,
            requests_until: at,
            replies_until: at,
            is_left: false,
        };
        self.streams.insert(self.last_stream, there);
    }

    /// Keeps a parcel of a cut link; what comes behind it on the same stream waits behind it.
    fn hold(&mut self, (id, is_reply): (u64, bool), at: Time, parcel: Parcel) {
        let places = self.on_the_way.iter().filter(|(_, other)| other.stream() == Some((id, is_reply)));
        let behind: Vec<(Time, u64)> = places.map(|(place, _)| *place).collect();
        let held: Vec<Parcel> = behind.iter().filter_map(|place| self.on_the_way.remove(place)).collect();
        for parcel in std::iter::once(parcel).chain(held) {
            self.send(at, 0, parcel);
        }
        if let Some(there) = self.streams.get_mut(&id) {
            match is_reply {
                true => there.replies_until = there.replies_until.max(at),
                false => there.requests_until = there.requests_until.max(at),
            }
        }
    }
}
