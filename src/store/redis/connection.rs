//! The connection to Redis: one multiplexed connection, dropped and made anew when it is of no use any more.
//!
//! Retries of the client library are not used: whether a call may be repeated is decided where the call is made.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Mutex, watch};

use super::address::Address;
use super::confirmed::{Confirmation, ConfirmedConnection, Unconfirmed};
use super::histories::{another_process, is_another};
use super::info::{self, History, Info};
use super::scripts::{COMMAND, Script, ScriptCall, text};
use super::sentinel::PrimaryDiscovery;
use super::{RedisOptions, failure};
use crate::model::error::{Error, Result};
use crate::platform::clock::{Clock, Instant};
use crate::telemetry::metrics::Metrics;

/// Timeouts in a row after which a connection counts as half open.
const TIMEOUTS_MAX: u32 = 3;

#[derive(Default)]
struct Current {
    connection: Option<Made>,
    failure: Option<(Instant, Error)>,
}

#[derive(Clone)]
struct Made {
    connection: MultiplexedConnection,
    /// The one for calls that are confirmed, if any are: to the same server, and dropped together with the other one.
    confirmed: Option<ConfirmedConnection>,
    location: String,
    process: Arc<str>,
}

#[derive(Debug, Clone)]
pub(super) struct ConnectionOptions {
    pub(super) timeout: Duration,
    pub(super) allow_eviction: bool,
    pub(super) confirmation: Confirmation,
    pub(super) metrics: Arc<Metrics>,
}

impl ConnectionOptions {
    pub(super) fn of(options: &RedisOptions, metrics: Arc<Metrics>) -> ConnectionOptions {
        let RedisOptions { timeout, allow_eviction, confirmation, .. } = *options;
        ConnectionOptions { timeout, allow_eviction, confirmation, metrics }
    }
}

/// The way to one Redis. It is made when the first call needs it.
pub(super) struct Connection {
    place: PrimaryDiscovery,
    options: ConnectionOptions,
    history: History,
    current: Mutex<Current>,
    info: std::sync::Mutex<Option<Info>>,
    /// Counts connections, so that a failure of an old one does not drop its successor.
    number: watch::Sender<u64>,
    timeouts: AtomicU32,
    /// When each script was loaded last, by its verb, and what came of it.
    loads: Mutex<HashMap<&'static str, (Instant, Result<()>)>>,
}

impl Connection {
    pub(super) fn new(place: PrimaryDiscovery, options: ConnectionOptions, history: History) -> Connection {
        Connection {
            place,
            options,
            history,
            current: Mutex::default(),
            info: std::sync::Mutex::default(),
            number: watch::Sender::new(0),
            timeouts: AtomicU32::new(0),
            loads: Mutex::default(),
        }
    }

    pub(super) fn place(&self) -> &PrimaryDiscovery {
        &self.place
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(super) fn confirmation(&self) -> Confirmation {
        self.options.confirmation
    }

    pub(super) fn info(&self) -> Option<Info> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the Redis that there is a connection to about its memory. One that may delete messages by now is left: the next
    /// connection says why it is not used.
    pub(super) async fn look_at_memory(&self) {
        let made = self.current.lock().await.connection.clone();
        let Some(made) = made else { return };
        let number = *self.number.borrow();
        let answer = self.answer((number, made.connection), redis::cmd("INFO").arg(&["memory", "stats"])).await;
        let Ok(answer) = answer.and_then(text) else { return };
        let unfit = {
            let mut info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(info) = &mut *info else { return };
            info.note_memory(&answer);
            info.check().err()
        };
        if let Some(unfit) = unfit {
            tracing::error!(location = %made.location, error = %unfit, "Redis is not used any more");
            self.drop_connection(number).await;
        }
    }

    /// Connects in advance; answers why that failed. Errors: `Invalid` for a Redis that must not be used.
    pub(super) async fn try_now(&self) -> Result<Option<Error>> {
        let Err(error) = self.connect().await else { return Ok(None) };
        self.info().map_or(Ok(()), |info| info.check())?;
        Ok(Some(error))
    }

    pub(super) async fn subscribe(&self, sink: impl AsyncPushSender) -> Result<MultiplexedConnection> {
        let (mut failure, sink) = (failure::silent(), Arc::new(sink));
        for address in self.place.candidates().await? {
            match address.subscribe(sink.clone()).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Changes with every new connection for calls: announcements come from where it leads to.
    pub(super) fn renewed(&self) -> watch::Receiver<u64> {
        self.number.subscribe()
    }

    /// Leaves the connection there is, unless it leads to this place.
    pub(super) async fn leave_unless_at(&self, location: &str) {
        let mut current = self.current.lock().await;
        if current.connection.take_if(|there| there.location != location).is_some() {
            tracing::warn!(location, "another Redis is the primary now");
        }
    }

    pub(super) async fn eval(&self, call: &ScriptCall) -> Result<Value> {
        let began = Clock::System.instant();
        let mut answer = self.send_call(call).await;
        if failure::is_noscript(&answer) {
            answer = Box::pin(self.load_and_send(call, began)).await;
        }
        self.measure(call.script.verb, began, answer.as_ref().err());
        answer
    }

    async fn load_and_send(&self, call: &ScriptCall, began: Instant) -> Result<Value> {
        self.load_once(call.script, began).await?;
        self.send_call(call).await
    }

    /// Loads a script that was unknown to a call that began then: once for all such calls, which share a failure.
    async fn load_once(&self, script: &Script, began: Instant) -> Result<()> {
        let mut loads = self.loads.lock().await;
        if let Some((_, outcome)) = loads.get(script.verb).filter(|(at, _)| *at >= began) {
            return outcome.clone();
        }
        let outcome = self.load(script).await.map(drop);
        loads.insert(script.verb, (Clock::System.instant(), outcome.clone()));
        outcome
    }

    /// Calls a script many times in one write; each call is answered for itself.
    pub(super) async fn eval_all(&self, script: &'static Script, calls: &[ScriptCall]) -> Vec<Result<Value>> {
        if self.confirms(script) {
            return join_all(calls.iter().map(|call| self.eval(call))).await;
        }
        let began = Clock::System.instant();
        let mut answers = self.send_calls(calls).await;
        if answers.iter().any(failure::is_noscript) && self.load(script).await.is_ok() {
            answers = self.send_calls(calls).await;
        }
        self.measure(script.verb, began, answers.iter().find_map(|answer| answer.as_ref().err()));
        answers
    }

    async fn load(&self, script: &Script) -> Result<Value> {
        self.send(&script.load(), self.connect()).await
    }

    /// Sends calls in one write. Those for another process of Redis are not sent.
    async fn send_calls(&self, calls: &[ScriptCall]) -> Vec<Result<Value>> {
        if calls.is_empty() {
            return Vec::new();
        }
        let (number, made) = match self.connect_to_own().await {
            Ok(connected) => connected,
            Err(error) => return vec![Err(error); calls.len()],
        };
        let commands: Vec<_> = calls.iter().map(|call| call.for_process(&made.process)).collect();
        let mut pipeline = Pipeline::with_capacity(calls.len());
        commands.iter().flatten().for_each(|command| {
            pipeline.add_command(Cmd::clone(command));
        });
        let count = commands.iter().flatten().count();
        let sent = self.pipeline((number, made.connection), &pipeline, count).await;
        self.look_at_name(&sent, number).await;
        let mut sent = sent.into_iter();
        let answer = |is_sent: bool| match is_sent {
            true => sent.next().unwrap_or_else(|| Err(failure::silent())),
            false => Ok(another_process()),
        };
        commands.iter().map(Option::is_some).map(answer).collect()
    }

    /// Calls a node that is getting the slot: it takes the call only after ASKING.
    pub(super) async fn asking_call(&self, call: &ScriptCall) -> Result<Value> {
        let answer = self.ask_once(call).await;
        if !failure::is_noscript(&answer) {
            return answer;
        }
        self.load(call.script).await?;
        self.ask_once(call).await
    }

    async fn ask_once(&self, call: &ScriptCall) -> Result<Value> {
        let (number, made) = self.connect_after(call.losses).await?;
        let Some(command) = call.for_process(&made.process) else { return Ok(another_process()) };
        let answer = match self.confirms(call.script) {
            true => self.confirm((number, made), vec![redis::cmd("ASKING"), command.into_owned()]).await,
            false => self.after_asking((number, made.connection), &command).await,
        };
        self.look_at_name(std::slice::from_ref(&answer), number).await;
        answer
    }

    /// Sends a command behind `ASKING`, to a node that is about to get the slot.
    pub(super) async fn asking(&self, command: &Cmd) -> Result<Value> {
        let (number, made) = self.connect_to_own().await?;
        self.after_asking((number, made.connection), command).await
    }

    async fn after_asking(&self, connected: (u64, MultiplexedConnection), command: &Cmd) -> Result<Value> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        self.pipeline(connected, &pipeline, 2).await.into_iter().next_back().unwrap_or_else(|| Err(failure::silent()))
    }

    fn measure(&self, verb: &str, began: Instant, error: Option<&Error>) {
        let took = Clock::System.instant().since(began);
        self.options.metrics.store.call(verb, took, error.map(Error::kind));
    }

    pub(super) async fn call(&self, command: &Cmd) -> Result<Value> {
        self.measured(command, self.connect_to_own()).await
    }

    /// Asks whichever store answers, also another one than calls are for.
    pub(super) async fn ask_any(&self, command: &Cmd) -> Result<Value> {
        self.measured(command, self.connect()).await
    }

    async fn measured(&self, command: &Cmd, connecting: impl Future<Output = Result<(u64, Made)>>) -> Result<Value> {
        let began = Clock::System.instant();
        let answer = self.send(command, connecting).await;
        self.measure(COMMAND, began, answer.as_ref().err());
        answer
    }

    fn confirms(&self, script: &Script) -> bool {
        script.is_confirmed && self.options.confirmation.is_needed()
    }

    async fn send_call(&self, call: &ScriptCall) -> Result<Value> {
        let (number, made) = self.connect_after(call.losses).await?;
        let Some(command) = call.for_process(&made.process) else { return Ok(another_process()) };
        let answer = match self.confirms(call.script) {
            true => Box::pin(self.confirm((number, made), vec![command.into_owned()])).await,
            false => self.answer((number, made.connection), &command).await,
        };
        self.look_at_name(std::slice::from_ref(&answer), number).await;
        answer
    }

    /// Looks at the name of the process if one of these calls met another history than it named.
    async fn look_at_name(&self, answers: &[Result<Value>], number: u64) {
        if answers.iter().any(|answer| answer.as_ref().is_ok_and(is_another)) {
            Box::pin(self.leave_if_renamed(number)).await;
        }
    }

    /// Leaves a connection that was made to a process of another name than it has by now: with newer connections other brokers say that name,
    /// and each would end the histories of the other one in turn, call by call.
    async fn leave_if_renamed(&self, number: u64) {
        let made = self.current.lock().await.connection.clone();
        let Some(made) = made.filter(|_| *self.number.borrow() == number) else { return };
        let answer = self.answer((number, made.connection), redis::cmd("INFO").arg(&["server", "replication"])).await;
        if let Ok(answer) = answer.and_then(text)
            && info::process_in(&answer) != made.process
        {
            tracing::info!(location = %made.location, "Redis has another replication id: a new connection is made");
            self.drop_connection(number).await;
        }
    }

    /// Calls commands, of which the last one is answered once enough servers have what they changed.
    async fn confirm(&self, (number, made): (u64, Made), commands: Vec<Cmd>) -> Result<Value> {
        let confirmed = made.confirmed.ok_or_else(|| Error::bug("a connection that confirms nothing"))?;
        match confirmed.call(commands).await {
            Ok(Value::ServerError(error)) => Err(self.failed(number, error.into()).await),
            Ok(value) => {
                self.answered();
                Ok(value)
            }
            Err(Unconfirmed::TooFew(error)) => Err(error),
            Err(Unconfirmed::Failed(error)) => {
                // A primary that refuses to wait is none any more.
                self.drop_connection(number).await;
                let error = self.failed(number, error).await;
                // The call in front may have been applied.
                Err(if error.is_outage() { Error::outcome_unknown(error.detail().to_owned()) } else { error })
            }
        }
    }

    async fn send(&self, command: &Cmd, connecting: impl Future<Output = Result<(u64, Made)>>) -> Result<Value> {
        let connected = {
            let (number, made) = connecting.await?;
            (number, made.connection)
        };
        self.answer(connected, command).await
    }

    async fn answer(&self, (number, mut connection): (u64, MultiplexedConnection), command: &Cmd) -> Result<Value> {
        let error = match connection.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => error.into(),
            Ok(value) => {
                self.answered();
                return Ok(value);
            }
            Err(error) => error,
        };
        Err(Box::pin(self.failed(number, error)).await)
    }

    async fn pipeline(
        &self,
        (number, mut connection): (u64, MultiplexedConnection),
        pipeline: &Pipeline,
        count: usize,
    ) -> Vec<Result<Value>> {
        if count == 0 {
            return Vec::new();
        }
        match connection.send_packed_commands(pipeline, 0, count).await {
            Ok(values) => {
                self.answered();
                let mut answers = Vec::with_capacity(values.len());
                for value in values {
                    answers.push(match value {
                        Value::ServerError(error) => Err(self.failed(number, error.into()).await),
                        value => Ok(value),
                    });
                }
                answers
            }
            Err(error) => vec![Err(self.failed(number, error).await); count],
        }
    }

    /// A connection to a Redis that was suspected of so many losses. It leads to the same Redis until it breaks, so
    /// what is true before the call is sent stays true.
    async fn connect_after(&self, losses: Option<u64>) -> Result<(u64, Made)> {
        let connected = self.connect_to_own().await?;
        if losses.is_some_and(|losses| losses != self.history.losses()) {
            return Err(Error::unavailable("Redis may have lost data: what it lost is restored first"));
        }
        Ok(connected)
    }

    /// A connection to the store that calls are for.
    async fn connect_to_own(&self) -> Result<(u64, Made)> {
        let connected = self.connect().await?;
        self.history.belonging().check()?;
        Ok(connected)
    }

    pub(super) fn accept(&self, store: &str) {
        self.history.belonging().accept(store);
    }

    async fn connect(&self) -> Result<(u64, Made)> {
        let began = Clock::System.instant();
        let mut current = self.current.lock().await;
        if let Some(made) = &current.connection {
            return Ok((*self.number.borrow(), made.clone()));
        }
        // A caller that waited while another one tried shares its failure: one by one they would wait for many
        // timeouts.
        if let Some((_, error)) = current.failure.as_ref().filter(|(at, _)| *at >= began) {
            return Err(error.clone());
        }
        // Thousands of calls wait at the same time, and few of them make a connection.
        let made = match Box::pin(self.open()).await {
            Ok(made) => made,
            Err(error) => {
                let error = self.note(error);
                current.failure = Some((Clock::System.instant(), error.clone()));
                return Err(error);
            }
        };
        current.connection = Some(made.clone());
        self.timeouts.store(0, Ordering::Relaxed);
        self.options.metrics.store.up.set(1);
        self.number.send_modify(|number| *number += 1);
        Ok((*self.number.borrow(), made))
    }

    async fn open(&self) -> Result<Made> {
        let mut failure = failure::silent();
        for address in self.place.candidates().await? {
            match self.open_at(&address).await {
                Ok(made) => return Ok(made),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Looks before the first call whether this Redis will do, and whether it is still the same.
    async fn open_at(&self, address: &Address) -> Result<Made> {
        let (mut connection, login) = address.connect().await?;
        let info = info::greet(&mut connection, &login, self.history.keys(), self.options.confirmation).await?;
        let info = info.at(address.location(), self.options.allow_eviction);
        if self.place.is_watched() && !info.is_primary {
            let place = address.location();
            return Err(Error::unavailable(format!(
                "{place} is a replica, though sentinels say that it is the primary"
            )));
        }
        let before = self.info.lock().unwrap_or_else(PoisonError::into_inner).replace(info.clone());
        if let Some(warning) =
            info.warning().filter(|warning| before.as_ref().and_then(Info::warning) != Some(*warning))
        {
            tracing::warn!(location = %address.location(), error = warning, "Redis may lose what it has answered");
        }
        if let Some(missing) = info.missing_replicas() {
            tracing::warn!(location = %address.location(), error = %missing, "changes are not confirmed");
        }
        info.check().map_err(|unfit| failure::unfit(&unfit))?;
        self.history.look(&mut connection, &info).await.map_err(|error| failure::of_looking(&error))?;
        let confirmed = match self.options.confirmation.is_needed() {
            true => Some(self.open_confirmed(address, &info).await?),
            false => None,
        };
        Ok(Made { connection, confirmed, location: address.location(), process: info.process() })
    }

    async fn open_confirmed(&self, address: &Address, beside: &Info) -> Result<ConfirmedConnection> {
        let (mut connection, login) = address.connect().await?;
        let info = info::greet(&mut connection, &login, self.history.keys(), self.options.confirmation).await?;
        if info.identity != beside.identity {
            let place = address.location();
            return Err(Error::unavailable(format!(
                "two connections to {place} met two servers, or one that restarted"
            )));
        }
        let ConnectionOptions { confirmation, timeout, .. } = self.options;
        let made = ConfirmedConnection::new(connection, confirmation, timeout, &self.history.mark()).await;
        made.map_err(|error| failure::of_looking(&error))
    }

    /// It answers, so neither timeouts nor refusals before this count any more.
    fn answered(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.options.metrics.store.up.set(1);
    }

    async fn failed(&self, number: u64, error: RedisError) -> Error {
        let timed_out = error.is_timeout() && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX;
        let dropped = error.is_unrecoverable_error() || (error.is_io_error() && !error.is_timeout());
        if timed_out || dropped || failure::asks_for_another(&error) {
            self.drop_connection(number).await;
        }
        self.note(failure::of_call(&error))
    }

    async fn drop_connection(&self, number: u64) {
        let mut current = self.current.lock().await;
        if *self.number.borrow() == number {
            current.connection = None;
        }
    }

    /// A Redis that answers with an error is up.
    fn note(&self, error: Error) -> Error {
        if error.is_outage() {
            self.options.metrics.store.up.set(i64::from(failure::is_answer(&error)));
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::super::info::{LastSeen, Losses, Note};
    use super::super::keys::Keys;
    use super::*;

    #[tokio::test]
    async fn waiting_callers_share_a_connection_failure() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("redis.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&path)?;
        let timeout = Duration::from_millis(100);
        let options = RedisOptions { timeout, ..RedisOptions::new(format!("redis+unix://{}", path.display())) };
        let place = PrimaryDiscovery::new(&options)?;
        let connection_options = ConnectionOptions::of(&options, Arc::new(Metrics::new()?));
        let keys = Keys::new("dwell");
        let connection = Connection::new(
            place,
            connection_options,
            History::new(keys.clone(), Clock::System, Note::of_all(&keys), LastSeen::new(false), Losses::default()),
        );
        let ping = redis::cmd("PING");
        let began = Clock::System.instant();
        let answers = join_all((0..30).map(|_| connection.call(&ping))).await;
        let took = Clock::System.instant().since(began);
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.is_outage())));
        assert!(took < timeout * 5, "{took:?}");
        Ok(())
    }
}
