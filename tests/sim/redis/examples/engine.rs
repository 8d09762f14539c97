//! How long this engine takes for a script of dwell: docs/internals/stores.md asks whether it could be the embedded store.
//! `cargo run --locked --release --manifest-path tests/sim/redis/Cargo.toml --example engine`

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use dwell_simulated_redis::{Config, Server, SessionId, Time};

const BODY: &[u8] = &[b'B'; 130];
const MESSAGES: usize = 100_000;
const NOW: Time = Time(1_764_000_000_000_000);

/// A script of dwell, put together as `src/store/redis/scripts.rs` does.
fn script(verb: &str) -> Result<String, Box<dyn Error>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../src/store/redis");
    let list = std::fs::read_to_string(dir.join("scripts.rs"))?;
    let named = format!("\n    {verb}: ");
    let line = list.split(&named).nth(1).and_then(|rest| rest.lines().next()).ok_or("no such script")?;
    let mut parts = line.split('"').skip(1).step_by(2);
    let mut source = format!("{}\n", parts.next().ok_or("no head")?);
    for part in parts.chain([verb]) {
        source += &std::fs::read_to_string(dir.join(format!("scripts/{part}.lua")))?;
    }
    Ok(source)
}

fn key(suffix: &str) -> String {
    format!("{{dwell:orders:0}}:{suffix}")
}

/// A server with one session.
struct Asked {
    server: Server,
    session: SessionId,
}

impl Asked {
    fn ask(&mut self, words: &[&[u8]]) -> Result<String, Box<dyn Error>> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.server.receive(self.session, &bytes, NOW);
        let answer = String::from_utf8(self.server.take_output(self.session))?;
        if answer.starts_with('-') { Err(answer.into()) } else { Ok(answer) }
    }
}

/// Pushes all messages in calls of `batch`; answers microseconds for each call.
fn push(batch: usize) -> Result<f64, Box<dyn Error>> {
    let mut server = Server::new(Config { aof: None, ..Config::default() }, 1);
    let session = server.open(NOW);
    let mut server = Asked { server, session };
    let digest = server.ask(&[b"SCRIPT", b"LOAD", script("push")?.as_bytes()])?;
    let digest = digest.lines().nth(1).ok_or("no digest")?.to_owned();
    let known = "0000001764000000 a1b2c3d4e5f61764000000000000abcd";
    let descriptor = format!("{known} 0000000000000001 {{\"topic\":\"orders\"}}");
    server.ask(&[b"SET", key("gen").as_bytes(), descriptor.as_bytes()])?;
    let names =
        ["gen", "c:stream", "seen", "x", "wake", "gone", "purged", "dedup", "dedup-end", "default:z", "default:h"];
    let keys: Vec<String> = names.iter().chain(&["default:dh"]).map(|name| key(name)).collect();
    let began = Instant::now();
    for call in 0..MESSAGES / batch {
        let mut words = vec!["EVALSHA".to_owned(), digest.clone(), keys.len().to_string()];
        words.extend(keys.iter().cloned());
        let fixed = [known, "9999999999999", "live", "1000000", "1900000000000", ""];
        words.extend(fixed.map(str::to_owned));
        words.extend([(call + 1).to_string(), (1_764_000_000_000_000 + call).to_string(), batch.to_string()]);
        let ids = || (0..batch).map(|n| (call * batch + n, format!("id{:09}", call * batch + n)));
        words.extend(ids().flat_map(|(n, id)| [(1_900_000_000_000 + n).to_string(), id]));
        let mut command: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let ids: Vec<String> = ids().map(|(_, id)| id).collect();
        command.extend(ids.iter().flat_map(|id| [id.as_bytes(), BODY]));
        let answer = server.ask(&command)?;
        if !answer.starts_with("*4") {
            return Err(answer.into());
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / (MESSAGES / batch) as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    for batch in [1, 100, 1, 100] {
        let us = push(batch)?;
        println!("push of {batch}: {us:.1} us for a call, {:.2} us for a message", us / batch as f64);
    }
    Ok(())
}
