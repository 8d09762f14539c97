//! The errors of `tests/sim/mutants.txt` stay errors of this code: their lines exist, and the page of the simulator has each of them.

use dwell::model::error::{Error, Result};

use super::{File, files};

/// What follows the line that begins so is not found by the search yet.
const NOT_FOUND: &str = "# Not found";

/// An error: its name, whether the search finds it, and the lines that it changes, each with its file.
struct Mutant<'a> {
    name: &'a str,
    is_found: bool,
    lines: Vec<(&'a str, &'a str)>,
}

fn mutants(text: &str) -> Vec<Mutant<'_>> {
    let (mut mutants, mut file, mut is_found) = (Vec::<Mutant<'_>>::new(), "", true);
    for line in text.lines() {
        is_found &= !line.starts_with(NOT_FOUND);
        match (line.split_at_checked(2), mutants.last_mut()) {
            (Some(("= ", name)), _) => mutants.push(Mutant { name, is_found, lines: Vec::new() }),
            (Some(("< ", wanted)), Some(mutant)) => mutant.lines.push((file, wanted)),
            (Some(("> " | "# ", _)) | None, _) => {}
            _ => file = line,
        }
    }
    mutants
}

fn text_of(list: &'static str) -> Result<File> {
    let (dir, _) = list.rsplit_once('/').unwrap_or(("", list));
    files(dir, list)?.into_iter().find(|file| file.path == list).ok_or_else(|| Error::bug(list))
}

#[test]
fn every_error_of_the_simulator_applies() -> Result<()> {
    let list = text_of("tests/sim/mutants.txt")?;
    let mut sources = Vec::new();
    for (dir, ending) in [("src", ".rs"), ("src", ".lua"), ("clients/rust/src", ".rs")] {
        sources.extend(files(dir, ending)?);
    }
    let mutants = mutants(&list.text);
    for (mutant, (file, wanted)) in
        mutants.iter().flat_map(|mutant| mutant.lines.iter().map(move |line| (mutant, line)))
    {
        let source = sources.iter().find(|source| source.path == *file);
        let is_there = source.is_some_and(|source| source.text.lines().any(|line| line.trim() == wanted.trim()));
        assert!(is_there, "{}: {file} has no line {wanted:?}", mutant.name);
    }
    assert!(mutants.iter().filter(|mutant| mutant.is_found).count() >= 25);
    Ok(())
}

#[test]
fn the_page_has_every_error_of_the_simulator() -> Result<()> {
    let (list, page) = (text_of("tests/sim/mutants.txt")?, text_of("docs/internals/simulation.md")?);
    for mutant in mutants(&list.text) {
        let said = if mutant.is_found { format!("\n| {} | ", mutant.name) } else { format!("\n* {}", mutant.name) };
        assert!(page.text.contains(&said), "docs/internals/simulation.md has no line {:?}", said.trim());
    }
    Ok(())
}
