//! What a deployment does to a server: starts it with its files, makes it follow, gives it effects, tells it about others.

use std::sync::Arc;

use super::Server;
use crate::cluster::ClusterView;
use crate::commands;
use crate::core::Effect;
use crate::persistence::Image;
use crate::replication::{Follower, Role};
use crate::resp::Reply;
use crate::sentinel::SentinelView;
use crate::time::Time;

impl Server {
    /// Reads the files of a start: the run id is another one by now, and so is the replication history.
    pub(crate) fn load(&mut self, image: Image, effects: &[Arc<Effect>], now: Time, loading_us: u64) {
        let mut core = self.at(now);
        core.data = image.data;
        core.is_applying = true;
        effects.iter().flat_map(|effect| &effect.commands).for_each(|words| commands::apply(&mut core, words));
        core.is_applying = false;
        core.effects.clear();
        core.pubsub.outbox.clear();
        // A snapshot says how far the history was; an append-only file does not.
        let offset = if core.files.has_aof() { 0 } else { image.offset };
        core.log.restart(offset);
        core.log.keep();
        core.log.is_kept = false;
        let loaded = core.image();
        core.files.start(loaded);
        core.state.loading_until = (loading_us > 0).then(|| now + loading_us);
    }

    /// What a start finds if the process ends now; nothing of the disk is read any more.
    pub(crate) fn end(&mut self, is_power_lost: bool, random: &mut fastrand::Rng) -> (Image, Vec<Arc<Effect>>) {
        let core = self.core();
        let more = random.usize(..=core.files.unsynced());
        core.files.found(is_power_lost, more)
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.core().is_loading()
    }

    // Following and being followed.

    /// Becomes a replica. Those that wait for others are told, and lose their connection.
    pub(crate) fn follow(&mut self, host: &str, port: u16, now: Time) {
        {
            let mut core = self.at(now);
            core.role = Role::Replica { host: host.to_owned(), port, is_connected: false, since: now };
            core.log.replicas.clear();
        }
        let unblocked = Reply::error(
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        );
        let waiting: Vec<_> =
            self.sessions.iter().filter(|(_, session)| session.blocked.is_some()).map(|(id, _)| *id).collect();
        for id in waiting {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.write(&unblocked);
            }
            self.hang_up(id);
        }
    }

    /// Becomes a primary, with a history of its own from here on.
    pub(crate) fn lead(&mut self, replid: String, now: Time) {
        let mut core = self.at(now);
        if !core.role.is_primary() {
            core.role = Role::Primary;
            core.log.shift(replid);
        }
    }

    pub(crate) fn set_link(&mut self, is_up: bool, now: Time) {
        let mut core = self.at(now);
        if let Role::Replica { is_connected, since, .. } = &mut core.role {
            *is_connected = is_up;
            *since = now;
        }
    }

    /// The name of the history if a replica that is there can go on with it.
    pub(crate) fn continues(&self, replid: &str, offset: u64) -> Option<String> {
        let core = self.core();
        core.log.continues(replid, offset).then(|| core.log.replid.clone())
    }

    pub(crate) fn set_replid(&mut self, replid: &str) {
        replid.clone_into(&mut self.core().log.replid);
    }

    pub(crate) fn keep_effects(&mut self) {
        self.core().log.keep();
    }

    /// Takes over all that a primary has, and forgets what it had.
    pub(crate) fn take_over(&mut self, image: &Image, now: Time) {
        let mut core = self.at(now);
        core.data = image.data.clone();
        core.log.replid.clone_from(&image.replid);
        core.log.keep();
        core.log.restart(image.offset);
        core.files.rewrite(image.clone());
    }

    /// Does what the primary did.
    pub(crate) fn apply(&mut self, effect: &Arc<Effect>, now: Time) {
        {
            let mut core = self.at(now);
            core.is_applying = true;
            effect.commands.iter().for_each(|words| commands::apply(&mut core, words));
            core.is_applying = false;
            core.effects.clear();
            core.log.effects.push_back(effect.clone());
            core.log.offset = effect.offset;
            core.log.trim(0);
            let is_failing = core.state.is_failing;
            core.files.append(effect, now, is_failing);
        }
        self.deliver();
    }

    /// The offset, and the one up to which all is fsynced.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let core = self.core();
        (core.log.offset, if core.files.has_aof() { core.files.synced_offset } else { 0 })
    }

    pub(crate) fn note_follower(&mut self, number: usize, follower: Follower) {
        self.core().log.replicas.insert(number, follower);
    }

    pub(crate) fn hear_follower(&mut self, number: usize, acked: u64, fsynced: u64, now: Time) {
        if let Some(follower) = self.core().log.replicas.get_mut(&number) {
            (follower.acked, follower.fsynced, follower.heard) = (acked, fsynced, now);
        }
    }

    pub(crate) fn forget_follower(&mut self, number: usize) {
        self.core().log.replicas.remove(&number);
    }

    pub(crate) fn trim_effects(&mut self, to: u64) {
        self.core().log.trim(to);
    }

    pub(crate) fn effects_behind(&self, offset: u64) -> Vec<Arc<Effect>> {
        let core = self.core();
        let from = core.log.effects.partition_point(|effect| effect.offset <= offset);
        core.log.effects.iter().skip(from).cloned().collect()
    }

    /// When the first change behind an offset was made.
    pub(crate) fn first_effect_behind(&self, offset: u64) -> Option<Time> {
        let core = self.core();
        let from = core.log.effects.partition_point(|effect| effect.offset <= offset);
        core.log.effects.get(from).map(|effect| effect.at)
    }

    // The others.

    pub(crate) fn set_cluster(&mut self, view: ClusterView) {
        let (me, owners) = (view.me, view.owners.clone());
        self.core().cluster = Some(view);
        self.drop_channels(|slot| owners[usize::from(slot)] != me);
    }

    pub(crate) fn set_cluster_down(&mut self, is_down: bool) {
        if let Some(view) = &mut self.core().cluster {
            view.is_down = is_down;
        }
    }

    pub(crate) fn set_sentinel(&mut self, view: SentinelView) {
        self.core().sentinel = Some(view);
    }

    /// Where a sentinel says that the primary is, if it does not have the decision of this number.
    pub(crate) fn believed(&self, epoch: u64) -> Option<(String, u16)> {
        let core = self.core();
        core.sentinel.as_ref().filter(|view| view.epoch < epoch).map(|view| (view.host.clone(), view.port))
    }

    pub(crate) fn announce(&mut self, channel: &str, message: &str) {
        self.core().pubsub.publish(channel.as_bytes(), message.as_bytes(), false);
        self.deliver();
    }

    /// Tells the listeners of slots that are elsewhere now.
    fn drop_channels(&mut self, is_gone: impl Fn(u16) -> bool) {
        let dropped = self.core().pubsub.drop_shards(|channel| is_gone(crate::cluster::slot_of(channel)));
        for (channel, id) in dropped {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.shard_subscriptions = session.shard_subscriptions.saturating_sub(1);
                let count = Reply::count(session.shard_subscriptions);
                session.write(&Reply::Push(vec![Reply::bulk("sunsubscribe"), Reply::Bulk(channel), count]));
                self.ready.insert(id);
            }
        }
    }

    // Keys that move to another node.

    pub(crate) fn keys_of_slot(&self, slot: u16, most: usize) -> Vec<Vec<u8>> {
        let core = self.core();
        let keys = core.data.iter().map(|(key, _)| key).filter(|key| crate::cluster::slot_of(key) == slot);
        keys.take(most).map(|key| key.to_vec()).collect()
    }

    /// Gives a key away: its content as RESTORE takes it, and when it expires, milliseconds since 1970 or 0.
    pub(crate) fn give(&mut self, key: &[u8], now: Time) -> Option<(Vec<u8>, u64)> {
        let content = {
            let mut core = self.at(now);
            let expires_ms = core.entry(key)?.expires_ms.unwrap_or(0);
            let Reply::Bulk(dump) = commands::dump_of(&mut core, key) else { return None };
            (dump.to_vec(), expires_ms)
        };
        self.command(&[b"DEL", key], now);
        Some(content)
    }

    pub(crate) fn receive_key(&mut self, key: &[u8], content: &(Vec<u8>, u64), now: Time) {
        let expires = content.1.to_string();
        self.command(&[b"RESTORE", key, expires.as_bytes(), &content.0, b"REPLACE", b"ABSTTL"], now);
    }
}
