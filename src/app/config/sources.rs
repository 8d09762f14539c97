//! Where the values of a configuration come from, and which of them wins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use config::{FileFormat, Map, Source, Value, ValueKind};

use super::errors::ConfigError;
use super::keys::{KEYS, env_name, is_foreign};
use super::tokens::{TOKEN_KEYS, TOKENS};
use super::webhooks::{WEBHOOK_KEYS, WEBHOOKS};
use crate::model::spelling::nearest;

/// Bytes of a configuration file, and of a file that holds a secret. A device or a log given by mistake is not read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What there may be any number of, each a table: their name, and the keys of one.
const TABLES: [(&str, &[&str]); 2] = [(WEBHOOKS, &WEBHOOK_KEYS), (TOKENS, &TOKEN_KEYS)];

/// What errors call a key of one of several tables, counted from 0.
pub(super) fn item_key(tables: &str, n: usize, name: &str) -> String {
    match name {
        "" => format!("{tables}[{n}]"),
        name => format!("{tables}[{n}].{name}"),
    }
}

/// Everything a configuration is made of. Any part of it may be a secret, so it cannot be printed; [`super::show()`] masks.
#[derive(Clone, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// The environment; `DWELL_*`, `XDG_STATE_HOME` and `HOME` are looked at.
    pub env: Vec<(OsString, OsString)>,
    /// Flags of the command line.
    pub flags: Vec<Flag>,
}

/// A key given as a flag.
#[derive(Clone)]
pub struct Flag {
    /// The key.
    pub key: &'static str,
    /// The flag, as in `--listen`.
    pub flag: &'static str,
    /// The value.
    pub value: String,
}

impl Sources {
    /// The directory for what has to survive a restart: `$XDG_STATE_HOME/dwell` or `~/.local/state/dwell`.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        let absolute = |name: &str| {
            let path = self.env.iter().find(|(variable, _)| variable == name).map(|(_, value)| PathBuf::from(value))?;
            path.is_absolute().then_some(path)
        };
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        Some(state.join("dwell"))
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag.
    Flag(&'static str),
}

impl Origin {
    /// How strong it is: the stronger wins.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::File(_) => 1,
            Origin::Env(_) => 2,
            Origin::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Env(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value as it was written.
#[derive(Clone, PartialEq)]
pub(super) enum Raw {
    /// A text, a number or a truth value.
    Text(String),
    /// A list of those.
    List(Vec<String>),
    /// Something else.
    Other(&'static str),
}

/// The winning value of every key that was given, and where each of several tables came from.
#[derive(Default)]
pub(super) struct Layers {
    values: BTreeMap<String, (Raw, Origin)>,
    tables: BTreeMap<&'static str, Vec<Origin>>,
}

impl Layers {
    /// Reads all sources, the weakest first, and says what is wrong with them so far.
    pub(super) fn read(sources: &Sources) -> (Layers, Vec<ConfigError>) {
        let (mut layers, mut errors) = (Layers::default(), Vec::new());
        if let Some(path) = &sources.file {
            layers.read_file(path, &mut errors);
        }
        layers.read_env(&sources.env, &mut errors);
        for flag in &sources.flags {
            layers.set(flag.key, (Raw::Text(flag.value.clone()), Origin::Flag(flag.flag)));
        }
        (layers, errors)
    }

    /// The winning value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&(Raw, Origin)> {
        self.values.get(key)
    }

    /// Where the value of a key came from.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.get(key).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Where each of several tables came from.
    pub(super) fn tables(&self, name: &str) -> &[Origin] {
        self.tables.get(name).map_or(&[], Vec::as_slice)
    }

    fn set(&mut self, key: &str, value: (Raw, Origin)) {
        self.values.insert(key.to_owned(), value);
    }

    fn read_file(&mut self, path: &Path, errors: &mut Vec<ConfigError>) {
        let origin = Origin::File(path.to_owned());
        let read = read_text(path).and_then(|text| {
            let file = config::File::from_str(&text, FileFormat::Toml);
            file.collect().map_err(|error| unquoted(&error.to_string()))
        });
        match read {
            Ok(table) => self.read_table("", table, &origin, errors),
            Err(problem) => errors.push(whole("the file", origin, problem)),
        }
    }

    fn read_table(&mut self, above: &str, table: Map<String, Value>, origin: &Origin, errors: &mut Vec<ConfigError>) {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, value) in entries {
            let path = if above.is_empty() { name } else { format!("{above}.{name}") };
            let inside = format!("{path}.");
            let section = KEYS.into_iter().chain(TABLES.map(|(tables, _)| tables)).any(|key| key.starts_with(&inside));
            if let Some((name, keys)) = TABLES.into_iter().find(|(tables, _)| *tables == path) {
                self.read_tables(name, keys, value.kind, origin, errors);
                continue;
            }
            match (KEYS.iter().find(|key| **key == path), value.kind) {
                (Some(key), kind) => {
                    self.set(key, (raw(kind), origin.clone()));
                }
                (None, ValueKind::Table(inner)) if section => self.read_table(&path, inner, origin, errors),
                (None, _) if section => errors.push(whole(&path, origin.clone(), "is a section, not a key".into())),
                (None, _) => errors.push(unknown(&path, origin.clone(), nearest(&path, KEYS.into_iter()))),
            }
        }
    }

    fn read_tables(
        &mut self,
        name: &'static str,
        keys: &[&'static str],
        kind: ValueKind,
        origin: &Origin,
        errors: &mut Vec<ConfigError>,
    ) {
        let ValueKind::Array(tables) = kind else {
            return errors.push(whole(name, origin.clone(), format!("is one of many: write [[{name}]]")));
        };
        for (n, table) in tables.into_iter().enumerate() {
            self.tables.entry(name).or_default().push(origin.clone());
            let ValueKind::Table(table) = table.kind else {
                let problem = format!("is no table: write [[{name}]]");
                errors.push(whole(&item_key(name, n, ""), origin.clone(), problem));
                continue;
            };
            let mut entries: Vec<_> = table.into_iter().collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            for (given, value) in entries {
                let key = item_key(name, n, &given);
                match keys.contains(&given.as_str()) {
                    true => self.set(&key, (raw(value.kind), origin.clone())),
                    false => errors.push(unknown(&key, origin.clone(), nearest(&given, keys.iter().copied()))),
                }
            }
        }
    }

    fn read_env(&mut self, env: &[(OsString, OsString)], errors: &mut Vec<ConfigError>) {
        let keys: BTreeMap<String, &'static str> = KEYS.into_iter().map(|key| (env_name(key), key)).collect();
        let mut ours: Vec<_> = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value))).collect();
        ours.retain(|(name, _)| name.starts_with("DWELL_"));
        ours.sort();
        for (name, value) in ours {
            let origin = Origin::Env(name.to_owned());
            match (keys.get(name), value.to_str()) {
                // An empty variable is how compose files and shells say "not set".
                (Some(_), Some("")) => {}
                (Some(key), Some(text)) => {
                    self.set(key, (Raw::Text(text.to_owned()), origin));
                }
                (Some(key), None) => errors.push(whole(key, origin, "is not UTF-8".to_owned())),
                (None, _) if is_foreign(name) => {}
                (None, _) => errors.push(unknown(name, origin, nearest(name, keys.keys().map(String::as_str)))),
            }
        }
    }
}

/// What is wrong with the syntax of a file, without the lines of it that the error quotes: they may hold a password.
fn unquoted(error: &str) -> String {
    let quotes =
        |line: &&str| line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|');
    let said: Vec<&str> = error.lines().filter(|line| !quotes(line)).map(str::trim).collect();
    said.join(": ").trim_end_matches([':', ' ']).to_owned()
}

/// The text of a file, which may not be large.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let why = |error: std::io::Error| format!("cannot be read: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(why)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(why)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

fn raw(kind: ValueKind) -> Raw {
    match kind {
        ValueKind::Nil => Raw::Other("nothing"),
        ValueKind::Table(_) => Raw::Other("a table"),
        ValueKind::Array(items) => {
            let text = |item: Value| match raw(item.kind) {
                Raw::Text(text) => Some(text),
                Raw::List(_) | Raw::Other(_) => None,
            };
            items.into_iter().map(text).collect::<Option<_>>().map_or(Raw::Other("a nested list"), Raw::List)
        }
        scalar => Raw::Text(scalar.to_string()),
    }
}

fn whole(key: &str, origin: Origin, problem: String) -> ConfigError {
    ConfigError { key: key.to_owned(), origin, value: None, problem, accepted: None }
}

fn unknown(key: &str, origin: Origin, meant: Option<&str>) -> ConfigError {
    let problem = match meant {
        Some(meant) => format!("is not known; did you mean {meant}?"),
        None => "is not known; `dwell config show` lists every key".to_owned(),
    };
    whole(key, origin, problem)
}
