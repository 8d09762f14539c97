//! The library `struct` of Redis' Lua: integers, floats and texts as bytes.

use mlua::{Lua, MultiValue, Table, Value, Variadic};

fn wrong(text: &str) -> mlua::Error {
    mlua::Error::runtime(text)
}

/// One letter of a format, with its number of bytes where it has one.
struct Item {
    letter: u8,
    size: usize,
    is_little: bool,
}

fn items(format: &[u8]) -> mlua::Result<Vec<Item>> {
    let (mut items, mut at, mut is_little) = (Vec::new(), 0, true);
    while let Some(letter) = format.get(at).copied() {
        at += 1;
        match letter {
            b'>' | b'!' => {
                is_little = letter == b'!';
                continue;
            }
            b'<' | b'=' => {
                is_little = true;
                continue;
            }
            b' ' => continue,
            _ => {}
        }
        let digits = format[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&format[at..at + digits]).ok().and_then(|digits| digits.parse().ok());
        let size = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'i' | b'I' => number.unwrap_or(4),
            b'c' => number.unwrap_or(1),
            b's' => 0,
            other => return Err(wrong(&format!("invalid format option '{}'", char::from(other)))),
        };
        if matches!(letter, b'i' | b'I' | b'c') {
            at += digits;
        }
        if matches!(letter, b'i' | b'I') && size > 32 {
            return Err(wrong(&format!("integral size {size} is larger than limit of 32")));
        }
        items.push(Item { letter, size, is_little });
    }
    Ok(items)
}

fn ordered(mut bytes: Vec<u8>, is_little: bool) -> Vec<u8> {
    if !is_little {
        bytes.reverse();
    }
    bytes
}

fn pack(values: &MultiValue, format: &[u8]) -> mlua::Result<Vec<u8>> {
    let mut values = values.iter();
    let mut out = Vec::new();
    for item in items(format)? {
        if item.letter == b'x' {
            out.push(0);
            continue;
        }
        let value = values.next().ok_or_else(|| wrong("bad argument to 'pack' (number expected, got no value)"))?;
        let number = || match value {
            Value::Integer(number) => Ok(*number as f64),
            Value::Number(number) => Ok(*number),
            Value::String(text) => {
                text.to_string_lossy().trim().parse().map_err(|_| wrong("number expected, got string"))
            }
            other => Err(wrong(&format!("bad argument to 'pack' (number expected, got {})", other.type_name()))),
        };
        match item.letter {
            b'd' => out.extend(ordered(number()?.to_le_bytes().to_vec(), item.is_little)),
            b'f' => out.extend(ordered((number()? as f32).to_le_bytes().to_vec(), item.is_little)),
            b's' | b'c' => {
                let Value::String(text) = value else { return Err(wrong("string expected")) };
                let text = text.as_bytes();
                let size = if item.letter == b's' || item.size == 0 { text.len() } else { item.size };
                out.extend_from_slice(text.get(..size).ok_or_else(|| wrong("string too short"))?);
                if item.letter == b's' {
                    out.push(0);
                }
            }
            _ => {
                let number = number()?;
                let bits = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                let mut bytes = bits.to_le_bytes().to_vec();
                // What is larger than a long has zeros.
                bytes.resize(item.size.max(8), 0);
                bytes.truncate(item.size);
                out.extend(ordered(bytes, item.is_little));
            }
        }
    }
    Ok(out)
}

fn unpack(lua: &Lua, format: &[u8], data: &[u8], position: usize) -> mlua::Result<Vec<Value>> {
    let (mut at, mut found) = (position - 1, Vec::new());
    for item in items(format)? {
        if item.letter == b's' {
            let length = data.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
            let length = length.ok_or_else(|| wrong("unfinished string in data"))?;
            found.push(Value::String(lua.create_string(&data[at..at + length])?));
            at += length + 1;
            continue;
        }
        let bytes = data.get(at..at + item.size).ok_or_else(|| wrong("data string too short"))?;
        at += item.size;
        if item.letter == b'x' {
            continue;
        }
        if item.letter == b'c' {
            found.push(Value::String(lua.create_string(bytes)?));
            continue;
        }
        let mut little = [0_u8; 8];
        let ordered = ordered(bytes.to_vec(), item.is_little);
        let used = ordered.len().min(8);
        little[..used].copy_from_slice(&ordered[..used]);
        let number = match item.letter {
            b'd' => f64::from_le_bytes(little),
            b'f' => f64::from(f32::from_le_bytes([little[0], little[1], little[2], little[3]])),
            b'b' | b'h' | b'i' | b'l' => {
                let unused = 64 - 8 * u32::try_from(used).unwrap_or(8);
                ((u64::from_le_bytes(little) << unused).cast_signed() >> unused) as f64
            }
            _ => u64::from_le_bytes(little) as f64,
        };
        found.push(Value::Number(number));
    }
    found.push(Value::Number((at + 1) as f64));
    Ok(found)
}

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let packed = lua.create_function(|lua, (format, values): (mlua::String, MultiValue)| {
        lua.create_string(pack(&values, &format.as_bytes())?)
    })?;
    library.raw_set("pack", packed)?;
    let unpacked = lua.create_function(|lua, (format, data, at): (mlua::String, mlua::String, Option<usize>)| {
        let at = at.unwrap_or(1).max(1);
        Ok(Variadic::from_iter(unpack(lua, &format.as_bytes(), &data.as_bytes(), at)?))
    })?;
    library.raw_set("unpack", unpacked)?;
    let size = lua.create_function(|_, format: mlua::String| {
        Ok(items(&format.as_bytes())?.iter().map(|item| item.size).sum::<usize>())
    })?;
    library.raw_set("size", size)?;
    Ok(library)
}
