//! Which lines of scripts run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use mlua::Function;

use super::lock;

/// How often each line of each script ran, on all servers that count into it.
#[derive(Debug, Clone, Default)]
pub struct LineCounts(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    scripts: Vec<(String, BTreeMap<usize, u64>)>,
    /// The script that runs.
    current: Option<usize>,
}

impl LineCounts {
    /// The source of each script that was loaded, with the counts of all its lines that have code; the first line is 1.
    pub fn scripts(&self) -> Vec<(String, BTreeMap<usize, u64>)> {
        lock(&self.0).scripts.clone()
    }

    /// Makes a script known; answers its number.
    pub(super) fn add(&self, source: &str, function: &Function) -> usize {
        let mut state = lock(&self.0);
        let known = state.scripts.iter().position(|(known, _)| known == source);
        known.unwrap_or_else(|| {
            let lines = code_lines(&function.dump(false)).into_iter().map(|line| (line, 0)).collect();
            state.scripts.push((source.to_owned(), lines));
            state.scripts.len() - 1
        })
    }

    pub(super) fn enter(&self, number: Option<usize>) {
        lock(&self.0).current = number;
    }

    pub(super) fn count(&self, line: usize) {
        let mut state = lock(&self.0);
        let lines = state.current.and_then(|number| state.scripts.get_mut(number));
        if let Some(count) = lines.and_then(|(_, lines)| lines.get_mut(&line)) {
            *count += 1;
        }
    }
}

/// The lines that have code, as Lua 5.1 writes them beside its instructions.
fn code_lines(dump: &[u8]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    // Signature, version and sizes; scripts are compiled in this process.
    let mut reader = Reader(dump.get(12..).unwrap_or_default());
    let _ = reader.function(&mut found);
    found
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<usize> {
        let bytes = self.take(size_of::<i32>())?.try_into().ok()?;
        usize::try_from(i32::from_ne_bytes(bytes)).ok()
    }

    fn text(&mut self) -> Option<()> {
        let length = usize::from_ne_bytes(self.take(size_of::<usize>())?.try_into().ok()?);
        self.take(length).map(drop)
    }

    fn function(&mut self, found: &mut BTreeSet<usize>) -> Option<()> {
        self.text()?;
        // Where it begins and ends; counts of variables.
        self.take(2 * size_of::<i32>() + 4)?;
        let instructions = self.int()?;
        self.take(4 * instructions)?;
        for _ in 0..self.int()? {
            match self.take(1)?[0] {
                0 => {}
                1 => drop(self.take(1)?),
                3 => drop(self.take(size_of::<f64>())?),
                _ => self.text()?,
            }
        }
        for _ in 0..self.int()? {
            self.function(found)?;
        }
        let lines = self.int()?;
        for number in 1..=lines {
            let line = self.int()?;
            // The last instruction is the return of each function at its `end`, where none comes by after another return.
            if number < lines {
                found.insert(line);
            }
        }
        for _ in 0..self.int()? {
            self.text()?;
            self.take(2 * size_of::<i32>())?;
        }
        for _ in 0..self.int()? {
            self.text()?;
        }
        Some(())
    }
}
