//! The order of modules, and how long files and functions are.

use dwell::model::error::Result;

use super::{File, block, files, line_of, places_of};

/// Lines of a file.
const FILE_LINES_MAX: usize = 600;

/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Rooms that are folders of modules: each of these has its own rank.
const FOLDERS: [&str; 6] = ["model", "platform", "telemetry", "coordination", "api", "app"];

/// The public modules that a file declares, in its order.
fn declared(sources: &[File], path: &str) -> Vec<String> {
    let code = sources.iter().find(|file| file.path == path).map(File::code).unwrap_or_default();
    let name = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    code.lines().filter_map(name).collect()
}

/// The modules bottom-up: rooms in the order of lib.rs, and in each folder the order of its mod.rs.
fn modules(sources: &[File]) -> Vec<String> {
    let in_room = |room: String| {
        let inner = declared(sources, &format!("src/{room}/mod.rs"));
        if FOLDERS.contains(&room.as_str()) {
            inner.into_iter().map(|module| format!("{room}::{module}")).collect()
        } else {
            vec![room]
        }
    };
    let modules: Vec<_> = declared(sources, "src/lib.rs").into_iter().flat_map(in_room).collect();
    assert!(modules.len() > 30, "{modules:?}");
    modules
}

/// The module that a path names, by its first one or two parts.
fn module_at(mut parts: impl Iterator<Item = String>) -> String {
    let room = parts.next().unwrap_or_default();
    if FOLDERS.contains(&room.as_str()) { format!("{room}::{}", parts.next().unwrap_or_default()) } else { room }
}

/// The module that a file is part of.
fn module_of(path: &str) -> String {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    module_at(inside.split('/').map(str::to_owned))
}

/// The module that code names after `crate::`.
fn module_used(code: &str) -> String {
    module_at(code.split("::").map(|part| part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()))
}

#[test]
fn a_module_uses_only_modules_above_it() -> Result<()> {
    let sources = files("src", ".rs")?;
    let modules = modules(&sources);
    let rank = |name: &str| modules.iter().position(|module| module == name);
    let mut wrong = Vec::new();
    let is_list = |path: &str| FOLDERS.iter().any(|room| path == format!("src/{room}/mod.rs"));
    let is_module = |file: &&File| !matches!(file.path.as_str(), "src/lib.rs" | "src/main.rs") && !is_list(&file.path);
    for file in sources.iter().filter(is_module) {
        let code = file.code();
        let own = rank(&module_of(&file.path));
        assert!(own.is_some(), "{} is of no module of lib.rs", file.path);
        for at in places_of(&code, "crate::") {
            let used = module_used(&code[at + "crate::".len()..]);
            // A list, `crate::{a, b}`, has no name here: one line for each module is easier to read.
            if rank(&used).is_none_or(|used| Some(used) > own) {
                wrong.push(format!("{}:{} uses crate::{used}", file.path, line_of(&code, at)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn the_two_stores_do_not_know_each_other() -> Result<()> {
    for (dir, other) in [("src/store/redis", "embedded"), ("src/store/embedded", "redis")] {
        for file in files(dir, ".rs")? {
            let code = file.code();
            for name in [format!("store::{other}"), format!("super::{other}")] {
                assert!(places_of(&code, &name).next().is_none(), "{} uses {name}", file.path);
            }
        }
    }
    Ok(())
}

#[test]
fn files_and_functions_are_short() -> Result<()> {
    let mut long = Vec::new();
    for file in files("src", ".rs")? {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            long.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", file.path));
        }
        let code = file.code();
        for at in places_of(&code, "fn") {
            // A function of a trait, or the type of one, has no body.
            let Some(body) = code[at..].find(['{', ';']).filter(|body| code[at + body..].starts_with('{')) else {
                continue;
            };
            let function = &code[at..at + body + block(&code[at + body..])];
            let lines = function.lines().count();
            if lines > FUNCTION_LINES_MAX {
                let head = function.lines().next().unwrap_or_default();
                let place = format!("{}:{}", file.path, line_of(&code, at));
                long.push(format!("{place}: {lines} lines, at most {FUNCTION_LINES_MAX}: {head}"));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
    Ok(())
}

#[test]
fn an_exception_from_a_lint_has_a_reason() -> Result<()> {
    let mut bare = Vec::new();
    for file in files("src", ".rs")?.into_iter().chain(files("tests", ".rs")?).chain(files("benches", ".rs")?) {
        for (number, line) in file.text.lines().enumerate() {
            let begins = ["#[allow(", "#![allow(", "#[expect(", "#![expect("].iter().any(|a| line.contains(a));
            let in_literal = line.contains("\"#[") || line.contains("\"#![");
            if begins && !in_literal && !line.contains("reason = ") && !line.contains("// ") {
                bare.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert!(bare.is_empty(), "{bare:#?}");
    Ok(())
}
