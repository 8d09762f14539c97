//! How a patch changes an object: strategic merges and JSON patches, as far as they are used here.

use serde::Deserialize;
use serde_json::Value;

/// Lists whose items are told apart by a field, and merged.
const MERGED: [(&str, &str); 5] = [
    ("initContainers", "name"),
    ("containers", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// Lists of objects that a patch replaces as a whole.
const REPLACED: [&str; 2] = ["items", "volumeClaimTemplates"];

/// A container that a patch names and nobody has is a misspelt one.
const NEVER_NEW: [&str; 2] = ["initContainers", "containers"];

/// Merges a patch into the object that has the name. The error says what is not merged here.
pub(super) fn merge(object: &mut Value, patch: &Value, name: &str) -> Result<(), String> {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (name, value) in patch {
                match object.get_mut(name) {
                    Some(old) => merge(old, value, name)?,
                    None => drop(object.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(items), Value::Array(patch)) if patch.iter().any(Value::is_object) => {
            match MERGED.into_iter().find(|(list, _)| *list == name) {
                Some((_, key)) => merge_items(items, patch, name, key)?,
                None if REPLACED.contains(&name) => items.clone_from(patch),
                None => return Err(format!("how {name} is merged is not said here")),
            }
        }
        (_, Value::Null) => return Err(format!("{name}: taking away is not said here")),
        (object, patch) => object.clone_from(patch),
    }
    Ok(())
}

/// What the patch has comes first, in its order, and what it does not name behind it, as kustomize does it.
fn merge_items(items: &mut Vec<Value>, patch: &[Value], name: &str, key: &str) -> Result<(), String> {
    let mut left = std::mem::take(items);
    for value in patch {
        match left.iter().position(|old| old[key] == value[key]) {
            Some(at) => {
                let mut old = left.remove(at);
                merge(&mut old, value, "")?;
                items.push(old);
            }
            None if NEVER_NEW.contains(&name) => return Err(format!("{name}: nothing is called {}", value[key])),
            None => items.push(value.clone()),
        }
    }
    items.append(&mut left);
    Ok(())
}

/// An operation of a JSON patch.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Operation {
    Add { path: String, value: Value },
    Replace { path: String, value: Value },
    Test { path: String, value: Value },
}

/// Does an operation. The error says why it cannot be done.
pub(super) fn change(object: &mut Value, operation: Value) -> Result<(), String> {
    let operation: Operation =
        serde_path_to_error::deserialize(&operation).map_err(|error| format!("{operation}: {error}"))?;
    match operation {
        Operation::Add { path, value } => {
            let (above, name) = path.rsplit_once('/').ok_or_else(|| format!("{path:?} is no place"))?;
            match object.pointer_mut(above) {
                Some(Value::Object(fields)) => drop(fields.insert(name.to_owned(), value)),
                Some(Value::Array(items)) if name == "-" => items.push(value),
                _ => return Err(format!("{path}: there is nothing to add to")),
            }
        }
        Operation::Replace { path, value } => match object.pointer_mut(&path) {
            Some(old) => *old = value,
            None => return Err(format!("{path}: there is nothing to replace")),
        },
        Operation::Test { path, value } => {
            if object.pointer(&path) != Some(&value) {
                return Err(format!("{path} is not {value}"));
            }
        }
    }
    Ok(())
}

#[test]
fn patch_without_effect_is_refused() {
    use serde_json::json;
    let object = json!({"containers": [{"name": "a", "args": ["x"]}, {"name": "b"}], "ports": [{"port": 1}]});
    let merged = |patch: Value| {
        let mut object = object.clone();
        merge(&mut object, &patch, "").map(|()| object)
    };
    let expected =
        json!({"containers": [{"name": "b", "image": "i"}, {"name": "a", "args": ["x"]}], "ports": [{"port": 1}]});
    assert_eq!(merged(json!({"containers": [{"name": "b", "image": "i"}]})), Ok(expected));
    for (patch, why) in [
        (json!({"containers": [{"name": "c"}]}), "containers: nothing is called \"c\""),
        (json!({"ports": [{"port": 2}]}), "how ports is merged is not said here"),
        (json!({"ports": null}), "ports: taking away is not said here"),
    ] {
        assert_eq!(merged(patch), Err(why.to_owned()));
    }
    for (operation, why) in [
        (json!({"op": "add", "path": "/spec/x", "value": 1}), "/spec/x: there is nothing to add to"),
        (json!({"op": "replace", "path": "/ports/1", "value": 1}), "/ports/1: there is nothing to replace"),
        (json!({"op": "test", "path": "/ports/0/port", "value": 2}), "/ports/0/port is not 2"),
    ] {
        assert_eq!(change(&mut object.clone(), operation), Err(why.to_owned()));
    }
    for operation in
        [json!({"op": "remove", "path": "/ports"}), json!({"op": "add", "path": "/x", "value": 1, "to": 2})]
    {
        assert!(change(&mut object.clone(), operation.clone()).is_err(), "{operation}");
    }
}
