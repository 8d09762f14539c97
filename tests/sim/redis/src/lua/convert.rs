//! Answers between Redis and Lua, and the small functions of `redis` and `cjson`.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use mlua::{Lua, Table, Value};

use super::lock;
use crate::core::Core;
use crate::resp::Reply;

/// The table of an error.
pub(super) fn refusal(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

pub(super) fn to_lua(lua: &Lua, reply: &Reply, protocol: u8) -> mlua::Result<Value> {
    let one = |name: &str, value: Value| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let text = |text: &[u8]| lua.create_string(text).map(Value::String);
    let list = |entries: &[Reply]| -> mlua::Result<Value> {
        let values = entries.iter().map(|entry| to_lua(lua, entry, protocol)).collect::<mlua::Result<Vec<_>>>()?;
        lua.create_sequence_from(values).map(Value::Table)
    };
    match reply {
        Reply::Bulk(bytes) => text(bytes),
        Reply::Int(number) => Ok(Value::Number(*number as f64)),
        Reply::Nil | Reply::NilArray if protocol == 3 => Ok(Value::Nil),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Array(entries) | Reply::Push(entries) | Reply::Several(entries) => list(entries),
        Reply::Status(status) => one("ok", text(status.as_bytes())?),
        Reply::Error(error) => one("err", text(error.as_bytes())?),
        Reply::Double(number, _) if protocol == 3 => one("double", Value::Number(*number)),
        Reply::Double(_, written) => text(written.as_bytes()),
        Reply::Verbatim(verbatim) => text(verbatim.as_bytes()),
        Reply::Bool(is) if protocol == 3 => Ok(Value::Boolean(*is)),
        Reply::Bool(is) => Ok(Value::Integer(i64::from(*is))),
        Reply::Map(entries) if protocol == 3 => {
            let map = lua.create_table()?;
            for pair in entries.chunks_exact(2) {
                map.raw_set(to_lua(lua, &pair[0], protocol)?, to_lua(lua, &pair[1], protocol)?)?;
            }
            one("map", Value::Table(map))
        }
        Reply::Set(entries) if protocol == 3 => {
            let set = lua.create_table()?;
            for entry in entries {
                set.raw_set(to_lua(lua, entry, protocol)?, true)?;
            }
            one("set", Value::Table(set))
        }
        Reply::Map(entries) | Reply::Set(entries) => list(entries),
    }
}

const DEPTH_MAX: u32 = 100;

pub(super) fn from_lua(value: &Value, protocol: u8, depth: u32) -> mlua::Result<Reply> {
    if depth > DEPTH_MAX {
        return Ok(Reply::error("ERR reached lua stack limit"));
    }
    Ok(match value {
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Integer(number) => Reply::Int(*number),
        // The fraction is cut off.
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(is) if protocol == 3 => Reply::Bool(*is),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => return from_table(table, protocol, depth),
        _ => Reply::Nil,
    })
}

fn from_table(table: &Table, protocol: u8, depth: u32) -> mlua::Result<Reply> {
    if table.raw_len() == 0 {
        if let Value::String(text) = table.raw_get("err")? {
            return Ok(Reply::Error(Cow::Owned(text.to_string_lossy())));
        }
        if let Value::String(text) = table.raw_get("ok")? {
            return Ok(Reply::Status(Cow::Owned(text.to_string_lossy())));
        }
        if let Some(number) = table.raw_get::<Option<f64>>("double")? {
            return Ok(Reply::Double(number, crate::value::double(number)));
        }
        if let Value::Table(map) = table.raw_get("map")? {
            let mut entries = Vec::new();
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                entries.extend([from_lua(&key, protocol, depth + 1)?, from_lua(&value, protocol, depth + 1)?]);
            }
            return Ok(Reply::Map(entries));
        }
        if let Value::Table(set) = table.raw_get("set")? {
            let entries = set.pairs::<Value, Value>().map(|pair| from_lua(&pair?.0, protocol, depth + 1));
            return Ok(Reply::Set(entries.collect::<mlua::Result<_>>()?));
        }
    }
    // The first nil ends a list.
    let mut entries = Vec::with_capacity(table.raw_len());
    for value in table.sequence_values::<Value>() {
        entries.push(from_lua(&value?, protocol, depth + 1)?);
    }
    Ok(Reply::Array(entries))
}

pub(super) fn add_library(lua: &Lua, redis: &Table, core: &Arc<Mutex<Core>>) -> mlua::Result<()> {
    let status = lua.create_function(|lua, text: mlua::String| {
        let table = lua.create_table()?;
        table.raw_set("ok", text)?;
        Ok(table)
    })?;
    redis.raw_set("status_reply", status)?;
    let error = lua.create_function(|lua, text: mlua::String| {
        let text = text.to_string_lossy();
        let text = text.strip_prefix('-').unwrap_or(&text);
        refusal(lua, &if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") })
    })?;
    redis.raw_set("error_reply", error)?;
    let digest =
        lua.create_function(|_, text: mlua::String| Ok(sha1_smol::Sha1::from(&*text.as_bytes()).digest().to_string()))?;
    redis.raw_set("sha1hex", digest)?;
    let shared = core.clone();
    let setresp = lua.create_function(move |_, protocol: u8| {
        if protocol != 2 && protocol != 3 {
            return Err(mlua::Error::runtime("RESP version must be 2 or 3."));
        }
        lock(&shared).script.protocol = protocol;
        Ok(())
    })?;
    redis.raw_set("setresp", setresp)?;
    redis.raw_set("log", lua.create_function(|_, _: mlua::MultiValue| Ok(()))?)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    for (number, name) in ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"].into_iter().enumerate() {
        redis.raw_set(name, number)?;
    }
    let version = lock(core).config.version.clone();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    redis.raw_set("REDIS_VERSION_NUM", part() << 16 | part() << 8 | part())?;
    redis.raw_set("REDIS_VERSION", version)?;
    Ok(())
}

/// `cjson`: what scripts use is `decode`.
pub(super) fn json(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let decode = lua.create_function(|lua, text: mlua::String| {
        let decoded = serde_json::from_slice::<serde_json::Value>(&text.as_bytes());
        let value = decoded.map_err(|error| mlua::Error::runtime(format!("Expected value but found {error}")))?;
        decoded_value(lua, &value)
    })?;
    library.raw_set("decode", decode)?;
    library.raw_set("null", Value::NULL)?;
    Ok(library)
}

fn decoded_value(lua: &Lua, value: &serde_json::Value) -> mlua::Result<Value> {
    Ok(match value {
        serde_json::Value::Null => Value::NULL,
        serde_json::Value::Bool(is) => Value::Boolean(*is),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(0.0)),
        serde_json::Value::String(text) => Value::String(lua.create_string(text)?),
        serde_json::Value::Array(entries) => {
            let values = entries.iter().map(|entry| decoded_value(lua, entry)).collect::<mlua::Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(values)?)
        }
        serde_json::Value::Object(fields) => {
            let table = lua.create_table()?;
            for (name, value) in fields {
                table.raw_set(name.as_str(), decoded_value(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}
