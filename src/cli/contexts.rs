//! Contexts: brokers by name, in a file of the user. It never holds a token, only the path of the file that does.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use config::{File, FileFormat, Source as _, Value, ValueKind};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::platform::disk::{make_directory, replace};

const HEAD: &str = "\
# Brokers by name; `dwell context` writes this file. It holds no token, only the path of the file that does.
";

/// A broker, and what a client needs to speak to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    /// `http://HOST:PORT`, `https://HOST:PORT` or `unix:/path`.
    pub(super) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<String>,
}

/// The text of the file, read.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// The context of commands that name none.
    used: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

/// The contexts of the user, as the file has them.
#[derive(Debug)]
pub(super) struct Contexts {
    file: PathBuf,
    content: Content,
}

/// `$XDG_CONFIG_HOME/dwell/contexts.toml` or `~/.config/dwell/contexts.toml`. A path that is relative counts for nothing.
fn file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("dwell").join("contexts.toml"))
}

impl Contexts {
    /// Reads the file, which may be absent. # Errors: usage, if it cannot be read, or there is no place for one.
    pub(super) fn read() -> Result<Contexts, Failure> {
        Contexts::read_if_any()?.ok_or_else(|| {
            Failure::usage(
                "there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set to an absolute path",
            )
        })
    }

    /// The same; none where there is no place for the file. # Errors: usage.
    pub(super) fn read_if_any() -> Result<Option<Contexts>, Failure> {
        let Some(file) = file() else { return Ok(None) };
        let content = match std::fs::read_to_string(&file) {
            Ok(text) => parse(&text).map_err(|why| unreadable(&file, &why))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(unreadable(&file, &error.to_string())),
        };
        Ok(Some(Contexts { file, content }))
    }

    /// The name of the context of commands that name none.
    pub(super) fn used(&self) -> Option<&str> {
        self.content.used.as_deref()
    }

    pub(super) fn all(&self) -> &BTreeMap<String, Context> {
        &self.content.contexts
    }

    /// # Errors: usage, for a name that is none; it names those that exist.
    pub(super) fn named(&self, name: &str) -> Result<&Context, Failure> {
        self.content.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.content.contexts.keys().map(String::as_str).collect();
            let exist = match names.as_slice() {
                [] => "there are none yet: `dwell context add` adds one".to_owned(),
                [one] => format!("there is {one}"),
                [all @ .., last] => format!("there are {} and {last}", all.join(", ")),
            };
            Failure::usage(format!("no context is called {name}; {exist}"))
        })
    }

    pub(super) fn add(&mut self, name: &str, context: Context) -> Result<(), Failure> {
        self.content.contexts.insert(name.to_owned(), context);
        self.write()
    }

    /// Has commands that name no context use this one, or none.
    pub(super) fn choose(&mut self, name: Option<&str>) -> Result<(), Failure> {
        self.content.used = name.map(str::to_owned);
        self.write()
    }

    /// Removes a context, and says whether it was the one that is used.
    pub(super) fn remove(&mut self, name: &str) -> Result<bool, Failure> {
        self.content.contexts.remove(name);
        let was_used = self.used() == Some(name);
        if was_used {
            self.content.used = None;
        }
        self.write().map(|()| was_used)
    }

    fn write(&self) -> Result<(), Failure> {
        // A link, as people who keep such files elsewhere have it, stays one.
        let file = std::fs::canonicalize(&self.file).unwrap_or_else(|_| self.file.clone());
        let dir = file.parent().unwrap_or(Path::new("/"));
        make_directory(dir)
            .and_then(|()| replace(&file, self.content.text().as_bytes()))
            .map_err(|error| Failure::new(format!("{} cannot be written: {error}", self.file.display())))
    }
}

fn unreadable(file: &Path, why: &str) -> Failure {
    Failure::usage(format!("{} cannot be read: {}", file.display(), why.trim_end()))
}

fn parse(text: &str) -> Result<Content, String> {
    let table = File::from_str(text, FileFormat::Toml).collect().map_err(|error| error.to_string())?;
    Value::new(None, ValueKind::Table(table)).try_deserialize().map_err(|error| error.to_string())
}

impl Content {
    /// The text of the file, in TOML.
    fn text(&self) -> String {
        let line = |name: &str, value: &str| format!("{name} = {}\n", quoted(value));
        let optional = |name, value: &Option<String>| value.as_deref().map_or(String::new(), |value| line(name, value));
        let mut text = format!("{HEAD}{}", optional("used", &self.used));
        for (name, context) in &self.contexts {
            text.push_str(&format!("\n[contexts.{}]\n{}", quoted(name), line("server", &context.server)));
            text.push_str(&optional("token_file", &context.token_file));
            text.push_str(&optional("ca_file", &context.ca_file));
        }
        text
    }
}

/// A basic string of TOML, which escapes what JSON does, and one character more.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_as_they_were_written() {
        let context = |server: &str, token_file: Option<&str>| Context {
            server: server.to_owned(),
            token_file: token_file.map(str::to_owned),
            ca_file: None,
        };
        let odd = "/a \"b\"\\c\n\u{1}\u{7f}é";
        let contexts =
            [("Prod", context("https://dwell:1", Some(odd))), ("a.b", context("unix:/run/dwell.sock", None))];
        let contexts = contexts.map(|(name, context)| (name.to_owned(), context));
        let written = Content { used: Some("a.b".to_owned()), contexts: contexts.into() };
        let read = parse(&written.text()).unwrap_or_default();
        assert_eq!((read.used, read.contexts), (written.used, written.contexts));
        assert_eq!(Content::default().text(), HEAD);
        assert!(parse(HEAD).is_ok_and(|content| content.contexts.is_empty()));
    }

    #[test]
    fn a_field_that_is_misspelt_is_refused() {
        for text in ["user = \"a\"", "[contexts.a]\nserver = \"x\"\ntoken-file = \"y\"", "[contexts.a]\n", "used ="] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
