//! What only one part does, and so no other: the invariants of docs/internals/architecture.md that are absences.

use dwell::model::error::Result;

use super::{File, files, line_of, places_of};

/// Something that is used only in some places.
struct Only {
    /// What is looked for in code.
    what: &'static [&'static str],
    /// The beginnings of the paths where it may be.
    only: &'static [&'static str],
}

/// What the shipped code uses only in some places.
const ONLY: [Only; 23] = [
    Only { what: &["sled::"], only: &["src/platform/disk/", "src/store/embedded/", "src/wal/"] },
    Only { what: &["redis::"], only: &["src/store/redis/", "src/measure/baseline.rs"] },
    Only { what: &["bincode::"], only: &["src/codec"] },
    Only { what: &["prometheus::"], only: &["src/telemetry/metrics/"] },
    Only { what: &["murmur3::"], only: &["src/model/partition.rs", "src/model/message/spread.rs"] },
    // Which store it is, is decided once.
    Only { what: &["crate::store::embedded", "crate::store::redis"], only: &["src/store/", "src/app/engine.rs"] },
    // Time.
    Only { what: &["SystemTime", "Instant::now", "clock_gettime"], only: &["src/platform/clock.rs"] },
    // Where a directory of sled is opened a thread may wait for it.
    Only { what: &["sleep", "interval"], only: &["src/platform/clock.rs", "src/platform/disk/mod.rs"] },
    // What runs in the background.
    Only { what: &["tokio::spawn", "task::spawn(", "JoinSet", "TaskTracker"], only: &["src/platform/tasks.rs"] },
    // A disk may hang: who looks at one does not wait for it.
    Only { what: &["spawn_blocking"], only: &["src/platform/tasks.rs", "src/cli/doctor/"] },
    Only {
        what: &["thread::Builder", "thread::spawn"],
        only: &[
            "src/cli/log_writer.rs",
            "src/platform/disk/mod.rs",
            "src/store/embedded/commit.rs",
            "src/wal/handle.rs",
        ],
    },
    // The ways in and out.
    Only { what: &["axum::", "hyper_util::", "tower_http::", "utoipa::"], only: &["src/api/http/"] },
    Only { what: &["hyper::"], only: &["src/api/http/", "src/platform/https.rs"] },
    Only {
        what: &["clap::", "crossterm::", "indicatif::", "tracing_subscriber::"],
        only: &["src/cli/", "src/measure/", "src/command_line.rs"],
    },
    Only {
        what: &["reqwest::"],
        only: &["src/platform/https.rs", "src/outage/hand_over.rs", "src/telemetry/spans.rs", "src/api/webhook/"],
    },
    // One that was begun elsewhere panics.
    Only { what: &["Client::builder"], only: &["src/platform/https.rs"] },
    Only {
        what: &["rustls::", "tokio_rustls::"],
        only: &["src/platform/https.rs", "src/platform/signing_key.rs", "src/api/http/listen.rs"],
    },
    Only { what: &["println!", "eprintln!", "print!", "eprint!", "stdout()", "stderr()"], only: &["src/cli/"] },
    Only { what: &["std::env::", "env::var"], only: &["src/cli/", "src/measure/", "src/command_line.rs"] },
    Only { what: &["signal::unix", "ctrl_c"], only: &["src/cli/process.rs"] },
    Only {
        what: &["std::process::", "tokio::process"],
        only: &["src/cli/", "src/measure/bench/store.rs", "src/command_line.rs", "src/main.rs"],
    },
    Only { what: &["std::net::", "tokio::net"], only: &["src/api/http/", "src/api/webhook/", "src/cli/process.rs"] },
    Only {
        what: &["std::fs", "fs::File", "tokio::fs", "File::open"],
        only: &[
            "src/platform/disk/",
            "src/wal/",
            "src/outage/state_file.rs",
            "src/api/http/listen",
            "src/platform/https.rs",
            "src/platform/secret.rs",
            "src/app/config/",
            "src/cli/",
            "src/measure/",
            "src/telemetry/metrics/process.rs",
            // The id of the boot.
            "src/platform/clock.rs",
        ],
    },
];

/// Whether it stands here: the name of a crate begins a path, so `store::redis::` is not `redis::`; and `clock.sleep` is
/// the clock's.
fn is_meant(what: &str, code: &str, at: usize) -> bool {
    let path = what.ends_with("::") && !what.starts_with("std::") && code[..at].ends_with("::");
    !path && !code[..at].ends_with('.')
}

#[test]
fn restricted_calls_stay_in_their_modules() -> Result<()> {
    let sources: Vec<(File, String)> = files("src", ".rs")?
        .into_iter()
        .map(|file| {
            let code = file.shipped();
            (file, code)
        })
        .collect();
    let mut wrong = Vec::new();
    for Only { what, only } in ONLY {
        let mut seen = false;
        for (file, code) in &sources {
            for what in what {
                for at in places_of(code, what).filter(|at| is_meant(what, code, *at)) {
                    let allowed = only.iter().any(|place| file.path.starts_with(place));
                    seen |= allowed;
                    if !allowed {
                        wrong.push(format!("{}:{}: {what} is for {only:?}", file.path, line_of(code, at)));
                    }
                }
            }
        }
        // A rule about nothing is a rule about something that was renamed.
        assert!(seen, "nothing in {only:?} uses {what:?}: the rule has lost its object");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// A client that was begun elsewhere looks for a cryptography of the whole process, and panics: in a test only if it is the
/// first one.
#[test]
fn test_http_clients_use_the_shared_builder() -> Result<()> {
    let mut wrong = Vec::new();
    let (tests, benches, examples) = (files("tests", ".rs")?, files("benches", ".rs")?, files("examples", ".rs")?);
    for file in tests.iter().chain(&benches).chain(&examples) {
        let code = file.code();
        for what in ["Client::builder(", "reqwest::Client::new", "reqwest::get(", "ClientBuilder::new"] {
            for at in places_of(&code, what) {
                wrong.push(format!(
                    "{}:{}: {what} panics without dwell::platform::https::client",
                    file.path,
                    line_of(&code, at)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// `model` and `codec` only compute.
#[test]
fn foundation_modules_do_no_io() -> Result<()> {
    let is_pure = |file: &File| file.path.starts_with("src/model/") || file.path.starts_with("src/codec");
    let sources: Vec<File> = files("src", ".rs")?.into_iter().filter(is_pure).collect();
    assert!(sources.len() > 15, "{}", sources.len());
    for file in &sources {
        let code = file.shipped();
        for what in ["async", "tokio", "std::fs", "std::net", "std::env", "tracing", "Mutex", "static mut", "fastrand"]
        {
            assert!(places_of(&code, what).next().is_none(), "{} uses {what}", file.path);
        }
    }
    Ok(())
}

/// The owner's memory gets time and chance as values.
#[test]
fn in_memory_owner_state_does_no_io() -> Result<()> {
    let mut table = files("src/delivery", "table.rs")?;
    table.extend(files("src/delivery/table", ".rs")?);
    assert!(table.len() > 2, "{}", table.len());
    for file in &table {
        let code = file.shipped();
        for what in ["async", "await", "tokio", "fastrand", "Clock", "Store", "Mutex", "tracing"] {
            assert!(places_of(&code, what).next().is_none(), "{} uses {what}", file.path);
        }
    }
    Ok(())
}

/// Where a test may wait: `eventually`, which asks again and again; the proxy, whose delay is the fault; clients on simulated
/// time; and the check of the simulated Redis, until a server has started and between keys that expire.
const WAITING: [&str; 6] = [
    "tests/suite/support/eventually.rs",
    "tests/suite/support/load.rs",
    "tests/suite/support/proxy.rs",
    "tests/sim/client.rs",
    "tests/sim/redis/tests/differential/client.rs",
    "tests/sim/redis/tests/differential/main.rs",
];

/// Waiting makes a test slow or wrong; skipping makes it silent.
#[test]
fn no_test_waits_or_skips() -> Result<()> {
    let tests: Vec<File> = files("tests", ".rs")?.into_iter().chain(files("src", ".rs")?).collect();
    let mut wrong = Vec::new();
    for file in &tests {
        let code = file.code();
        for what in ["#[ignore", "#![ignore"] {
            wrong.extend(code.find(what).map(|at| format!("{}:{}: {what}", file.path, line_of(&code, at))));
        }
        // What the code under test waits for is above.
        if WAITING.contains(&file.path.as_str()) || file.path.starts_with("src/") {
            continue;
        }
        for at in places_of(&code, "sleep").chain(places_of(&code, "interval")) {
            wrong.push(format!("{}:{}: it waits; use a manual clock, or `eventually`", file.path, line_of(&code, at)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
