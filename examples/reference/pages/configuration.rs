//! The configuration: keys and defaults from the code, descriptions from the comments of deploy/dwell.toml.

use dwell::app::config::{KEYS, Sources, TOKEN_KEYS, WEBHOOK_KEYS, settings, show};
use dwell::model::error::{Error, Result};

use super::table;

/// The shipped file. It has every key, each behind its comment.
const FILE: &str = include_str!("../../../deploy/dwell.toml");

const HEAD: &str = "\
# Configuration

This page lists every key of the configuration. There are three ways to set a key: in one TOML file (`dwell serve --config FILE`), as an
environment variable, and for some keys as a flag. A flag wins over the environment, the environment over the file. The variable of
`redis.url` is `DWELL_REDIS_URL`, and so on for every key. Durations are text with a unit, such as `30s`. An unknown key is an error. `dwell config check --config FILE` lists everything that is wrong;
`dwell config show --config FILE` prints the values in force and where each comes from. The file `deploy/dwell.toml` has every
key at its default.
";

/// A key of the shipped file.
struct Entry {
    /// With its section, as in `redis.url`.
    key: String,
    value: String,
    comment: String,
}

/// Every key of the shipped file, also those that are commented out, and the comments that stand before a section.
fn entries(known: &[String]) -> (Vec<Entry>, Vec<(String, String)>) {
    let (mut entries, mut sections) = (Vec::new(), Vec::new());
    let (mut section, mut comment) = (String::new(), String::new());
    for line in FILE.lines() {
        let bare = line.trim_start_matches("# ");
        let name = bare.split_once(" = ").map(|(name, _)| format!("{section}{name}"));
        if let Some(title) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{}.", title.trim_matches(['[', ']']));
            sections.push((section.clone(), std::mem::take(&mut comment)));
        } else if let Some(key) = name.filter(|name| known.contains(name)) {
            let value = bare.split_once(" = ").map(|(_, value)| value.to_owned()).unwrap_or_default();
            entries.push(Entry { key, value, comment: std::mem::take(&mut comment) });
        } else if line.is_empty() {
            comment.clear();
        } else {
            comment = format!("{comment} {}", line.trim_start_matches(['#', ' ']));
        }
    }
    (entries, sections)
}

/// The default of every key, as `dwell config show` prints it; empty if it has none.
fn defaults() -> Result<Vec<(String, String)>> {
    let home = ("HOME".into(), "/home/me".into());
    let sources = Sources { env: vec![home], ..Sources::default() };
    let shown = show(&settings(&sources).map_err(|errors| Error::bug(errors.to_string()))?);
    let (mut section, mut all) = (String::new(), Vec::new());
    for line in shown.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((name, rest)) = line.split_once(" =") {
            let value = rest.split('#').next().unwrap_or_default().trim().trim_matches('"');
            let value = value.replace("/home/me", "~");
            all.push((format!("{section}{}", name.trim_start_matches("# ")), value));
        }
    }
    Ok(all)
}

fn quoted(value: &str) -> String {
    if value.is_empty() { "none".to_owned() } else { format!("`{value}`") }
}

pub(super) fn page() -> Result<String> {
    let tables = [("auth.token", &TOKEN_KEYS[..]), ("webhook", &WEBHOOK_KEYS[..])];
    let of_tables = tables.iter().flat_map(|(name, keys)| keys.iter().map(move |key| format!("{name}.{key}")));
    let known: Vec<String> = KEYS.iter().map(|key| (*key).to_owned()).chain(of_tables).collect();
    let (entries, sections) = entries(&known);
    let defaults = defaults()?;
    let find = |key: &str| entries.iter().find(|entry| entry.key == key && !entry.comment.is_empty());
    for key in &known {
        find(key).ok_or_else(|| Error::bug(format!("deploy/dwell.toml has no comment before {key}")))?;
    }
    let intro = |section: &str| {
        let found = sections.iter().find(|(name, text)| name == section && !text.is_empty());
        found.map(|(_, text)| format!("{}\n\n", text.trim())).unwrap_or_default()
    };
    let mut text = HEAD.to_owned();
    let mut names: Vec<&str> = KEYS.iter().map(|key| key.rsplit_once('.').map_or("", |(section, _)| section)).collect();
    names.dedup();
    for section in names {
        let mine = KEYS.iter().filter(|key| key.rsplit_once('.').map_or("", |(name, _)| name) == section);
        let rows: Vec<_> = mine
            .map(|key| {
                let default = defaults.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
                let comment = find(key).map(|entry| entry.comment.clone()).unwrap_or_default();
                [format!("`{key}`"), quoted(default.unwrap_or_default()), comment]
            })
            .collect();
        let title = if section.is_empty() { "General" } else { section };
        let intro = intro(&format!("{section}."));
        text.push_str(&format!("\n## {title}\n\n{intro}{}", table(["key", "default", "meaning"], &rows)));
    }
    for (name, keys) in tables {
        let row = |key: &&str| {
            let entry = find(&format!("{name}.{key}"));
            let value = entry.map(|entry| format!("`{}`", entry.value)).unwrap_or_default();
            [format!("`{key}`"), value, entry.map(|entry| entry.comment.clone()).unwrap_or_default()]
        };
        let rows: Vec<_> = keys.iter().map(row).collect();
        let intro = intro(&format!("{name}."));
        text.push_str(&format!("\n## {name}\n\n{intro}{}", table(["key", "in the file", "meaning"], &rows)));
    }
    Ok(text)
}
