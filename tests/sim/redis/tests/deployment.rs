//! Several servers and what befalls them, told from the side of a client.

use dwell_simulated_redis::{Config, ConnectionId, Crash, Deployment, Fsync, Layout, NodeId, Time};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const START: Time = Time(1_700_000_000_000_000);
const SECOND: u64 = 1_000_000;

struct World {
    deployment: Deployment,
    now: Time,
}

impl World {
    fn new(layout: Layout, config: &Config) -> World {
        World { deployment: Deployment::new(layout, config, 7, START), now: START }
    }

    /// Lets so many microseconds pass, with all that is due in them.
    fn pass(&mut self, us: u64) {
        let end = self.now + us;
        let mut rounds = 0;
        while let Some(at) = self.deployment.next_event().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.deployment.tick(self.now);
            rounds += 1;
            assert!(rounds < 100_000, "it is never done");
        }
        self.now = end;
        self.deployment.tick(end);
    }

    fn connect(&mut self, node: usize) -> Result<ConnectionId, String> {
        self.deployment.connect(NodeId(node), self.now).ok_or_else(|| "refused".to_owned())
    }

    fn send(&mut self, connection: ConnectionId, line: &str) -> String {
        self.deployment.receive(connection, format!("{line}\r\n").as_bytes(), self.now);
        self.read(connection)
    }

    fn read(&mut self, connection: ConnectionId) -> String {
        String::from_utf8_lossy(&self.deployment.take_output(connection)).replace("\r\n", " ").trim().to_owned()
    }

    /// One command on a connection of its own.
    fn ask(&mut self, node: usize, line: &str) -> Result<String, String> {
        let connection = self.connect(node)?;
        let answer = self.send(connection, line);
        self.deployment.close(connection);
        Ok(answer)
    }

    fn info(&mut self, node: usize, field: &str) -> Result<String, String> {
        let info = self.ask(node, "INFO")?;
        let found = info.split(' ').find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(found.unwrap_or_default().to_owned())
    }
}

#[test]
fn replica_has_a_write_after_its_lag_and_wait_knows() -> Outcome {
    let mut world = World::new(Layout::Primary { replicas: 2 }, &Config::default());
    world.deployment.set_lag(NodeId(1), 2_000);
    world.deployment.set_lag(NodeId(2), 50_000);
    let client = world.connect(0)?;
    assert_eq!(world.send(client, "SET a 1"), "+OK");
    assert_eq!(world.ask(1, "GET a")?, "$-1");
    assert_eq!(world.send(client, "WAIT 1 100"), "");
    // What comes behind a WAIT waits, too.
    assert_eq!(world.send(client, "PING"), "");
    world.pass(2_000);
    assert_eq!(world.read(client), ":1 +PONG");
    assert_eq!(world.ask(1, "GET a")?, "$1 1");
    assert_eq!(world.send(client, "WAIT 2 10"), "");
    world.pass(10_000);
    assert_eq!(world.read(client), ":1");
    world.pass(50_000);
    assert_eq!(world.send(client, "WAIT 2 10"), ":2");
    assert_eq!(world.ask(2, "SET a 2")?, "-READONLY You can't write against a read only replica.");
    let offsets = [world.info(0, "master_repl_offset")?, world.info(2, "master_repl_offset")?];
    assert!(offsets[0] == offsets[1] && offsets[0] != "0");
    assert_eq!(world.info(0, "connected_slaves")?, "2");
    Ok(())
}

#[test]
fn crash_keeps_what_the_files_have() -> Outcome {
    for (fsync, crash, kept) in [
        (Some(Fsync::EverySecond), Crash::Process, "$1 2"),
        (Some(Fsync::Always), Crash::Power, "$1 2"),
        (Some(Fsync::EverySecond), Crash::Disk, "$-1"),
        (None, Crash::Process, "$-1"),
    ] {
        let mut world = World::new(Layout::Primary { replicas: 0 }, &Config { aof: fsync, ..Config::default() });
        let identity = [world.info(0, "run_id")?, world.info(0, "master_replid")?];
        let client = world.connect(0)?;
        world.send(client, "SET a 1");
        world.pass(3 * SECOND);
        world.send(client, "SET a 2");
        world.deployment.crash(NodeId(0), crash, world.now);
        assert!(world.deployment.is_closed(client));
        assert!(world.connect(0).is_err());
        world.deployment.restart(NodeId(0), 100_000, world.now);
        assert_eq!(world.ask(0, "GET a")?, "-LOADING Redis is loading the dataset in memory");
        world.pass(100_000);
        assert_eq!(world.ask(0, "GET a")?, kept, "{fsync:?} {crash:?}");
        assert_ne!(identity, [world.info(0, "run_id")?, world.info(0, "master_replid")?]);
    }
    Ok(())
}

#[test]
fn power_cut_keeps_what_was_fsynced_and_a_part_of_the_rest() -> Outcome {
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let config = Config { aof: Some(Fsync::EverySecond), ..Config::default() };
        let deployment = Deployment::new(Layout::Primary { replicas: 0 }, &config, seed, START);
        let mut world = World { deployment, now: START };
        for number in 0..20 {
            world.ask(0, &format!("SADD numbers {number}"))?;
            world.pass(if number == 9 { 2 * SECOND } else { 1_000 });
        }
        world.deployment.crash(NodeId(0), Crash::Power, world.now);
        world.deployment.restart(NodeId(0), 0, world.now);
        let count: u32 = world.ask(0, "SCARD numbers")?.trim_start_matches(':').parse()?;
        assert_eq!(world.ask(0, &format!("SISMEMBER numbers {}", count.saturating_sub(1)))?, ":1");
        found.insert(count);
    }
    assert!(found.first().is_some_and(|least| *least >= 10) && found.len() > 5, "{found:?}");
    Ok(())
}

#[test]
fn snapshot_is_all_that_a_server_without_an_append_only_file_keeps() -> Outcome {
    let config = Config { aof: None, rdb: Some(60), ..Config::default() };
    let mut world = World::new(Layout::Primary { replicas: 0 }, &config);
    world.ask(0, "SET a 1")?;
    world.pass(61 * SECOND);
    world.ask(0, "SET a 2")?;
    world.deployment.crash(NodeId(0), Crash::Process, world.now);
    world.deployment.restart(NodeId(0), 0, world.now);
    assert_eq!(world.ask(0, "GET a")?, "$1 1");
    Ok(())
}

#[test]
fn waitaof_waits_for_the_fsync() -> Outcome {
    let config = Config { version: "7.2.4".to_owned(), aof: Some(Fsync::EverySecond), ..Config::default() };
    let mut world = World::new(Layout::Primary { replicas: 1 }, &config);
    let client = world.connect(0)?;
    assert_eq!(world.send(client, "SET a 1"), "+OK");
    assert_eq!(world.send(client, "WAITAOF 1 1 5000"), "");
    world.pass(3 * SECOND);
    assert_eq!(world.read(client), "*2 :1 :1");
    if let Some(server) = world.deployment.server_mut(NodeId(0)) {
        server.set_persistence_failing(true);
    }
    assert!(world.send(client, "SET a 1").starts_with("-MISCONF Errors writing to the AOF file"));
    let mut old = World::new(Layout::Primary { replicas: 0 }, &Config::default());
    assert!(old.ask(0, "WAITAOF 1 0 0")?.starts_with("-ERR unknown command 'WAITAOF'"));
    Ok(())
}

#[test]
fn refusals_are_those_of_redis() -> Outcome {
    let config = Config { min_replicas: 1, ..Config::default() };
    let mut world = World::new(Layout::Primary { replicas: 1 }, &config);
    assert_eq!(world.ask(0, "SET a 1")?, "+OK");
    assert_eq!(world.info(0, "min_slaves_good_slaves")?, "1");
    world.deployment.crash(NodeId(1), Crash::Process, world.now);
    assert_eq!(world.ask(0, "SET a 1")?, "-NOREPLICAS Not enough good replicas to write.");
    world.deployment.restart(NodeId(1), 0, world.now);
    world.pass(1_000);
    assert_eq!(world.ask(0, "SET a 1")?, "+OK");
    let now = world.now;
    let server = world.deployment.server_mut(NodeId(0)).ok_or("no server")?;
    server.set_maxmemory(1);
    assert_eq!(world.ask(0, "SET a 1")?, "-OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(world.ask(0, "DEL a")?, ":1");
    let server = world.deployment.server_mut(NodeId(0)).ok_or("no server")?;
    server.set_busy(now + SECOND);
    let busy = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    assert_eq!(world.ask(0, "GET a")?, busy);
    assert_eq!(world.ask(0, "SCRIPT KILL")?, "+OK");
    assert_eq!(world.ask(0, "GET a")?, "$-1");
    let replica = world.deployment.server_mut(NodeId(1)).ok_or("no server")?;
    replica.set_serves_stale(false);
    world.deployment.crash(NodeId(0), Crash::Process, world.now);
    assert_eq!(
        world.ask(1, "GET a")?,
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
    );
    Ok(())
}

#[test]
fn sentinels_promote_a_replica_and_announce_it() -> Outcome {
    let mut world = World::new(Layout::Sentinels { replicas: 2, sentinels: 3 }, &Config::default());
    assert_eq!(world.deployment.url(), "redis+sentinel://sentinel-0:26379,sentinel-1:26379,sentinel-2:26379/main");
    let listener = world.connect(3)?;
    world.send(listener, "SUBSCRIBE +switch-master");
    let before = [world.info(1, "run_id")?, world.info(1, "master_replid")?];
    world.ask(0, "SET a 1")?;
    world.pass(SECOND);
    // What has not come to a replica is lost.
    world.ask(0, "SET a 2")?;
    world.deployment.crash(NodeId(0), Crash::Process, world.now);
    world.pass(4 * SECOND);
    assert!(world.ask(4, "SENTINEL GET-MASTER-ADDR-BY-NAME main")?.contains("redis-0"));
    world.pass(2 * SECOND);
    assert!(world.ask(4, "SENTINEL GET-MASTER-ADDR-BY-NAME main")?.contains("redis-1"));
    assert!(world.read(listener).contains("main redis-0 6379 redis-1 6379"));
    assert_eq!(world.ask(1, "GET a")?, "$1 1");
    assert_eq!(world.ask(1, "SET b 1")?, "+OK");
    let after = [world.info(1, "run_id")?, world.info(1, "master_replid")?];
    assert!(before[0] == after[0] && before[1] != after[1]);
    world.pass(SECOND);
    assert_eq!(world.ask(2, "GET b")?, "$1 1");
    // The old primary comes back as one, and is told some seconds later.
    world.deployment.restart(NodeId(0), 0, world.now);
    assert_eq!(world.ask(0, "GET a")?, "$1 2");
    assert_eq!(world.deployment.primaries(), [NodeId(0), NodeId(1)]);
    world.pass(10 * SECOND);
    assert_eq!(world.deployment.primaries(), [NodeId(1)]);
    assert_eq!(world.ask(0, "GET a")?, "$1 1");
    world.deployment.set_belief(NodeId(5), NodeId(2), world.now);
    world.pass(10 * SECOND);
    assert!(world.ask(5, "SENTINEL MASTER main")?.contains("redis-2"));
    world.deployment.fail_over(NodeId(2), true, world.now);
    assert!(world.ask(3, "SENTINEL MASTER main")?.contains("redis-2"));
    assert_eq!(world.deployment.primaries(), [NodeId(2)]);
    assert!(world.ask(3, "SENTINEL CKQUORUM main")?.starts_with("+OK 3 usable Sentinels."));
    Ok(())
}

#[test]
fn primary_that_is_cut_off_loses_what_it_took_meanwhile() -> Outcome {
    let mut world = World::new(Layout::Sentinels { replicas: 1, sentinels: 3 }, &Config::default());
    world.deployment.set_cut_off(NodeId(0), true, world.now);
    world.pass(6 * SECOND);
    assert_eq!(world.deployment.primaries(), [NodeId(0), NodeId(1)]);
    assert_eq!(world.ask(0, "SET a lost")?, "+OK");
    assert_eq!(world.ask(1, "SET b kept")?, "+OK");
    world.deployment.set_cut_off(NodeId(0), false, world.now);
    world.pass(10 * SECOND);
    assert_eq!([world.ask(0, "GET a")?, world.ask(0, "GET b")?], ["$-1", "$4 kept"]);
    Ok(())
}

#[test]
fn frozen_server_answers_afterwards() -> Outcome {
    let mut world = World::new(Layout::Primary { replicas: 0 }, &Config::default());
    let client = world.connect(0)?;
    world.deployment.freeze(NodeId(0), world.now + SECOND);
    assert_eq!(world.send(client, "SET a 1"), "");
    world.pass(SECOND / 2);
    assert_eq!(world.read(client), "");
    world.pass(SECOND);
    assert_eq!(world.deployment.take_ready(), [client]);
    assert_eq!(world.read(client), "+OK");
    Ok(())
}

#[test]
fn rewound_server_is_the_same_with_less() -> Outcome {
    let config = Config { version: "7.2.4".to_owned(), ..Config::default() };
    let mut world = World::new(Layout::Primary { replicas: 1 }, &config);
    world.ask(0, "SET a 1")?;
    world.pass(SECOND);
    let (snapshot, run) = (world.deployment.snapshot(NodeId(0)).ok_or("no server")?, world.info(0, "run_id")?);
    world.ask(0, "SET a 2")?;
    world.pass(SECOND);
    let (before, now) = (world.info(0, "master_repl_offset")?, world.now);
    world.deployment.server_mut(NodeId(0)).ok_or("no server")?.rewind(&snapshot, now);
    world.pass(SECOND);
    assert_eq!([world.ask(0, "GET a")?, world.ask(1, "GET a")?], ["$1 1", "$1 1"]);
    assert_eq!(world.info(0, "run_id")?, run);
    assert!(world.info(0, "master_repl_offset")?.parse::<u64>()? < before.parse::<u64>()?);
    Ok(())
}

#[test]
fn cluster_redirects_and_moves_slots() -> Outcome {
    let mut world = World::new(Layout::Cluster { shards: 3, replicas: 1 }, &Config::default());
    let slot = world.deployment.slot_of(b"foo");
    assert_eq!((slot, world.deployment.owner_of(slot)), (12_182, Some(NodeId(2))));
    assert_eq!(world.ask(0, "SET foo 1")?, "-MOVED 12182 redis-2:6379");
    assert_eq!(world.ask(2, "SET foo 1")?, "+OK");
    assert!(world.ask(0, "MGET foo bar")?.starts_with("-CROSSSLOT"));
    let listener = world.connect(2)?;
    assert_eq!(world.send(listener, "SSUBSCRIBE foo"), "*3 $10 ssubscribe $3 foo :1");
    world.deployment.begin_move(slot, NodeId(0));
    assert_eq!(world.ask(2, "GET foo")?, "$1 1");
    assert_eq!(world.ask(2, "GET {foo}new")?, "-ASK 12182 redis-0:6379");
    assert_eq!(world.ask(2, "MGET foo {foo}new")?, "-TRYAGAIN Multiple keys request during rehashing of slot");
    let client = world.connect(0)?;
    assert_eq!(world.send(client, "SET {foo}new 1"), "-MOVED 12182 redis-2:6379");
    assert_eq!(world.send(client, "ASKING"), "+OK");
    assert_eq!(world.send(client, "SET {foo}new 1"), "+OK");
    assert_eq!(world.deployment.move_keys(slot, 10, world.now), 0);
    assert_eq!(world.ask(2, "GET foo")?, "-ASK 12182 redis-0:6379");
    world.deployment.end_move(slot, world.now);
    assert_eq!(world.read(listener), "*3 $12 sunsubscribe $3 foo :0");
    assert_eq!(world.ask(1, "GET foo")?, "-MOVED 12182 redis-0:6379");
    assert_eq!(world.ask(0, "GET foo")?, "$1 1");
    assert!(world.ask(0, "CLUSTER SLOTS")?.contains("redis-0"));
    Ok(())
}

#[test]
fn cluster_promotes_a_replica() -> Outcome {
    let mut world = World::new(Layout::Cluster { shards: 3, replicas: 1 }, &Config::default());
    let slot = world.deployment.slot_of(b"foo");
    world.ask(2, "SET foo 1")?;
    world.pass(SECOND);
    world.deployment.crash(NodeId(2), Crash::Process, world.now);
    world.pass(6 * SECOND);
    assert_eq!(world.deployment.owner_of(slot), Some(NodeId(5)));
    assert_eq!([world.ask(0, "GET foo")?, world.ask(5, "GET foo")?], ["-MOVED 12182 redis-5:6379", "$1 1"]);
    world.deployment.restart(NodeId(2), 0, world.now);
    assert_eq!(world.ask(2, "GET foo")?, "-CLUSTERDOWN The cluster is down");
    world.pass(2 * SECOND);
    assert_eq!(world.ask(2, "GET foo")?, "-MOVED 12182 redis-5:6379");
    world.deployment.crash(NodeId(5), Crash::Process, world.now);
    world.deployment.crash(NodeId(2), Crash::Process, world.now);
    world.pass(6 * SECOND);
    assert_eq!(world.ask(0, "GET foo")?, "-CLUSTERDOWN The cluster is down");
    Ok(())
}

#[test]
fn lines_of_scripts_are_counted_across_a_restart() -> Outcome {
    let mut world = World::new(Layout::Primary { replicas: 0 }, &Config::default());
    let lines = world.deployment.count_lines();
    let script = concat!(
        "#!lua\n-- No code.\nlocal function double(n)\n  return n * 2\nend\n",
        "if ARGV[1] == '1' then\n  return double(2)\nend\nreturn 0\n",
    );
    let ask = |world: &mut World, word: &str| -> Result<String, String> {
        let connection = world.connect(0)?;
        let eval = format!("*4\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n$1\r\n{word}\r\n", script.len());
        world.deployment.receive(connection, eval.as_bytes(), world.now);
        Ok(world.read(connection))
    };
    assert_eq!(ask(&mut world, "0")?, ":0");
    // A function is made in the line where it ends.
    let counted = |of: [u64; 5]| vec![(script.to_owned(), [4, 5, 6, 7, 9].into_iter().zip(of).collect())];
    assert_eq!(lines.scripts(), counted([0, 1, 1, 0, 1]));
    world.deployment.crash(NodeId(0), Crash::Process, world.now);
    world.deployment.restart(NodeId(0), 0, world.now);
    assert_eq!(ask(&mut world, "1")?, ":4");
    assert_eq!(lines.scripts(), counted([1, 2, 2, 1, 1]));
    Ok(())
}
