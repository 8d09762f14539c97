//! What a configuration says about webhooks.

use std::io::Result as IoResult;

use super::{load, sources};
use crate::app::config::{secs, show};
use crate::model::limits::WEBHOOKS_MAX;
use crate::platform::secret::Secret;

const WEBHOOK: &str = "[[webhook]]\ntopic = 'orders'\nurl = 'http://localhost:8080/orders'\n";

#[test]
fn webhooks_are_read_with_their_defaults() -> IoResult<()> {
    let (dir, _) = sources("", &[], &[])?;
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret\n")?;
    let second = format!(
        "[[webhook]]\ntopic = 'mails'\ngroup = 'audit'\nurl = 'http://10.0.0.1/'\nconcurrency = 256\ntimeout = '1h'\n\
         secret_file = '{}'\nallow_remote = true\nenabled = false\n",
        secret.display()
    );
    let webhooks = load(&format!("{WEBHOOK}{second}"), &[], &[])?.map(|config| config.webhooks).unwrap_or_default();
    assert_eq!(webhooks.len(), 2);
    let (first, second) = (&webhooks[0], &webhooks[1]);
    assert_eq!((first.topic.as_str(), first.group.as_str(), first.enabled), ("orders", "default", true));
    assert_eq!((first.concurrency, first.timeout, &first.secret), (8, secs(10), &None));
    assert_eq!(first.target.to_string(), "http://localhost:8080/orders");
    assert_eq!((second.group.as_str(), second.concurrency, second.enabled), ("audit", 256, false));
    assert_eq!((second.timeout, &second.secret), (secs(3_600), &Some(Secret::new("s3cret"))));
    assert!(second.target.allows_remote() && !format!("{webhooks:?}").contains("s3cret"));
    Ok(())
}

#[test]
fn everything_wrong_with_every_webhook_is_said_at_once() -> IoResult<()> {
    let file = "[[webhook]]\nurl = 'http://u:s3cret@localhost/'\nconcurrency = 257\ntimeout = '99ms'\ntypo = 1\n\
                [[webhook]]\ntopic = 'a b'\ngroup = '..'\nurl = 'http://169.254.169.254/'\nsecret_file = '/does/not/exist'\n\
                allow_remot = true\nenabled = 'yes'\n";
    let errors = load(file, &[("DWELL_WEBHOOK_URL", "http://localhost/")], &[])?.err().unwrap_or_default();
    let expected = "12 errors in the configuration:
  webhook[0].typo (file /dwell.toml): is not known; `dwell config show` lists every key
  webhook[1].allow_remot (file /dwell.toml): is not known; did you mean allow_remote?
  DWELL_WEBHOOK_URL (environment variable DWELL_WEBHOOK_URL): is not known; `dwell config show` lists every key
  webhook[0].topic (file /dwell.toml): is missing; accepted: 1 to 100 of A-Z a-z 0-9 . _ -
  webhook[0].url = \"http://u:***@localhost/\" (file /dwell.toml): has a user or a password; sign with a secret_file";
    assert!(errors.starts_with(expected), "{errors}");
    for said in [
        "\n  webhook[0].concurrency = \"257\" (file /dwell.toml): is out of range; accepted: 1 to 256",
        "\n  webhook[0].timeout = \"99ms\" (file /dwell.toml): is out of range; accepted: 100ms to 1h",
        "\n  webhook[1].topic = \"a b\" (file /dwell.toml): a name has only letters",
        "\n  webhook[1].group = \"..\" (file /dwell.toml): a name is not only dots",
        "\n  webhook[1].url = \"http://169.254.169.254/\" (file /dwell.toml): 169.254.169.254 is not on this machine",
        "\n  webhook[1].secret_file = \"/does/not/exist\" (file /dwell.toml): cannot be read",
        "\n  webhook[1].enabled = \"yes\" (file /dwell.toml): is none of the words; accepted: true, false",
    ] {
        assert!(errors.contains(said), "{said}\n{errors}");
    }
    let errors = |file: &str| load(file, &[], &[]).map(|loaded| loaded.err().unwrap_or_default());
    assert!(errors("[webhook]\ntopic = 'orders'")?.contains("webhook (file /dwell.toml): is one of many: write [[web"));
    assert!(errors("webhook = ['http://localhost']")?.contains("webhook[0] (file /dwell.toml): is no table"));
    assert_eq!(errors(&WEBHOOK.repeat(WEBHOOKS_MAX))?, "");
    assert!(errors(&WEBHOOK.repeat(WEBHOOKS_MAX + 1))?.contains("is one of 101 webhooks; accepted: at"));
    Ok(())
}

#[test]
fn webhooks_are_shown_with_their_origins_and_are_read_back() -> IoResult<()> {
    let (_dir, given) = sources(WEBHOOK, &[], &[])?;
    let shown = show(&given).unwrap_or_default();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in ["[[webhook]] topic = \"orders\" # file /", "concurrency = 8 # default", "# secret_file = # default"] {
        assert!(words.contains(line), "{line}\n{shown}");
    }
    assert_eq!(load(&shown, &[], &[])?.map(|config| config.webhooks), load(WEBHOOK, &[], &[])?.map(|c| c.webhooks));
    Ok(())
}
