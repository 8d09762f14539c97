//! The order of modules, and how long files and functions are.

use dwell::model::error::Result;

use super::{File, block, files, line_of, places_of};

/// Lines of a file.
const FILE_LINES_MAX: usize = 500;

/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// The modules in the order of lib.rs, bottom-up.
fn modules(sources: &[File]) -> Vec<String> {
    let lib = sources.iter().find(|file| file.path == "src/lib.rs").map(File::code).unwrap_or_default();
    let name = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    let modules: Vec<_> = lib.lines().filter_map(name).collect();
    assert!(modules.len() > 15, "{modules:?}");
    modules
}

/// The module that a file is part of.
fn module_of(path: &str) -> &str {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

#[test]
fn a_module_uses_only_modules_above_it() -> Result<()> {
    let sources = files("src", ".rs")?;
    let modules = modules(&sources);
    let rank = |name: &str| modules.iter().position(|module| module == name);
    let mut wrong = Vec::new();
    for file in sources.iter().filter(|file| !matches!(file.path.as_str(), "src/lib.rs" | "src/main.rs")) {
        let code = file.code();
        let own = rank(module_of(&file.path));
        assert!(own.is_some(), "{} is of no module of lib.rs", file.path);
        for at in places_of(&code, "crate::") {
            let used = code[at + "crate::".len()..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
            // A list, `crate::{a, b}`, has no name here: one line for each module is easier to read.
            if used.and_then(rank).is_none_or(|used| Some(used) > own) {
                wrong.push(format!("{}:{} uses crate::{}", file.path, line_of(&code, at), used.unwrap_or_default()));
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
