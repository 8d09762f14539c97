//! What INFO answers: the fields that dwell, its doctor and its tests read.

use std::fmt::Write;

use crate::core::Core;
use crate::replication::Role;

const SECTIONS: [&str; 10] =
    ["server", "clients", "memory", "persistence", "stats", "replication", "cpu", "errorstats", "cluster", "keyspace"];

/// The sections that are asked for, or the usual ones.
pub(crate) fn text(core: &mut Core, asked: &[&[u8]]) -> String {
    let asked: Vec<String> = asked.iter().map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
    let has = |name: &str| asked.iter().any(|word| word == name);
    let is_usual = asked.is_empty() || has("default") || has("all") || has("everything");
    let mut text = String::new();
    for name in SECTIONS {
        if is_usual || has(name) {
            add(core, name, &mut text);
        }
    }
    if has("commandstats") || has("all") || has("everything") {
        add(core, "commandstats", &mut text);
    }
    text
}

fn add(core: &mut Core, section: &str, text: &mut String) {
    if !text.is_empty() {
        text.push_str("\r\n");
    }
    let mut title = section.to_owned();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(text, "{name}:{value}\r\n");
    };
    line(&format!("# {title}"), &"");
    match section {
        "server" => server(core, &mut line),
        "clients" => {
            line("connected_clients", &core.clients);
            line("maxclients", &core.config.maxclients);
            line("blocked_clients", &0);
        }
        "memory" => memory(core, &mut line),
        "persistence" => persistence(core, &mut line),
        "stats" => {
            line("total_connections_received", &core.stats.connections);
            line("total_commands_processed", &core.stats.commands);
            line("rejected_connections", &0);
            line("expired_keys", &core.stats.expired);
            line("evicted_keys", &0);
            line("total_error_replies", &core.stats.errors);
            line("pubsub_channels", &core.pubsub.counts().0);
            line("pubsub_patterns", &core.pubsub.counts().1);
            line("pubsubshard_channels", &core.pubsub.counts().2);
            line("latest_fork_usec", &500);
        }
        "replication" => replication(core, &mut line),
        "cpu" => {
            line("used_cpu_sys", &"0.000000");
            line(
                "used_cpu_user",
                &format!("{}.{:06}", core.stats.commands / 1_000_000, core.stats.commands % 1_000_000),
            );
        }
        "cluster" => line("cluster_enabled", &u8::from(core.cluster.is_some())),
        "keyspace" if core.data.len() > 0 => {
            let (keys, expires) = (core.data.len(), core.data.expiring());
            line("db0", &format!("keys={keys},expires={expires},avg_ttl=0"));
        }
        "commandstats" => {
            for (name, calls) in &core.stats.calls {
                let name = name.to_lowercase();
                let stats = "usec_per_call=1.00,rejected_calls=0,failed_calls=0";
                line(&format!("cmdstat_{name}"), &format!("calls={calls},usec={calls},{stats}"));
            }
        }
        _ => {}
    }
    // The title of a section is a line without a value.
    if let Some(at) = text.rfind(&format!("# {title}:")) {
        text.remove(at + 2 + title.len());
    }
}

type Line<'a> = dyn FnMut(&str, &dyn std::fmt::Display) + 'a;

fn server(core: &Core, line: &mut Line<'_>) {
    line("redis_version", &core.config.version);
    line("redis_mode", &if core.cluster.is_some() { "cluster" } else { "standalone" });
    line("os", &"Linux 6.1.0 x86_64");
    line("arch_bits", &64);
    line("process_id", &1);
    line("run_id", &core.run_id);
    line("tcp_port", &core.config.port);
    line("server_time_usec", &core.now.0);
    line("uptime_in_seconds", &(core.now.since(core.started) / 1_000_000));
    line("uptime_in_days", &(core.now.since(core.started) / 86_400_000_000));
    line("hz", &10);
    line("config_file", &"/etc/redis/redis.conf");
}

fn memory(core: &Core, line: &mut Line<'_>) {
    let (used, most) = (core.used_memory(), core.settings.maxmemory);
    line("used_memory", &used);
    line("used_memory_rss", &(used + used / 4));
    line("used_memory_peak", &used);
    line("used_memory_dataset", &core.data.size());
    line("total_system_memory", &17_179_869_184_u64);
    line("maxmemory", &most);
    line("maxmemory_policy", &"noeviction");
    line("mem_fragmentation_ratio", &"1.25");
}

fn persistence(core: &Core, line: &mut Line<'_>) {
    let status = if core.state.is_failing { "err" } else { "ok" };
    line("loading", &u8::from(core.is_loading()));
    line("async_loading", &0);
    line("rdb_changes_since_last_save", &core.files.changes);
    line("rdb_bgsave_in_progress", &0);
    line("rdb_last_save_time", &(core.files.last_save.0 / 1_000_000));
    line("rdb_last_bgsave_status", &status);
    line("rdb_last_bgsave_time_sec", &0);
    line("aof_enabled", &u8::from(core.files.has_aof()));
    line("aof_rewrite_in_progress", &0);
    line("aof_rewrite_scheduled", &0);
    line("aof_last_bgrewrite_status", &"ok");
    line("aof_last_write_status", &status);
    if core.files.has_aof() {
        line("aof_current_size", &core.files.size());
        line("aof_base_size", &0);
        line("aof_pending_bio_fsync", &0);
        line("aof_delayed_fsync", &0);
    }
}

fn replication(core: &Core, line: &mut Line<'_>) {
    match &core.role {
        Role::Primary => line("role", &"master"),
        Role::Replica { host, port, is_connected, since } => {
            line("role", &"slave");
            line("master_host", host);
            line("master_port", port);
            line("master_link_status", &if *is_connected { "up" } else { "down" });
            line("master_last_io_seconds_ago", &if *is_connected { 0 } else { -1 });
            line("master_sync_in_progress", &0);
            line("slave_read_repl_offset", &core.log.offset);
            line("slave_repl_offset", &core.log.offset);
            if !is_connected {
                line("master_link_down_since_seconds", &(core.now.since(*since) / 1_000_000));
            }
            line("slave_priority", &100);
            line("slave_read_only", &1);
            line("replica_announced", &1);
        }
    }
    let connected: Vec<_> = core.log.replicas.values().filter(|replica| replica.is_connected).collect();
    line("connected_slaves", &connected.len());
    if core.settings.min_replicas > 0 && core.role.is_primary() {
        line("min_slaves_good_slaves", &core.good_replicas());
    }
    for (at, replica) in connected.iter().enumerate() {
        let (host, port, offset) = (&replica.host, replica.port, replica.acked);
        let lag = core.now.since(replica.heard) / 1_000_000;
        line(&format!("slave{at}"), &format!("ip={host},port={port},state=online,offset={offset},lag={lag}"));
    }
    line("master_failover_state", &"no-failover");
    line("master_replid", &core.log.replid);
    line("master_replid2", &core.log.replid2);
    line("master_repl_offset", &core.log.offset);
    line("second_repl_offset", &core.log.offset2);
    line("repl_backlog_active", &u8::from(core.log.is_kept));
    line("repl_backlog_size", &1_048_576);
    line("repl_backlog_first_byte_offset", &1);
    line("repl_backlog_histlen", &core.log.offset);
}
