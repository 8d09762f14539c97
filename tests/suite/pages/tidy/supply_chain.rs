//! What dwell is built of, and what is read from strangers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dwell::model::error::Result;

use super::{File, files, pages};
use crate::support::failed;

const LOCK: &str = include_str!("../../../../Cargo.lock");
const MANIFEST: &str = include_str!("../../../../Cargo.toml");

/// Crates that only the fuzzer is built of.
const FUZZER: [&str; 6] = ["arbitrary", "cap", "dwell-fuzz", "jobserver", "libfuzzer-sys", "roxmltree"];

/// Cargo's commands that choose versions unless they are told not to.
const CHOOSING: [&str; 9] = ["build", "run", "test", "bench", "install", "check", "clippy", "doc", "rustc"];

fn text(name: &str) -> Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).map_err(failed(name))
}

/// The crates of a lock file, as in `serde 1.0.0`.
fn crates(lock: &str) -> BTreeSet<String> {
    let part =
        |package: &str, key: &str| Some(package.split_once(&format!("{key} = \""))?.1.split('"').next()?.to_owned());
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| Some(format!("{} {}", part(package, "\nname")?, part(package, "\nversion")?)))
        .collect()
}

#[test]
fn fuzzer_uses_the_same_locked_crates() -> Result<()> {
    let fuzz = text("fuzz/Cargo.lock")?;
    let (own, all) = (crates(&fuzz), crates(LOCK));
    assert!(own.len() > 100, "{own:?}");
    let is_extra = |name: &&String| FUZZER.contains(&name.split(' ').next().unwrap_or_default());
    let others: Vec<_> = own.difference(&all).filter(|name| !is_extra(name)).collect();
    assert!(others.is_empty(), "run `make fuzz-lock`: {others:?}");
    let section = MANIFEST.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or_default();
    let needed = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let dwell = fuzz.split("[[package]]").find(|package| package.contains("name = \"dwell\"")).unwrap_or_default();
    let missing: Vec<_> = needed.filter(|name| !dwell.contains(&format!("\"{name}"))).collect();
    assert!(missing.is_empty(), "run `make fuzz-lock`: {missing:?}");
    Ok(())
}

/// Both crates are released together.
#[test]
fn client_has_the_version_of_the_broker() -> Result<()> {
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text("clients/rust/Cargo.toml")?.lines().any(|line| line == version), "{version}");
    let needed = MANIFEST.lines().find(|line| line.starts_with("dwell-client = ")).unwrap_or_default();
    assert!(needed.contains(&version), "{needed}");
    Ok(())
}

#[test]
fn every_fuzz_target_has_a_corpus_and_documentation() -> Result<()> {
    let (main, page) = (text("fuzz/src/main.rs")?, text("fuzz/README.md")?);
    let quoted = |line: &str| Some(line.trim().strip_prefix("(\"")?.split('"').next()?.to_owned());
    let targets: BTreeSet<String> = main.lines().filter_map(quoted).collect();
    assert!(targets.len() > 10, "{targets:?}");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    assert_eq!(page.lines().filter_map(row).collect::<BTreeSet<_>>(), targets);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for target in &targets {
        let inputs = fs::read_dir(root.join(target)).map_err(failed(target))?.count();
        assert!(inputs > 3, "{target} has {inputs} inputs");
    }
    assert_eq!(fs::read_dir(&root).map_err(failed("fuzz/corpus"))?.count(), targets.len());
    Ok(())
}

/// What is built is what was tested: the versions of Cargo.lock, and no later ones.
#[test]
fn builds_use_locked_dependencies_only() -> Result<()> {
    let mut all: Vec<File> = pages()?.into_iter().filter(|page| page.path != "CHANGELOG.md").collect();
    all.extend(files("deploy", "")?);
    for name in ["Makefile", ".ci/run", "fuzz/run", "fuzz/README.md"] {
        all.push(File { path: name.to_owned(), text: text(name)? });
    }
    let mut open = Vec::new();
    for file in all {
        for (number, line) in file.text.lines().enumerate() {
            for (at, _) in line.match_indices("cargo ") {
                let mut words = line[at..].split(['`', '"', '|', ')']).next().unwrap_or_default().split(' ').skip(1);
                let chooses = words.next().is_some_and(|word| CHOOSING.contains(&word));
                if chooses && !words.any(|word| word == "--locked") {
                    open.push(format!("{}:{}: {}", file.path, number + 1, line[at..].trim()));
                }
            }
        }
    }
    assert!(open.is_empty(), "--locked is missing: {open:#?}");
    Ok(())
}

/// The crates of which more than one version is locked; and what `make deny` says of them.
#[test]
fn locked_crates_have_permitted_licences() -> Result<()> {
    // Of other systems: locked, and not built.
    const ELSEWHERE: [&str; 3] = ["r-efi", "redox_syscall", "windows-sys"];
    let deny = text("deny.toml")?;
    for package in LOCK.split("[[package]]").skip(1) {
        let source = package.lines().find(|line| line.starts_with("source = "));
        let is_known = source.is_none_or(|source| source.contains("github.com/rust-lang/crates.io-index"));
        assert!(is_known, "{package}");
    }
    let quoted = |list: &str| -> Vec<String> {
        let rows = deny.split(&format!("\n{list} = [\n")).nth(1).and_then(|rest| rest.split("\n]").next());
        rows.unwrap_or_default().lines().filter_map(|row| Some(row.split('"').nth(1)?.to_owned())).collect()
    };
    let (all, banned, skipped) = (crates(LOCK), quoted("deny"), quoted("skip"));
    assert!(banned.len() > 2 && skipped.len() > 5, "{banned:?} {skipped:?}");
    let name = |entry: &str| entry.split(' ').next().unwrap_or_default().to_owned();
    let found: Vec<_> = all.iter().filter(|entry| banned.contains(&name(entry))).collect();
    assert!(found.is_empty(), "{found:?}");
    let is_skipped = |entry: &str| skipped.iter().any(|skip| entry.starts_with(&skip.replace('@', " ")));
    let left: Vec<_> = all.iter().map(String::as_str).filter(|entry| !is_skipped(entry)).map(name).collect();
    let twice: Vec<_> = left.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    let surplus: Vec<_> = twice.into_iter().filter(|name| !ELSEWHERE.contains(&name.as_str())).collect();
    assert!(surplus.is_empty(), "more than one version of {surplus:?}: deny.toml has to say why");
    Ok(())
}
