//! Writes the generated pages of docs/reference: `cargo run --locked --example reference`.
//!
//! `pages/` renders them from the code that knows each thing. A test fails when a committed page differs.

mod pages;

use std::path::Path;

use dwell::model::error::{Error, Result};

fn main() -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(pages::DIR);
    for (file, text) in pages::files()? {
        let path = dir.join(file);
        std::fs::write(&path, text).map_err(|error| Error::unavailable(format!("{}: {error}", path.display())))?;
        println!("{}", path.display());
    }
    Ok(())
}
