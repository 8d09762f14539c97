//! What a configuration says about access tokens.

use std::io::Result as IoResult;

use super::{load, sources};
use crate::api::access::{Scope, Scopes};
use crate::app::config::show;
use crate::model::limits::TOKENS_MAX;

/// A token file of its own, and the table that names it.
fn table(dir: &tempfile::TempDir, name: &str, token: &str, scopes: &str) -> IoResult<String> {
    let path = dir.path().join(name);
    std::fs::write(&path, token)?;
    Ok(format!("[[auth.token]]\nname = '{name}'\nfile = '{}'\nscopes = {scopes}\n", path.display()))
}

#[test]
fn tokens_are_read_and_open_the_way_beyond_loopback() -> IoResult<()> {
    let dir = tempfile::tempdir()?;
    let shop = table(&dir, "shop", "s3cret-0123456789\n", "['produce', 'consume']")?;
    let ops = table(&dir, "ops", "s3cret-9876543210", "['admin']")?;
    let config = load(&format!("listen = '0.0.0.0:7373'\n{shop}{ops}"), &[], &[])?;
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let tokens = config.map(|config| config.tokens).unwrap_or_default();
    let read: Vec<_> = tokens.iter().map(|token| (&*token.name, token.scopes)).collect();
    let both = Scopes::of(&[Scope::Produce, Scope::Consume]);
    assert_eq!(read, [("shop", both), ("ops", Scopes::of(&[Scope::Admin]))]);
    let (_dir, given) = sources(&shop, &[], &[])?;
    let shown = show(&given).unwrap_or_default();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[[auth.token]] name = \"shop\" # file /"), "{shown}");
    assert!(shown.contains("scopes = [\"produce\", \"consume\"]") && !shown.contains("s3cret"), "{shown}");
    assert_eq!(load(&shown, &[], &[])?.map(|config| config.tokens), load(&shop, &[], &[])?.map(|config| config.tokens));
    Ok(())
}

#[test]
fn everything_wrong_with_every_token_is_said_at_once_and_no_token_is() -> IoResult<()> {
    let dir = tempfile::tempdir()?;
    let good = table(&dir, "good", "s3cret-0123456789", "['produce']")?;
    let same = table(&dir, "same", "s3cret-0123456789", "['admin']")?;
    let short = table(&dir, "short", "s3cret", "[]")?;
    let empty = table(&dir, "empty", "\n", "'admin'")?;
    let words = table(&dir, "words", "s3cret s3cret s3cret", "['produce', 'Admin']")?;
    let wrong = "[[auth.token]]\nname = 'a b'\nfile = 's3cret-0123456789'\ntoken = 's3cret-0123456789'\n";
    let local = "[[auth.token]]\nname = 'local'\nfile = '/does/not/exist'\nscopes = ['admin']\n";
    // An address that needs tokens is not refused on top of it.
    let file = ["listen = '0.0.0.0:7373'\n", &good, &good, &same, &short, &empty, &words, wrong, local].concat();
    let errors = load(&file, &[("DWELL_AUTH_TOKEN", "s3cret")], &[])?.err().unwrap_or_default();
    assert!(errors.starts_with("15 errors in the configuration:"), "{errors}");
    for said in [
        "auth.token[6].token (file /dwell.toml): is not known",
        "DWELL_AUTH_TOKEN (environment variable DWELL_AUTH_TOKEN): is not known",
        "auth.token[1].name = \"good\" (file /dwell.toml): is the name of another token",
        "auth.token[2].file = \"/same\" (file /dwell.toml): holds the token of \"good\"",
        "auth.token[3].file = \"/short\" (file /dwell.toml): holds a token of 6 characters; 16 to 1024 are needed",
        "auth.token[3].scopes = [] (file /dwell.toml): is empty",
        "auth.token[4].file = \"/empty\" (file /dwell.toml): is empty",
        "auth.token[4].scopes = \"admin\" (file /dwell.toml): is no list; accepted: a list of \"view\", \"produce\", \"consume\"",
        "auth.token[5].file = \"/words\" (file /dwell.toml): holds something that is no visible ASCII",
        "auth.token[5].scopes = [\"produce\", \"Admin\"] (file /dwell.toml): has another word",
        "auth.token[6].name = \"a b\" (file /dwell.toml): has another character",
        "auth.token[6].file = \"***\" (file /dwell.toml): cannot be read",
        "auth.token[6].scopes (file /dwell.toml): is missing",
        "auth.token[7].name = \"local\" (file /dwell.toml): is the name of whoever needs no token",
        "auth.token[7].file = \"/does/not/exist\" (file /dwell.toml): cannot be read",
    ] {
        assert!(
            errors.replace(&*dir.path().to_string_lossy(), "").contains(&format!("\n  {said}")),
            "{said}\n{errors}"
        );
    }
    assert!(!errors.contains("s3cret"), "{errors}");
    let errors = |file: &str| load(file, &[], &[]).map(|loaded| loaded.err().unwrap_or_default());
    assert!(
        errors("[auth.token]\nname = 'a'")?.contains("auth.token (file /dwell.toml): is one of many: write [[auth")
    );
    assert!(errors("auth = 'a'")?.contains("auth (file /dwell.toml): is a section, not a key"));
    assert!(errors("auth.tokens = []")?.contains("auth.tokens (file /dwell.toml): is not known"));
    assert!(errors("listen = '0.0.0.0:1'")?.contains("add an [[auth.token]]"));
    let many: String = (0..=TOKENS_MAX)
        .map(|n| table(&dir, &format!("t{n}"), &format!("s3cret-0123456789-{n}"), "['produce']"))
        .collect::<IoResult<Vec<_>>>()?
        .concat();
    assert!(
        errors(&many)?.starts_with("1 error in the configuration:\n  auth.token[100] (default): is one of 101 tokens")
    );
    Ok(())
}
