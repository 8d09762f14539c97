//! Scripts: Lua 5.1 with what Redis gives them.

mod convert;
mod lines;
mod pack;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use rustc_hash::FxBuildHasher;

pub use self::lines::LineCounts;
use crate::core::{Core, ScriptState};
use crate::resp::Reply;
use crate::value::double;

/// The name of a script in its own errors.
const CHUNK: &str = "@user_script";

/// Calls that catch errors: what `redis.call` throws is a table in Redis.
const CATCHING: &str = r#"
local pcall, xpcall, type, as_table = ...
local function caught(is_done, thrown, ...)
  if not is_done and type(thrown) == 'userdata' then thrown = as_table(thrown) end
  return is_done, thrown, ...
end
return function(f, ...) return caught(pcall(f, ...)) end,
  function(f, handler) return xpcall(f, function(thrown)
    if type(thrown) == 'userdata' then thrown = as_table(thrown) end
    return handler(thrown)
  end) end
"#;

/// What scripts see of Lua.
const GLOBALS: [&str; 24] = [
    "assert",
    "collectgarbage",
    "coroutine",
    "error",
    "getmetatable",
    "ipairs",
    "loadstring",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
    "_VERSION",
];

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScriptFlags {
    /// It begins with `#!lua`: its flags say what it does.
    pub(crate) is_declared: bool,
    pub(crate) no_writes: bool,
    pub(crate) allow_oom: bool,
    pub(crate) allow_stale: bool,
    pub(crate) no_cluster: bool,
    pub(crate) allow_cross_slot: bool,
}

#[derive(Clone)]
pub(crate) struct Script {
    function: Function,
    pub(crate) flags: ScriptFlags,
    /// Among those whose lines are counted.
    number: Option<usize>,
}

pub(crate) struct Engine {
    lua: Lua,
    env: Table,
    xpcall: Function,
    handler: Function,
    scripts: HashMap<String, Script, FxBuildHasher>,
    lines: Option<LineCounts>,
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn new(core: &Arc<Mutex<Core>>) -> mlua::Result<Engine> {
        let lua = Lua::new_with(
            StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS,
            LuaOptions::new().catch_rust_panics(false),
        )?;
        let redis = lua.create_table()?;
        let shared = core.clone();
        let throwing = lua.create_function(move |lua, words: MultiValue| match call(lua, &shared, &words)? {
            Ok(value) => Ok(value),
            Err(refusal) => Err(mlua::Error::external(Refusal(refusal))),
        })?;
        redis.raw_set("call", throwing)?;
        let shared = core.clone();
        let catching = lua.create_function(move |lua, words: MultiValue| match call(lua, &shared, &words)? {
            Ok(value) => Ok(value),
            Err(refusal) => convert::refusal(lua, &refusal).map(Value::Table),
        })?;
        redis.raw_set("pcall", catching)?;
        let env = environment(&lua, redis.clone())?;
        convert::add_library(&lua, &redis, core)?;
        let handler = lua.create_function(handle_error)?;
        let xpcall = lua.globals().get("xpcall")?;
        let scripts = HashMap::default();
        Ok(Engine { lua, env, xpcall, handler, scripts, lines: None })
    }

    pub(crate) fn find(&self, digest: &str) -> Option<&Script> {
        self.scripts.get(digest)
    }

    pub(crate) fn forget_all(&mut self) {
        self.scripts.clear();
    }

    /// Compiles a script, unless it is known; answers its SHA1. Errors: what Redis says about it.
    pub(crate) fn load(&mut self, source: &[u8]) -> Result<String, Reply> {
        let digest = sha1_smol::Sha1::from(source).digest().to_string();
        if self.scripts.contains_key(&digest) {
            return Ok(digest);
        }
        let text = String::from_utf8_lossy(source);
        let (flags, body) = read_flags(&text, source)?;
        let chunk = self.lua.load(body).set_name(CHUNK).set_environment(self.env.clone());
        let function = chunk.into_function().map_err(|error| {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("syntax error: ");
            let text = text.replace("[string \"@user_script\"]", "user_script");
            Reply::error_of(format!("ERR Error compiling script (new function): {text}"))
        })?;
        let number = self.lines.as_ref().map(|lines| lines.add(&text, &function));
        self.scripts.insert(digest.clone(), Script { function, flags, number });
        Ok(digest)
    }

    /// Runs a script that is known. The core must not be locked.
    pub(crate) fn run(&mut self, digest: &str, keys: &[&[u8]], words: &[&[u8]], core: &Mutex<Core>) -> Reply {
        let Some(script) = self.scripts.get(digest).cloned() else {
            return Reply::error("NOSCRIPT No matching script. Please use EVAL.");
        };
        if let Some(lines) = &self.lines {
            lines.enter(script.number);
        }
        let result = self.call(&script, digest, keys, words, core);
        lock(core).script = ScriptState::default();
        result.unwrap_or_else(|error| Reply::error_of(format!("ERR Error running script {digest}, {error}")))
    }

    fn call(
        &self,
        script: &Script,
        digest: &str,
        keys: &[&[u8]],
        words: &[&[u8]],
        core: &Mutex<Core>,
    ) -> mlua::Result<Reply> {
        let texts = |texts: &[&[u8]]| -> mlua::Result<Table> {
            let strings = texts.iter().map(|text| self.lua.create_string(text)).collect::<mlua::Result<Vec<_>>>()?;
            self.lua.create_sequence_from(strings)
        };
        self.env.raw_set("KEYS", texts(keys)?)?;
        self.env.raw_set("ARGV", texts(words)?)?;
        let (is_done, value): (bool, Value) = self.xpcall.call((&script.function, &self.handler))?;
        if is_done {
            let protocol = lock(core).script.protocol;
            return convert::from_lua(&value, protocol, 0);
        }
        let Value::Table(error) = value else {
            return Ok(Reply::error_of(format!("ERR Error running script {digest}, execution failure")));
        };
        let text = error.raw_get::<mlua::String>("err")?.to_string_lossy();
        let (source, line): (Option<String>, Option<i64>) = (error.raw_get("source")?, error.raw_get("line")?);
        Ok(Reply::error_of(match (source, line) {
            (Some(source), Some(line)) => format!("{text} script: {digest}, on {source}:{line}."),
            _ => text,
        }))
    }

    /// Counts the lines of scripts that are loaded from now on.
    pub(crate) fn count_lines(&mut self, lines: &LineCounts) -> mlua::Result<()> {
        self.lines = Some(lines.clone());
        let lines = lines.clone();
        self.lua.set_hook(HookTriggers::EVERY_LINE, move |_, debug| {
            if debug.source().source.as_deref() == Some(CHUNK) {
                lines.count(debug.current_line().unwrap_or(0));
            }
            Ok(VmState::Continue)
        })
    }
}

/// The flags in the first line, and the rest, with its line break so that lines keep their numbers.
fn read_flags<'a>(text: &str, source: &'a [u8]) -> Result<(ScriptFlags, &'a [u8]), Reply> {
    let mut flags = ScriptFlags::default();
    if !text.starts_with("#!") {
        return Ok((flags, source));
    }
    let end = source.iter().position(|byte| *byte == b'\n').ok_or(Reply::error("ERR Invalid script shebang"))?;
    let line = String::from_utf8_lossy(&source[2..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(Reply::error_of(format!("ERR Unexpected engine in script shebang: #!{engine}")));
    }
    flags.is_declared = true;
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(Reply::error_of(format!("ERR Unknown lua shebang option: {word}")));
        };
        for name in names.split(',').filter(|name| !name.is_empty()) {
            match name {
                "no-writes" => flags.no_writes = true,
                "allow-oom" => flags.allow_oom = true,
                "allow-stale" => flags.allow_stale = true,
                "no-cluster" => flags.no_cluster = true,
                "allow-cross-slot-keys" => flags.allow_cross_slot = true,
                _ => return Err(Reply::error_of(format!("ERR Unexpected flag in script shebang: {name}"))),
            }
        }
    }
    Ok((flags, &source[end..]))
}

/// The globals of scripts: reading another one is an error, and so is setting any.
fn environment(lua: &Lua, redis: Table) -> mlua::Result<Table> {
    let (env, globals) = (lua.create_table()?, lua.globals());
    for name in GLOBALS {
        env.raw_set(name, globals.get::<Value>(name)?)?;
    }
    let os = lua.create_table()?;
    os.raw_set("clock", lua.create_function(|_, ()| Ok(0))?)?;
    env.raw_set("os", os)?;
    env.raw_set("redis", redis)?;
    let as_table = lua.create_function(|lua, thrown: Value| error_table(lua, &thrown))?;
    let get = |name: &str| globals.get::<Function>(name);
    let (pcall, xpcall): (Function, Function) =
        lua.load(CATCHING).set_name("=pcall").call((get("pcall")?, get("xpcall")?, get("type")?, as_table))?;
    env.raw_set("pcall", pcall)?;
    env.raw_set("xpcall", xpcall)?;
    env.raw_set("struct", pack::library(lua)?)?;
    env.raw_set("cjson", convert::json(lua)?)?;
    env.raw_set("_G", env.clone())?;
    // The same numbers for the same calls.
    let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(0)));
    let math: Table = env.raw_get("math")?;
    let seeded = random.clone();
    let reseed = lua.create_function(move |_, seed: i64| {
        *lock(&seeded) = fastrand::Rng::with_seed(seed.unsigned_abs());
        Ok(())
    })?;
    math.raw_set("randomseed", reseed)?;
    let next = lua.create_function(move |_, (low, high): (Option<i64>, Option<i64>)| {
        let mut random = lock(&random);
        Ok(match (low, high) {
            (None, _) => Value::Number(random.f64()),
            (Some(high), None) => Value::Integer(random.i64(1..=high.max(1))),
            (Some(low), Some(high)) => Value::Integer(random.i64(low..=high.max(low))),
        })
    })?;
    math.raw_set("random", next)?;
    let guard = lua.load(
        "return {__index = function(_, name) error(\"Script attempted to access nonexistent global variable '\" .. \
         tostring(name) .. \"'\", 2) end, __newindex = function() error('Attempt to modify a readonly table', 2) end}",
    );
    env.set_metatable(Some(guard.set_name("=guard").eval::<Table>()?))?;
    Ok(env)
}

/// What `redis.call` throws.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::BadArgument { cause, .. } => text_of(cause),
        mlua::Error::RuntimeError(text) => format!("ERR {text}"),
        error => match error.downcast_ref::<Refusal>() {
            Some(refusal) => refusal.0.clone(),
            None => format!("ERR {error}"),
        },
    }
}

fn error_table(lua: &Lua, thrown: &Value) -> mlua::Result<Table> {
    let text = match thrown {
        Value::Table(table) => return Ok(table.clone()),
        Value::Error(error) => text_of(error),
        Value::String(text) => format!("ERR {}", text.to_string_lossy()),
        other => format!("ERR {}", other.to_string()?),
    };
    convert::refusal(lua, &text)
}

/// Makes of what was thrown a table, with the line of the script.
fn handle_error(lua: &Lua, thrown: Value) -> mlua::Result<Table> {
    let error = error_table(lua, &thrown)?;
    // Level 0 is this function; then come the functions that threw.
    for level in 1..20 {
        let found = lua.inspect_stack(level, |debug| {
            (debug.source().source.as_deref() == Some(CHUNK)).then(|| debug.current_line()).flatten()
        });
        match found {
            None => break,
            Some(None) => {}
            Some(Some(line)) => {
                error.raw_set("source", CHUNK)?;
                error.raw_set("line", line)?;
                break;
            }
        }
    }
    Ok(error)
}

/// A call of a command: its answer, or the refusal.
fn call(lua: &Lua, core: &Mutex<Core>, words: &MultiValue) -> mlua::Result<Result<Value, String>> {
    let refuse = |text: &str| Ok(Err(text.to_owned()));
    if words.is_empty() {
        return refuse("ERR Please specify at least one argument for this redis lib call");
    }
    enum Word<'a> {
        Text(mlua::BorrowedBytes<'a>),
        Number(String),
    }
    let mut texts = Vec::with_capacity(words.len());
    for word in words {
        texts.push(match word {
            Value::String(text) => Word::Text(text.as_bytes()),
            Value::Integer(number) => Word::Number(number.to_string()),
            Value::Number(number) => Word::Number(double(*number)),
            _ => return refuse("ERR Lua redis lib command arguments must be strings or integers"),
        });
    }
    let slices: Vec<&[u8]> = texts
        .iter()
        .map(|text| match text {
            Word::Text(text) => text.as_ref(),
            Word::Number(text) => text.as_bytes(),
        })
        .collect();
    let (reply, protocol) = {
        let mut core = lock(core);
        let reply = crate::scripting::call(&mut core, &slices);
        (reply, core.script.protocol)
    };
    match reply {
        Reply::Error(text) => refuse(&text),
        reply => Ok(Ok(convert::to_lua(lua, &reply, protocol)?)),
    }
}
