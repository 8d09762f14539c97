//! The code is as docs/internals/architecture.md says: what each part never does, and what every page has to name.

mod restrictions;
mod logs;
mod mutants;
mod pages;
mod scripts;
mod structure;
mod site;
mod supply_chain;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use dwell::model::error::Result;

use crate::support::failed;

/// A file of the repository.
pub(crate) struct File {
    /// From the root, as in `src/store/mod.rs`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files below a directory of the repository whose names end so, sorted.
fn files(dir: &str, ending: &str) -> Result<Vec<File>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut dirs: Vec<PathBuf> = vec![root.join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(failed("a directory of the repository"))? {
            let path = entry.map_err(failed("an entry"))?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_dir() {
                // What was built or installed is not of the repository.
                if !["target", "node_modules", "package"].iter().any(|built| path.ends_with(built)) {
                    dirs.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(File { path: name, text: fs::read_to_string(&path).map_err(failed("a file"))? });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "nothing in {dir} ends with {ending}");
    Ok(found)
}

/// All pages: the ones of the root and of docs.
pub(crate) fn pages() -> Result<Vec<File>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = files("docs", ".md")?;
    for name in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"] {
        pages.push(File { path: name.to_owned(), text: fs::read_to_string(root.join(name)).map_err(failed(name))? });
    }
    Ok(pages)
}

impl File {
    /// Whether it holds nothing but unit tests.
    fn is_test(&self) -> bool {
        ["/tests.rs", "/testing.rs"].iter().any(|name| self.path.ends_with(name))
    }

    /// The code alone: comments and the insides of literals are blank, lines stay where they are.
    fn code(&self) -> String {
        let (mut code, mut rest) = (String::with_capacity(self.text.len()), self.text.as_str());
        while let Some(first) = rest.chars().next() {
            let length = token(rest, &code);
            let (token, behind) = rest.split_at(length);
            if length == first.len_utf8() {
                code.push(first);
            } else {
                code.extend(token.chars().map(|c| if c == '\n' { c } else { ' ' }));
            }
            rest = behind;
        }
        code
    }

    /// The code without its unit tests.
    fn shipped(&self) -> String {
        let mut code = if self.is_test() { String::new() } else { self.code() };
        while let Some(from) = code.find("#[cfg(test)]") {
            let body = code[from..].find(['{', ';']).map_or(code.len(), |at| from + at);
            let to = if code[body..].starts_with('{') { body + block(&code[body..]) } else { body };
            let blank: String = code[from..to].chars().filter(|c| *c == '\n').collect();
            code.replace_range(from..to, &blank);
        }
        code
    }
}

/// How long the comment or literal at the beginning of `rest` is; one character if there is none.
fn token(rest: &str, before: &str) -> usize {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    let in_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    if !in_word && let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            return until(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
        }
    }
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else { return rest.chars().next().map_or(0, char::len_utf8) };
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            // A lifetime, not a character.
            _ if quote == '\'' && at > 1 && !rest[1..].starts_with('\\') => return 1,
            _ => {}
        }
    }
    rest.len()
}

/// How long the block is that begins here with a brace, with both braces.
fn block(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Where a word stands in code or text, with nothing of a longer word around it.
fn places_of<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let longer_before = word.starts_with(part) && text[..*at].ends_with(part);
        let longer_behind = word.ends_with(part) && text[at + word.len()..].starts_with(part);
        !longer_before && !longer_behind
    })
}

/// The number of the line that holds this byte, from 1 on.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn comments_literals_and_unit_tests_are_separated_from_code() {
    let text = "fn a<'x>() { let s = \"} // \\\" {\"; let c = '{'; } // }\n/* { */ let r = r#\"\"{\"#;\n\
                #[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}\n";
    let file = File { path: "src/a.rs".to_owned(), text: text.to_owned() };
    let squeezed = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let code = file.code();
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(
        squeezed(code),
        "fn a<'x>() { let s = ; let c = ; } let r = ; #[cfg(test)] mod tests { fn b() {} } fn c() {}"
    );
    assert_eq!(squeezed(file.shipped()), "fn a<'x>() { let s = ; let c = ; } let r = ; fn c() {}");
    assert_eq!(places_of("redis::a xredis:: redis::", "redis::").collect::<Vec<_>>(), [0, 18]);
}
