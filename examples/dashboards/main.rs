//! Writes the dashboards of grafana/dashboards, each a file for Grafana 10 or newer: `cargo run --example dashboards`.
//! An argument is the URL of the runbooks to which panels link: where you keep docs/operate/runbooks.md.
//!
//! What they show is in `boards/`; a test fails when the files differ from it. `make dashboards` tries every query on a
//! real Prometheus, and `make grafana` tries the files in a Grafana.

mod boards;

use std::path::Path;

use dwell::model::error::{Error, Result};

fn main() -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana/dashboards");
    let runbooks = std::env::args().nth(1).unwrap_or_else(|| boards::RUNBOOKS.to_owned());
    for (file, text) in boards::files(&runbooks) {
        let path = dir.join(file);
        std::fs::write(&path, text).map_err(|error| Error::unavailable(format!("{}: {error}", path.display())))?;
        println!("{}", path.display());
    }
    Ok(())
}
