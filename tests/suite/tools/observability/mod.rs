//! What operators look at: dashboards, alert rules and runbooks agree with each other and with the metrics, and every
//! query finds something on a real Prometheus that scrapes real brokers.

mod broker;
mod dashboards;
mod incidents;
mod load;
mod under_load;
mod prometheus;
mod queries;
mod rules;
mod three_commands;

#[path = "../../../../examples/dashboards/boards/mod.rs"]
mod boards;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use dwell::model::error::Result;

use crate::support::failed;

/// A file below grafana/.
fn grafana(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana").join(path)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(failed(&path.display().to_string()))
}

/// A port of this machine on which nobody listens. Prometheus finds brokers by their port, before and after a restart.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("a free port"))?;
    Ok(listener.local_addr().map_err(failed("a free port"))?.port())
}
