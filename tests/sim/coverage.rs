//! Which lines of dwell's Lua scripts no history has reached: `COVERAGE=1`.

use std::collections::BTreeMap;
use std::path::Path;

use dwell_simulated_redis::LineCounts;

use crate::run::Failure;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/scripts");

/// How a history says what it has reached, a file a line.
pub(crate) const LINES: &str = "lines: ";

pub(crate) fn is_wanted() -> bool {
    std::env::var_os("COVERAGE").is_some()
}

/// The files of the scripts, with their texts.
fn files() -> Result<Vec<(String, String)>, Failure> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(Path::new(SCRIPTS))? {
        let path = entry?.path();
        files.push((path.file_name().unwrap_or_default().display().to_string(), std::fs::read_to_string(path)?));
    }
    files.sort();
    Ok(files)
}

/// How often lines of files ran, over all scripts that a file is a part of.
#[derive(Default)]
pub(crate) struct Coverage(BTreeMap<String, BTreeMap<usize, u64>>);

impl Coverage {
    pub(crate) fn of(counts: &LineCounts) -> Result<Coverage, Failure> {
        let (mut coverage, files) = (Coverage::default(), files()?);
        for (source, lines) in counts.scripts() {
            // A script is several files, one behind the other.
            for (name, text) in &files {
                let Some(at) = source.find(text) else { continue };
                let (before, own) = (source[..at].lines().count(), text.lines().count());
                coverage.0.entry(name.clone()).or_default();
                for (line, count) in lines.range(before + 1..=before + own) {
                    coverage.add(name, line - before, *count);
                }
            }
        }
        Ok(coverage)
    }

    fn add(&mut self, file: &str, line: usize, count: u64) {
        *self.0.entry(file.to_owned()).or_default().entry(line).or_default() += count;
    }

    pub(crate) fn say(&self) {
        for (file, lines) in &self.0 {
            let lines: Vec<String> = lines.iter().map(|(line, count)| format!("{line}={count}")).collect();
            println!("{LINES}{file} {}", lines.join(" "));
        }
    }

    /// Adds what a history said.
    pub(crate) fn hear(&mut self, said: &str) {
        for line in said.lines().filter_map(|line| line.strip_prefix(LINES)) {
            let (file, lines) = line.split_once(' ').unwrap_or((line, ""));
            self.0.entry(file.to_owned()).or_default();
            for (line, count) in lines.split(' ').filter_map(|line| line.split_once('=')) {
                if let (Ok(line), Ok(count)) = (line.parse(), count.parse()) {
                    self.add(file, line, count);
                }
            }
        }
    }

    /// Prints the lines that were not reached, without those that only end something.
    pub(crate) fn report(&self) -> Result<(), Failure> {
        let (mut all, mut missed) = (0, 0);
        for (file, text) in files()? {
            let Some(lines) = self.0.get(&file) else {
                println!("{file}: never called");
                continue;
            };
            for (line, count) in lines {
                let text = text.lines().nth(line - 1).unwrap_or_default().trim();
                if text == "end" {
                    continue;
                }
                all += 1;
                if *count == 0 {
                    missed += 1;
                    println!("{file}:{line}: {text}");
                }
            }
        }
        println!("{} of {all} lines of the scripts that were called", all - missed);
        Ok(())
    }
}
