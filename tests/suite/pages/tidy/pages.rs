//! Pages name what they have to, and their links lead somewhere.

use std::collections::BTreeSet;
use std::path::Path;

use dwell::model::error::Result;

use super::{File, files, pages, places_of};

const ARCHITECTURE: &str = include_str!("../../../../docs/internals/architecture.md");

/// The names of metrics in a text.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let name = |at: usize| text[at..].split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or_default();
    // A crate has `::` behind its name, and the file of a package has a version.
    let behind = |at: usize| &text[at + name(at).len()..];
    let is_package = |at: usize| behind(at).starts_with("::") || behind(at).starts_with('-');
    text.match_indices("dwell_").map(|(at, _)| at).filter(|at| !is_package(*at)).map(name).collect()
}

/// A page names a metric, a part of a histogram, or the beginning of some names.
#[test]
fn every_metric_that_a_page_names_exists() -> Result<()> {
    let metrics = dwell::telemetry::metrics::Metrics::new()?;
    let names: BTreeSet<&str> = metrics.families().iter().map(|family| family.name).collect();
    assert!(names.len() > 40, "{}", names.len());
    let mut wrong = Vec::new();
    let is_for_users = |page: &&File| page.path != "CHANGELOG.md" && !page.path.starts_with("docs/internals/");
    for page in pages()?.iter().filter(is_for_users) {
        for name in metric_names(&page.text) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let begins = name.ends_with('_') && names.iter().any(|n| n.starts_with(name));
            if !names.contains(name) && !names.contains(base) && !begins {
                wrong.push(format!("{}: {name}", page.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// The first cells of the rows of the tables that begin with `header`, without their marks.
fn first_cells<'a>(page: &'a str, header: &str) -> Vec<&'a str> {
    let rows = page.lines().skip_while(|line| !line.starts_with(header)).skip(2);
    let cell = |row: &'a str| row.trim_matches('|').split('|').next().map(|cell| cell.trim().trim_matches('`'));
    rows.take_while(|line| line.starts_with('|')).filter_map(cell).collect()
}

#[test]
fn modules_of_the_page_match_lib_in_order() {
    let lib = include_str!("../../../../src/lib.rs");
    let rooms: Vec<_> = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(first_cells(ARCHITECTURE, "| room |"), rooms);
}

#[test]
fn every_dependency_is_justified_on_the_page() {
    let manifest = include_str!("../../../../Cargo.toml");
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with("[profile")).filter(|line| !line.starts_with(['#', '[']));
    let names: BTreeSet<_> = lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(names.len() > 30, "{names:?}");
    let from = ARCHITECTURE.find("\n## Dependencies").unwrap_or(0);
    let chapter = ARCHITECTURE[from + 1..].split("\n## ").next().unwrap_or_default();
    let words: BTreeSet<_> = chapter.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').collect();
    assert!(names.is_subset(&words), "{:?}", names.difference(&words));
}

/// The name that a heading has in a link.
fn anchor(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| kept(*c))
        .collect::<String>()
        .replace(' ', "-")
}

/// The targets of the links of a page.
pub(super) fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next())
}

#[test]
fn every_relative_link_resolves() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages()?;
    let mut broken = Vec::new();
    for page in &pages {
        let here = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for link in links(&page.text).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root.join(&page.path) } else { root.join(here).join(file) };
            let text = std::fs::read_to_string(&target).unwrap_or_default();
            let there = target.exists()
                && (part.is_empty() || text.lines().any(|line| line.starts_with('#') && anchor(line) == part));
            if !there {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

/// A test that a page names as what shows something is there.
#[test]
fn every_test_named_in_faults_exists() -> Result<()> {
    const FAULTS: &str = include_str!("../../../../docs/internals/faults.md");
    let sources: Vec<_> = files("tests/suite", ".rs")?.into_iter().chain(files("src", ".rs")?).collect();
    let is_there = |name: &str| {
        let (function, module) = (format!("fn {name}("), format!("mod {name}"));
        sources.iter().any(|file| file.text.contains(&function) || file.text.contains(&module))
    };
    let cells = FAULTS.lines().filter(|line| line.starts_with("| ")).filter_map(|row| row.rsplit('|').nth(1));
    let names: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let parts: BTreeSet<&str> = names.iter().flat_map(|name| name.split("::")).filter(|name| *name != "lib").collect();
    assert!(parts.len() > 30, "{parts:?}");
    let missing: Vec<_> = parts.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "docs/internals/faults.md names {missing:?}");
    Ok(())
}

/// What a page, or a comment, says of a file of the repository is there.
#[test]
fn every_named_path_exists() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut missing = Vec::new();
    for page in pages()? {
        for quoted in page.text.split('`').skip(1).step_by(2) {
            let dirs = ["src/", "tests/", "docs/", "deploy/", "benches/", "examples/"];
            let is_path = quoted.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
            if is_path && dirs.iter().any(|dir| quoted.starts_with(dir)) && !root.join(quoted).exists() {
                missing.push(format!("{}: {quoted}", page.path));
            }
        }
    }
    for file in files("src", ".rs")?.into_iter().chain(files("tests", ".rs")?) {
        for at in places_of(&file.text, "docs/") {
            let name = file.text[at..].split(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c)).next();
            let name = name.unwrap_or_default().trim_end_matches('.');
            if name.ends_with(".md") && !root.join(name).exists() {
                missing.push(format!("{}: {name}", file.path));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    Ok(())
}
