//! The site: docs/SUMMARY.md lists every page once, links stay inside the book, and sentences are plain.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use dwell::model::error::Result;

use super::pages::links;
use super::{File, files, line_of, places_of};
use crate::support::failed;

const SUMMARY: &str = include_str!("../../../../docs/SUMMARY.md");

/// The page of docs/ that is no chapter.
const NO_CHAPTER: &str = "docs/SUMMARY.md";

/// Its texts are the help texts of the code.
const METRICS: &str = "docs/reference/metrics.md";

/// Ways to begin or to end a thought that a reader has to read twice.
pub(super) const UNCLEAR: [&str; 15] = [
    "of its own",
    "of their own",
    "so long as",
    "for ever",
    "in place of",
    "lives",
    "mend",
    "mends",
    "is away",
    "comes again",
    "goes on",
    "has to follow from",
    "which is there",
    "how-manieth",
    "as many again",
];

/// Every page of docs/ that is a chapter.
fn chapters() -> Result<Vec<File>> {
    Ok(files("docs", ".md")?.into_iter().filter(|page| page.path != NO_CHAPTER).collect())
}

/// A path without `..`; `None` if it leads out of the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !plain.pop() => return None,
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    Some(plain)
}

#[test]
fn the_summary_lists_every_page_once() -> Result<()> {
    let listed: Vec<String> = links(SUMMARY).map(|link| format!("docs/{link}")).collect();
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice: {listed:#?}");
    let chapters = chapters()?;
    assert_eq!(once, chapters.iter().map(|page| &page.path).collect::<BTreeSet<_>>());
    Ok(())
}

/// The site has what is below docs/, and nothing else of the repository.
/// A page that shows pictures stays light: each has less than 200 kB.
#[test]
fn pictures_of_pages_are_small() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pictures = 0;
    for page in chapters()? {
        let here = root.join(&page.path).with_file_name("");
        for link in links(&page.text).filter(|link| link.ends_with(".png")) {
            let bytes = std::fs::metadata(here.join(link)).map_err(failed("a picture"))?.len();
            assert!(bytes < 200_000, "{}: {link} has {bytes} bytes", page.path);
            pictures += 1;
        }
    }
    assert!(pictures > 0, "no page shows a picture");
    Ok(())
}

#[test]
fn links_of_the_site_stay_inside_the_book() -> Result<()> {
    let chapters = chapters()?;
    let names: BTreeSet<&str> = chapters.iter().map(|page| page.path.as_str()).collect();
    let mut wrong = Vec::new();
    for page in &chapters {
        let here = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for link in links(&page.text).filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap_or_default();
            let target = plain(&here.join(file)).unwrap_or_default();
            let target = target.to_string_lossy();
            let is_there = if target.ends_with(".md") { names.contains(&*target) } else { target.starts_with("docs/") };
            if !is_there {
                wrong.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// The text of a page without its code: blocks, and spans such as the lines of the log.
fn prose(text: &str) -> String {
    let mut in_code = false;
    let mut keep = |line: &str| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    };
    let text: String =
        text.lines().map(|line| if keep(line) { format!("{line}\n") } else { "\n".to_owned() }).collect();
    let blank = |span: &str| span.chars().map(|c| if c == '\n' { c } else { '_' }).collect::<String>();
    let parts = text.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { blank(part) } else { part.to_owned() }).collect()
}

/// A sentence that begins with `Who` or `What` and is no question has no subject that a reader recognises.
fn headless(sentence: &str) -> bool {
    let first = sentence.split_whitespace().next().unwrap_or_default();
    ["Who", "Whoever", "What", "Whatever"].contains(&first) && !sentence.trim_end().ends_with('?')
}

pub(super) fn unclear(page: &File) -> Vec<String> {
    let text = prose(&page.text);
    let found = UNCLEAR.iter().flat_map(|words| places_of(&text, words).map(move |at| (at, words)));
    let mut wrong: Vec<_> =
        found.map(|(at, words)| format!("{}:{}: `{words}`", page.path, line_of(&text, at))).collect();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.starts_with(['#', '|'])) {
        for sentence in paragraph.split_inclusive(['.', '?', ':']).filter(|sentence| headless(sentence)) {
            wrong.push(format!("{}: {}", page.path, sentence.trim()));
        }
    }
    wrong
}

#[test]
fn docs_avoid_unclear_phrases() -> Result<()> {
    let pages = chapters()?;
    let new = pages.iter().filter(|page| page.path != METRICS);
    let wrong: Vec<_> = new.flat_map(unclear).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let bad = "It works. Who lost it cannot.\n\n```\nfor ever\n```\n\nThe key is away, of its own, `for ever`.\n";
    let found = unclear(&File { path: "x.md".to_owned(), text: bad.to_owned() });
    assert_eq!(found.len(), 3, "{found:#?}");
    Ok(())
}
