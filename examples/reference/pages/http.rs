//! The HTTP API, from the OpenAPI document that the broker serves.

use std::collections::BTreeSet;

use serde_json::Value;

use super::table;

const HEAD: &str = "\
# HTTP API

This page lists every request of the HTTP API. A broker serves the same as an OpenAPI 3.1 document at `/openapi.json`.
[HTTP conventions](http-conventions.md) explains how to write durations, times, names and payloads; [Errors](errors.md) lists every error.

* **Durations**: each duration has a second name that ends with `_ms` and takes whole milliseconds. Give one of the two. Replies
  have the name with `_ms` only.
* **Pages**: a list with more entries than fit has a `next_cursor`. Send it as `cursor` until there is none.
* **Scopes**: \"Needs\" names the scope of the token. `admin` includes every other scope. Without configured tokens every
  local client may do everything.
* **Errors**: any request can answer the usual errors. A request lists here the statuses that only few answer: 412 and 429.
";

/// Statuses of errors that only some requests answer.
const UNUSUAL: [&str; 2] = ["412", "429"];

/// Scopes in the document.
const SCOPES: usize = 5;

pub(super) fn page() -> String {
    let document = dwell::api::http::openapi();
    let mut text = HEAD.to_owned();
    for tag in list(&document["tags"]) {
        let (name, about) = (string(&tag["name"]), string(&tag["description"]));
        text.push_str(&format!("\n## {}\n\n{about}\n", capital(name)));
        for (path, item) in entries(&document["paths"]) {
            for (method, operation) in entries(item) {
                if list(&operation["tags"]).first() == Some(&Value::from(name)) {
                    text.push_str(&operation_text(method, path, operation, &document));
                }
            }
        }
    }
    text.push_str(
        "\n## Objects\n\nBodies of requests and replies. A field that has no value is absent, never `null`.\n",
    );
    let asked = asked(&document);
    for (name, schema) in entries(&document["components"]["schemas"]) {
        if is_object(schema) {
            text.push_str(&object(name, schema, &fields(schema, asked.contains(name), &document)));
        }
    }
    text.push_str(&words(&document));
    text
}

fn operation_text(method: &str, path: &str, operation: &Value, document: &Value) -> String {
    let title = title(string(&operation["operationId"]));
    let mut text = format!("\n### {title}\n\n```text\n{} {path}\n```\n\n", method.to_uppercase());
    let about = prose(string(&operation["description"])).replace("Needs no token.", "");
    text.push_str(&format!("{} {}\n\n", string(&operation["summary"]), about.trim()));
    let scopes: Vec<_> = list(&operation["security"]).iter().flat_map(entries).map(|(name, _)| name.as_str()).collect();
    let needs = match scopes.len() {
        0 => "no token".to_owned(),
        SCOPES => "any token".to_owned(),
        _ => {
            let named: Vec<_> = scopes.iter().filter(|name| scopes.len() == 1 || **name != "admin").collect();
            named.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
        }
    };
    text.push_str(&format!("Needs {needs}.\n\n"));
    // What is in the path is explained by its name.
    let parameters = list(&operation["parameters"]).iter().filter(|parameter| parameter["in"] != "path");
    let row = |parameter: &Value| {
        let name = string(&parameter["name"]);
        let kind = if parameter["in"] == "header" { "header" } else { "query" };
        [format!("`{name}`"), kind.to_owned(), described(parameter, parameter["required"] == true)]
    };
    let rows: Vec<_> = parameters.filter(|parameter| !is_twin(parameter)).map(row).collect();
    if !rows.is_empty() {
        text.push_str(&table(["parameter", "in", "meaning"], &rows));
    }
    let bodies: Vec<String> = entries(&operation["requestBody"]["content"])
        .map(|(kind, content)| format!("{} as `{kind}`", type_of(&content["schema"], document)))
        .collect();
    if !bodies.is_empty() {
        text.push_str(&format!("Body: {}\n\n", bodies.join(", or ")));
    }
    let (answers, errors): (Vec<_>, Vec<_>) =
        entries(&operation["responses"]).partition(|(status, _)| status.starts_with('2'));
    let is_only = answers.len() == 1;
    for (status, answer) in answers {
        let body = entries(&answer["content"]).map(|(_, content)| type_of(&content["schema"], document)).next();
        let body = body.map(|body| format!(" {body}")).unwrap_or_default();
        // The only answer is what the summary says.
        let about = if is_only { String::new() } else { format!(": {}", sentence(string(&answer["description"]))) };
        text.push_str(&format!("* **{status}**{body}{about}\n"));
    }
    let errors: Vec<_> =
        errors.iter().map(|(status, _)| status.as_str()).filter(|status| UNUSUAL.contains(status)).collect();
    if !errors.is_empty() {
        text.push_str(&format!("* Also {}\n", errors.join(", ")));
    }
    text
}

/// An object: its fields, and an example.
fn object(name: &str, schema: &Value, fields: &[[String; 3]]) -> String {
    let mut about = prose(string(&schema["description"]));
    for included in list(&schema["allOf"]).iter().filter_map(|part| name_of(part)) {
        about.push_str(&format!(" It also has the fields of [{included}](#{}).", included.to_lowercase()));
    }
    let example =
        list(&schema["examples"]).first().map(|example| format!("```json\n{example}\n```\n")).unwrap_or_default();
    format!("\n### {name}\n\n{about}\n\n{}{example}", table(["field", "type", "meaning"], fields))
}

/// Whether it has fields, and so a chapter; otherwise it is a row of the table of values.
fn is_object(schema: &Value) -> bool {
    schema["properties"].is_object() || schema["allOf"].is_array()
}

/// The fields of an object, without those of the objects that it includes.
fn fields(schema: &Value, is_asked: bool, document: &Value) -> Vec<[String; 3]> {
    let required = if is_asked { list(&schema["required"]) } else { &[] };
    let own = entries(&schema["properties"]).filter(|(_, field)| !is_twin(field)).map(|(name, field)| {
        let is_required = required.contains(&Value::from(name.as_str()));
        [format!("`{name}`"), type_of(field, document), described(field, is_required)]
    });
    own.chain(list(&schema["allOf"]).iter().flat_map(|part| fields(part, is_asked, document))).collect()
}

/// Values that are one of a few words, or follow a rule: each with the description of its schema.
fn words(document: &Value) -> String {
    let rows: Vec<_> = entries(&document["components"]["schemas"])
        .filter(|(_, schema)| !is_object(schema))
        .map(|(name, schema)| {
            let choices: Vec<_> = list(&schema["enum"]).iter().map(|word| format!("`{}`", string(word))).collect();
            // The types of problems have a page.
            let choices = if name == "ProblemType" { String::new() } else { choices.join(", ") };
            [format!("`{name}`"), string(&schema["description"]).to_owned(), choices]
        })
        .collect();
    format!("\n## Values\n\n{}", table(["type", "meaning", "one of"], &rows))
}

/// A field that says the same in milliseconds, or in JSON.
fn is_twin(field: &Value) -> bool {
    string(&field["description"]).starts_with("The same in milliseconds")
}

fn described(part: &Value, is_required: bool) -> String {
    let text = sentence(&prose(string(&part["description"])));
    if is_required { format!("Required. {text}") } else { text }
}

/// The name that a part of the document refers to.
fn name_of(part: &Value) -> Option<&str> {
    part["$ref"].as_str()?.rsplit('/').next()
}

/// Every schema that a body of a request contains.
fn asked(document: &Value) -> BTreeSet<String> {
    let operations = entries(&document["paths"]).flat_map(|(_, item)| entries(item));
    let mut names = BTreeSet::new();
    operations.for_each(|(_, operation)| collect(&operation["requestBody"], document, &mut names));
    names
}

fn collect(part: &Value, document: &Value, names: &mut BTreeSet<String>) {
    if let Some(name) = name_of(part).filter(|name| names.insert((*name).to_owned())) {
        collect(&document["components"]["schemas"][name], document, names);
    }
    entries(part).for_each(|(_, part)| collect(part, document, names));
    list(part).iter().for_each(|part| collect(part, document, names));
}

/// The type of a value, linked where it has a name: to its object, or to the table of values.
fn type_of(schema: &Value, document: &Value) -> String {
    if let Some(name) = name_of(schema) {
        let is_value = !is_object(&document["components"]["schemas"][name]);
        return format!("[{name}](#{})", if is_value { "values".to_owned() } else { name.to_lowercase() });
    }
    match string(&schema["type"]) {
        "array" => format!("list of {}", type_of(&schema["items"], document)),
        "string" if schema["format"] == "date-time" => "[Time](#values)".to_owned(),
        "" => "any JSON".to_owned(),
        name => name.to_owned(),
    }
}

/// The id of an operation as words: `ackMessages` is `Ack messages`.
fn title(id: &str) -> String {
    let words: String = id
        .chars()
        .map(|c| if c.is_ascii_uppercase() { format!(" {}", c.to_ascii_lowercase()) } else { c.to_string() })
        .collect();
    capital(&words.replace("open api", "OpenAPI document"))
}

fn prose(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
