//! Every script says what it takes, what it answers, and what a repeat does.

use std::collections::BTreeSet;

use dwell::model::error::Result;

use super::{File, files};

const DIR: &str = "src/store/redis/scripts";

/// What scripts.rs puts in front of the scripts: name and head.
fn heads() -> Result<Vec<(String, String)>> {
    let file = files("src/store/redis", "scripts.rs")?;
    let text = file.first().map(|file| file.text.as_str()).unwrap_or_default();
    let head = |line: &str| {
        let (name, rest) = line.trim().split_once(": \"#!")?;
        Some((name.to_owned(), format!("#!{}", rest.split('"').next()?)))
    };
    let heads: Vec<_> = text.lines().filter_map(head).collect();
    assert!(heads.len() > 15, "{heads:?}");
    Ok(heads)
}

fn name(file: &File) -> &str {
    file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".lua")
}

/// The comment at the beginning, and what follows.
fn parts(file: &File) -> (String, String) {
    let head: Vec<_> = file.text.lines().take_while(|line| line.starts_with("--")).collect();
    let body: Vec<_> = file.text.lines().skip(head.len()).filter(|line| !line.trim_start().starts_with("--")).collect();
    (head.join("\n"), body.join("\n"))
}

#[test]
fn every_script_header_documents_arguments_and_reply() -> Result<()> {
    for file in files(DIR, ".lua")? {
        let (head, body) = parts(&file);
        let fragment = name(&file).starts_with('_');
        if !fragment {
            assert!(head.starts_with(&format!("-- {}: ", name(&file))), "{}: begins otherwise", file.path);
            assert!(head.contains("Returns"), "{}: does not say what it returns", file.path);
            let repeat = head.to_lowercase().contains("repeat") || head.contains("Changes nothing");
            assert!(repeat, "{}: does not say what a repeat does", file.path);
        }
        for list in ["KEYS", "ARGV"] {
            if body.contains(list) {
                assert!(head.contains(list), "{}: does not name {list}", file.path);
            }
            for (at, _) in body.match_indices(&format!("{list}[")) {
                let index = body[at + list.len() + 1..].split(']').next().unwrap_or_default();
                let literal = index.bytes().all(|byte| byte.is_ascii_digit());
                assert!(!literal || head.contains(&format!("[{index}]")), "{}: {list}[{index}]", file.path);
            }
        }
    }
    Ok(())
}

/// A script without the flag is refused while Redis is full: right for what adds bodies, and for nothing else.
#[test]
fn only_scripts_that_add_bodies_need_memory() -> Result<()> {
    let heads = heads()?;
    let scripts = files(DIR, ".lua")?;
    let names: BTreeSet<_> = scripts.iter().map(name).filter(|name| !name.starts_with('_')).collect();
    let declared: BTreeSet<_> = heads.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, declared);
    for (name, head) in &heads {
        match name.as_str() {
            "push" | "push_ordered" | "push_over" | "push_over_ordered" | "copy" | "replay" | "replay_ordered"
            | "restore" | "restore_ordered" | "fire_cron_job" | "move_in" | "forward" | "forward_ordered" => {
                assert_eq!(head, "#!lua")
            }
            name => assert!(head.starts_with("#!lua flags=allow-oom"), "{name}: {head}"),
        }
    }
    Ok(())
}

/// A key that is not declared may be in another slot of a cluster.
#[test]
fn scripts_touch_declared_keys_only() -> Result<()> {
    for file in files(DIR, ".lua")? {
        let (_, body) = parts(&file);
        for built in ["'dwell", "\"dwell", "':z'", "':h'", "':r'", "':lease'"] {
            assert!(!body.contains(built), "{} builds a key: {built}", file.path);
        }
        let calls = body.split("redis.call('").skip(1).filter_map(|call| call.split_once("', "));
        let made: Vec<_> = calls.filter(|(_, key)| key.starts_with("string.")).map(|(command, _)| command).collect();
        assert_eq!(made, [""; 0], "{} makes the keys of these", file.path);
    }
    Ok(())
}

/// Commands that a script calls, in lower case.
fn commands_of(text: &str) -> BTreeSet<String> {
    let calls = ["redis.call('", "call('"].iter().flat_map(|call| text.match_indices(call).map(|(at, c)| at + c.len()));
    calls.filter_map(|at| Some(text[at..].split('\'').next()?.to_lowercase())).collect()
}

/// What a script calls is looked at before, by `check_permissions`, and allowed to the user of deploy/redis.acl.
#[test]
fn every_command_of_a_script_is_permitted() -> Result<()> {
    let scripts = files(DIR, ".lua")?;
    let called: BTreeSet<_> = scripts.iter().flat_map(|file| commands_of(&file.text)).collect();
    assert!(called.len() > 20, "{called:?}");
    let acl = include_str!("../../../../deploy/redis.acl");
    let checked = scripts.iter().find(|file| name(file) == "check_permissions").map_or("", |file| file.text.as_str());
    for command in called {
        assert!(acl.contains(&format!("+{command} ")), "deploy/redis.acl does not allow {command}");
        assert!(command == "time" || checked.contains(&format!("'{}'", command.to_uppercase())), "{command}");
    }
    Ok(())
}
