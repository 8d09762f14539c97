//! The unit of systemd: what it says is known there, it lets little through, and it lets through what dwell does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::limits::CONNECTIONS_MAX;
use tempfile::TempDir;

use super::systemd_notify::Supervised;
use super::{said, text};
use crate::support::{eventually, failed, scratch};

/// The highest exposure, in tenths of what `systemd-analyze security` says. Most services have 90 and more.
const EXPOSURE_MAX: &str = "10";

/// The unit as it is installed, but for the place of the binary, with the file for Redis beside it.
fn installed() -> Result<(TempDir, PathBuf)> {
    let dir = scratch()?;
    let (unit, drop_in) = (dir.path().join("dwell.service"), dir.path().join("dwell.service.d"));
    let service = text("systemd/dwell.service")?;
    assert!(service.contains("ExecStart=/usr/local/bin/dwell serve "));
    std::fs::write(&unit, service.replace("/usr/local/bin/dwell", env!("CARGO_BIN_EXE_dwell")))
        .map_err(failed("it"))?;
    std::fs::create_dir(&drop_in).map_err(failed("a directory"))?;
    std::fs::write(drop_in.join("redis.conf"), text("systemd/redis.conf")?).map_err(failed("a file"))?;
    Ok((dir, unit))
}

/// The values of a key, in order.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn systemd_analyze_verify_passes() -> Result<()> {
    let (_dir, unit) = installed()?;
    let verify = || said(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit));
    assert_eq!(verify()?, "");
    // It looks into the file for Redis too.
    let drop_in = unit.with_file_name("dwell.service.d").join("redis.conf");
    std::fs::write(&drop_in, text("systemd/redis.conf")? + "\nLoadCredentail=a:b\n").map_err(failed("a file"))?;
    assert!(verify()?.contains("LoadCredentail"));
    Ok(())
}

#[test]
fn systemd_exposure_score_is_low() -> Result<()> {
    let (_dir, unit) = installed()?;
    let security = ["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX];
    let report = said(Command::new("systemd-analyze").args(security).arg(&unit))?;
    assert!(report.contains("Overall exposure level"), "{report}");
    Ok(())
}

/// A stop gets `group.drain_timeout` and 10 s more; connections have file descriptors.
#[test]
fn unit_limits_cover_stop_time_and_file_descriptors() -> Result<()> {
    let unit = text("systemd/dwell.service")?;
    let stop = values(&unit, "TimeoutStopSec").join("");
    let seconds: u64 = stop.trim_end_matches('s').parse().map_err(|_| Error::bug(stop.clone()))?;
    let drain = dwell::broker::Options::default().drain_timeout;
    assert!(Duration::from_secs(seconds) >= drain + Duration::from_secs(10), "{stop}");
    let files: usize = values(&unit, "LimitNOFILE").join("").parse().map_err(|_| Error::bug("LimitNOFILE"))?;
    assert!(files > 2 * CONNECTIONS_MAX, "{files}");
    Ok(())
}

/// Sets of system calls by name, as this systemd knows them; a set may name others.
fn sets() -> Result<BTreeMap<String, Vec<String>>> {
    let all = said(Command::new("systemd-analyze").args(["syscall-filter", "--no-pager"]))?;
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in all.lines().map(|line| line.split('#').next().unwrap_or_default()) {
        match (line.starts_with('@'), line.trim()) {
            (_, "") => {}
            (true, name) => current = name.to_owned(),
            (false, call) => sets.entry(current.clone()).or_default().push(call.to_owned()),
        }
    }
    assert!(sets.len() > 20, "{all}");
    Ok(sets)
}

fn members(sets: &BTreeMap<String, Vec<String>>, name: &str) -> BTreeSet<String> {
    let Some(inside) = sets.get(name) else { return BTreeSet::from([name.to_owned()]) };
    inside.iter().flat_map(|name| members(sets, name)).collect()
}

/// The calls that the unit lets through: what is listed, without what is listed behind a `~`.
fn allowed() -> Result<BTreeSet<String>> {
    let (sets, unit) = (sets()?, text("systemd/dwell.service")?);
    let mut allowed = BTreeSet::new();
    for filter in values(&unit, "SystemCallFilter") {
        let refused = filter.starts_with('~');
        for call in filter.trim_start_matches('~').split(' ').flat_map(|name| members(&sets, name)) {
            if refused {
                allowed.remove(&call)
            } else {
                allowed.insert(call)
            };
        }
    }
    assert!(allowed.contains("read") && !allowed.contains("ptrace") && !allowed.contains("setuid"), "{allowed:?}");
    Ok(allowed)
}

/// Name of the system call in a line of strace, as in `12 read(3, …` or `12 <... read resumed>`.
fn call_of(line: &str) -> Option<&str> {
    let line = line.split_once(' ').map_or(line, |(_, line)| line.trim_start());
    let name = line.strip_prefix("<... ").map_or_else(|| line.split('(').next(), |rest| rest.split(' ').next())?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).then_some(name)
}

/// With `DynamicUser` the state directory is a symbolic link.
#[tokio::test]
async fn dwell_starts_in_the_state_directory_of_a_dynamic_user() -> Result<()> {
    let dir = scratch()?;
    std::fs::create_dir_all(dir.path().join("private/dwell")).map_err(failed("a directory"))?;
    std::os::unix::fs::symlink("private/dwell", dir.path().join("dwell")).map_err(failed("a link"))?;
    let unit = text("systemd/dwell.service")?;
    let environment = values(&unit, "Environment");
    let data = environment.iter().find_map(|set| set.strip_prefix("DWELL_DATA_DIR="));
    let data = data.ok_or_else(|| Error::bug("no data directory"))?.replace("%S", &dir.path().display().to_string());
    let mut dwell = Supervised::start_in(dir, &[], 30_000_000, data.into())?;
    dwell.says("READY=1")?;
    assert_eq!(dwell.stop().await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn unit_allows_every_system_call_in_use() -> Result<()> {
    let dir = scratch()?;
    let log = dir.path().join("strace").display().to_string();
    // -D: the child is dwell, and strace stands aside.
    let mut dwell = Supervised::start(&["strace", "-D", "-f", "-o", &log], 150_000)?;
    dwell.says("READY=1")?;
    assert_eq!(dwell.ask("POST /v1/topics/orders/messages?id=a&raw=true", "\"close 4711\"")?, "201");
    assert_eq!(dwell.ask("POST /v1/topics/orders/groups/default/reserve", r#"{"wait": "5s"}"#)?, "200");
    assert_eq!(dwell.ask("GET /metrics", "")?, "200");
    dwell.says("WATCHDOG=1")?;
    let pid = format!("{} ", dwell.pid());
    assert_eq!(dwell.stop().await?, Some(0));
    let traced = eventually("strace wrote all down", async || {
        let lines = std::fs::read_to_string(&log).map_err(failed("the trace"))?;
        let is_end = |line: &str| line.starts_with(&pid) && line.ends_with("+++ exited with 0 +++");
        Ok(lines.lines().any(is_end).then_some(lines))
    });
    let traced = traced.await?;
    let calls: BTreeSet<&str> = traced.lines().filter_map(call_of).collect();
    assert!(["execve", "epoll_wait", "fdatasync", "sendto"].iter().all(|call| calls.contains(call)), "{calls:?}");
    let allowed = allowed()?;
    // What starts dwell has called it before the filter is in force.
    let refused: Vec<_> = calls.iter().filter(|call| !allowed.contains(**call)).collect();
    assert!(refused.is_empty(), "the unit refuses {refused:?}");
    Ok(())
}
