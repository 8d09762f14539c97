//! The order of modules, circles of imports, and how long files and functions are.

use std::collections::{BTreeMap, BTreeSet};

use dwell::model::error::Result;

use super::{File, block, files, line_of, places_of};

/// Lines of a file.
const FILE_LINES_MAX: usize = 600;

/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Rooms that are folders of modules: each of these has its own rank.
const FOLDERS: [&str; 6] = ["model", "platform", "telemetry", "coordination", "api", "app"];

/// The modules that a file declares, in its order.
fn modules_declared(sources: &[File], path: &str) -> Vec<String> {
    let code = sources.iter().find(|file| file.path == path).map(File::code).unwrap_or_default();
    let name = |line: &str| {
        let declaration = ["pub mod ", "pub(crate) mod ", "pub(super) mod ", "mod "];
        Some(declaration.iter().find_map(|words| line.strip_prefix(words))?.strip_suffix(';')?.to_owned())
    };
    code.lines().filter_map(name).collect()
}

/// The modules bottom-up: rooms in the order of lib.rs, and in each folder the order of its mod.rs.
fn modules(sources: &[File]) -> Vec<String> {
    let in_room = |room: String| {
        let inner = modules_declared(sources, &format!("src/{room}/mod.rs"));
        if FOLDERS.contains(&room.as_str()) {
            inner.into_iter().map(|module| format!("{room}::{module}")).collect()
        } else {
            vec![room]
        }
    };
    let modules: Vec<_> = modules_declared(sources, "src/lib.rs").into_iter().flat_map(in_room).collect();
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

/// The parts of a path, such as `crate::wal::log`.
type Parts = Vec<String>;

/// The module of a file: `wal::log` for src/wal/log.rs, `wal` for src/wal/mod.rs.
fn parts_of_file(path: &str) -> Parts {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').filter(|part| !["mod", "lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// Every path of a `use` tree, such as `a::{b, c::{self, D as E}}`.
fn flatten(prefix: &str, tree: &str) -> Vec<Parts> {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = format!("{prefix}{}", tree.split(" as ").next().unwrap_or_default());
        return vec![path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()];
    };
    let prefix = format!("{prefix}{head}");
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in rest.trim_end().trim_end_matches('}').chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match items.last_mut() {
            Some(item) if c != ',' || depth > 0 => item.push(c),
            _ => items.push(String::new()),
        }
    }
    items.iter().filter(|item| !item.trim().is_empty()).flat_map(|item| flatten(&prefix, item)).collect()
}

/// The paths that code names, and whether each is exported again.
fn paths_in(code: &str) -> Vec<(Parts, bool)> {
    let (mut paths, mut rest) = (Vec::new(), String::new());
    let mut from = 0;
    for at in
        places_of(code, "use").filter(|at| code[..*at].trim_end().ends_with([';', '}', '{', ')', ']', 'b']) || *at == 0)
    {
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        let before = code[..at].rsplit([';', '}', '{', ']']).next().unwrap_or_default();
        let is_exported = before.trim_start().starts_with("pub");
        paths.extend(flatten("", &code[at + "use".len()..end]).into_iter().map(|path| (path, is_exported)));
        rest.push_str(&code[from..at]);
        from = end;
    }
    rest.push_str(&code[from..]);
    let path = |text: &str| text.split("::").map(str::to_owned).collect();
    let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    paths.extend(words.filter(|word| word.contains("::")).map(|word| (path(word.trim_matches(':')), false)));
    paths
}

/// The module that a path leads to from another one, and the name in it.
fn lead(path: &[String], here: &Parts, modules: &BTreeSet<Parts>) -> Option<(Parts, String)> {
    let within = |base: &Parts, part: &String| [base.as_slice(), std::slice::from_ref(part)].concat();
    let (mut base, mut rest) = (here.clone(), path);
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Parts::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        _ if modules.contains(&within(&base, &rest[0])) => {}
        _ => return None,
    }
    while let Some((part, inner)) = rest.split_first()
        && modules.contains(&within(&base, part))
    {
        (base, rest) = (within(&base, part), inner);
    }
    Some((base, rest.first().cloned().unwrap_or_default()))
}

/// Which modules each module imports: those that define what it names, wherever they are exported again. A folder's file and
/// those in the folder are one family, whose imports are not among them; unit tests are not looked at.
fn imports(sources: &[File]) -> BTreeMap<Parts, BTreeSet<Parts>> {
    let files: Vec<_> = sources.iter().filter(|file| !file.is_test() && file.path != "src/main.rs").collect();
    let modules: BTreeSet<Parts> = files.iter().map(|file| parts_of_file(&file.path)).collect();
    let (mut uses, mut exports) = (Vec::new(), BTreeMap::new());
    for file in &files {
        let here = parts_of_file(&file.path);
        for (path, is_exported) in paths_in(&file.shipped()) {
            let Some((module, name)) = lead(&path, &here, &modules) else { continue };
            if is_exported {
                exports.insert((here.clone(), name.clone()), (module.clone(), name.clone()));
            }
            uses.push((here.clone(), (module, name)));
        }
    }
    let mut imports: BTreeMap<Parts, BTreeSet<Parts>> = BTreeMap::new();
    for (here, mut used) in uses {
        while let Some(origin) = exports.get(&used).filter(|origin| **origin != used) {
            used = origin.clone();
        }
        let is_family = used.0.starts_with(&here) || here.starts_with(&used.0);
        if !is_family {
            imports.entry(here).or_default().insert(used.0);
        }
    }
    imports
}

/// Imports of a module that the folder of both declares below the importing one.
fn out_of_order(sources: &[File]) -> Vec<String> {
    let declared = |folder: &[String]| {
        let file = match folder.join("/").as_str() {
            "" => vec!["src/lib.rs".to_owned()],
            folder => vec![format!("src/{folder}/mod.rs"), format!("src/{folder}.rs")],
        };
        file.iter().flat_map(|path| modules_declared(sources, path)).collect::<Vec<_>>()
    };
    let mut wrong = Vec::new();
    for (here, used) in imports(sources).iter().flat_map(|(here, all)| all.iter().map(move |used| (here, used))) {
        let shared = here.iter().zip(used).take_while(|(a, b)| a == b).count();
        let order = declared(&here[..shared]);
        let rank = |part: &String| order.iter().position(|module| module == part);
        if rank(&used[shared]).is_none_or(|used| Some(used) > rank(&here[shared])) {
            wrong.push(format!("{} uses {}", here.join("::"), used.join("::")));
        }
    }
    wrong
}

/// Files that import each other in a circle, with what they import.
fn circles(sources: &[File]) -> BTreeMap<String, BTreeSet<String>> {
    let imports = imports(sources);
    let within = |(here, used): (&Parts, &BTreeSet<Parts>)| {
        let back: BTreeSet<_> = used.iter().filter(|used| leads_to(&imports, used, here)).collect();
        (here.join("::"), back.into_iter().map(|used| used.join("::")).collect::<BTreeSet<_>>())
    };
    imports.iter().map(within).filter(|(_, back)| !back.is_empty()).collect()
}

/// Whether a module imports another one, by whatever way.
fn leads_to(imports: &BTreeMap<Parts, BTreeSet<Parts>>, from: &Parts, to: &Parts) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    false
}

#[test]
fn modules_of_a_folder_use_only_those_above_them() -> Result<()> {
    let wrong = out_of_order(&files("src", ".rs")?);
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn imports_of_a_module_below_are_detected() {
    let file = |(path, text): &(&str, &str)| File { path: format!("src/{path}"), text: (*text).to_owned() };
    let found = |sources: &[(&str, &str)]| out_of_order(&sources.iter().map(file).collect::<Vec<_>>()).join(", ");
    let lib = ("lib.rs", "pub mod low;\npub mod high;\n");
    let room = ("low/mod.rs", "mod a;\npub(crate) mod b;\npub use self::b::B;\n");
    assert_eq!(
        found(&[lib, room, ("low/a.rs", ""), ("low/b.rs", "use super::a::A;"), ("high.rs", "use crate::low::B;")]),
        ""
    );
    // What the folder's file exports again counts as the module that has it; a path without `use` counts too.
    assert_eq!(found(&[lib, room, ("low/a.rs", "use super::B;"), ("low/b.rs", "")]), "low::a uses low::b");
    assert_eq!(
        found(&[lib, room, ("low/a.rs", "fn a() { crate::high::f() }"), ("low/b.rs", ""), ("high.rs", "")]),
        "low::a uses high"
    );
}

#[test]
fn files_have_no_import_cycles() -> Result<()> {
    let circles = circles(&files("src", ".rs")?);
    assert!(circles.is_empty(), "{circles:#?}");
    Ok(())
}

#[test]
fn import_cycles_are_detected() {
    let found = |sources: &[(&str, &str)]| {
        let file = |(path, text): &(&str, &str)| File { path: format!("src/{path}"), text: (*text).to_owned() };
        circles(&sources.iter().map(file).collect::<Vec<_>>()).into_keys().collect::<Vec<_>>().join(" ")
    };
    let room = "mod a;\nmod b;\nmod c;\npub use self::b::{B, Sub as Other};\nuse a::A;\n";
    let a = "use super::{B, c::C};\nfn a(b: B) {}\n";
    let harmless = "// use super::a::A;\n#[cfg(test)]\nmod tests { use super::super::a::A; }\n";
    assert_eq!(found(&[("r/mod.rs", room), ("r/a.rs", a), ("r/b.rs", harmless), ("r/c.rs", harmless)]), "");
    // Through an export of the folder's file, a nested tree, and a path without `use`.
    assert_eq!(
        found(&[("r/mod.rs", room), ("r/a.rs", a), ("r/b.rs", "use std::fmt;\nuse crate::r::{a::{self, A}};")]),
        "r::a r::b"
    );
    assert_eq!(
        found(&[("r/mod.rs", room), ("r/a.rs", a), ("r/b.rs", ""), ("r/c.rs", "fn c() { super::a::f() }")]),
        "r::a r::c"
    );
    let ring = [
        ("x.rs", "use crate::y::Y;"),
        ("y.rs", "pub use crate::z::Z;"),
        ("z.rs", "use crate::x;"),
        ("w.rs", "use crate::x::X;"),
    ];
    assert_eq!(found(&ring), "x y z");
}

#[test]
fn stores_do_not_depend_on_each_other() -> Result<()> {
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
fn every_lint_exception_has_a_reason() -> Result<()> {
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
