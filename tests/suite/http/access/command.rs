//! The command line against a broker that asks for tokens, over TLS.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dwell::api::http::TlsFiles;
use tempfile::TempDir;
use tokio::process::Command;

use super::{audit_log, tokens_in};
use crate::http::api::served::{Outcome, Served};
use crate::support::Certificates;

/// A broker over TLS that asks for tokens, and the directory of all files.
struct Shop {
    served: Served,
    dir: TempDir,
}

impl Shop {
    async fn open() -> Outcome<Shop> {
        let dir = tempfile::tempdir()?;
        Certificates::new()?.write(dir.path())?;
        let tokens = tokens_in(dir.path())?;
        let file = |name| dir.path().join(name);
        let tls = Some(TlsFiles { cert: file("cert"), key: file("key"), client_ca: None });
        let served = Served::start_with(|options| (options.tls, options.tokens) = (tls, tokens)).await?;
        Ok(Shop { served, dir })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command; answers its exit code and what it printed on stderr.
    async fn run(&self, args: &[&str], env: &[(&str, &Path)]) -> Outcome<(Option<i32>, String)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(args).env_clear().envs(env.iter().copied()).env("DWELL_SERVER", &self.served.base);
        let output = self.served.driven(command.stdin(Stdio::null()).output()).await??;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    }
}

#[tokio::test]
async fn https_to_a_broker_without_tls_is_explained() -> Outcome {
    let served = Served::start().await?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    let address = served.base.replace("http://", "https://");
    command.args(["topic", "list", "--server", &address]).env_clear().stdin(Stdio::null());
    let output = served.driven(command.output()).await??;
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains("it speaks HTTP: give an address that begins with http://"), "{said}");
    Ok(())
}

#[tokio::test]
async fn command_sends_its_token_and_explains_a_missing_one() -> Outcome {
    let shop = Shop::open().await?;
    let (ca, producer, admin) = (shop.file("ca"), shop.file("producer"), shop.file("admin"));
    let believed = ("DWELL_CA_FILE", &*ca);
    let as_admin = [believed, ("DWELL_TOKEN_FILE", &*admin)];
    assert_eq!(shop.run(&["topic", "create", "orders"], &as_admin).await?, (Some(0), String::new()));
    let flag = producer.display().to_string();
    let push = ["push", "orders", "close 4711", "--id", "a", "--token-file", &flag];
    assert_eq!(shop.run(&push, &[believed]).await?, (Some(0), String::new()));
    // A flag wins over the environment.
    let (code, said) = shop.run(&["topic", "delete", "orders", "--yes", "--token-file", &flag], &as_admin).await?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a token with the scope admin; `producer` has produce; give --token-file"), "{said}");

    for command in [["topic", "list"], ["top", "--once"]] {
        let (code, said) = shop.run(&command, &[believed]).await?;
        assert_eq!(code, Some(1), "{command:?}: {said}");
        let says = |text: &str| said.contains(text);
        assert!(says("a token is needed") && says("or set DWELL_TOKEN_FILE (unauthorized)"), "{command:?}: {said}");
    }
    std::fs::write(shop.file("old"), "s3cret-of-yesterday")?;
    let (code, said) = shop.run(&["topic", "list"], &[believed, ("DWELL_TOKEN_FILE", &shop.file("old"))]).await?;
    assert!(code == Some(1) && said.contains("/old holds another one, perhaps an old one"), "{said}");
    for (file, why) in [("absent", "cannot be read: No such file"), ("cert", "holds something that is no visible")] {
        let (code, said) = shop.run(&["topic", "list"], &[believed, ("DWELL_TOKEN_FILE", &shop.file(file))]).await?;
        assert!(code == Some(64) && said.contains("--token-file: ") && said.contains(why), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn command_trusts_only_the_configured_ca() -> Outcome {
    let shop = Shop::open().await?;
    let token = ("DWELL_TOKEN_FILE", &*shop.file("admin"));
    let other = tempfile::tempdir()?;
    Certificates::new()?.write(other.path())?;
    let (code, said) = shop.run(&["topic", "list"], &[token, ("DWELL_CA_FILE", &other.path().join("ca"))]).await?;
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("invalid peer certificate") && said.contains("--ca-file names the certificates"), "{said}");
    let (code, said) = shop.run(&["topic", "list"], &[token, ("DWELL_CA_FILE", &shop.file("admin"))]).await?;
    assert!(code == Some(64) && said.contains("--ca-file: ") && said.contains("holds no certificate"), "{said}");
    let plain = shop.served.base.replace("https://", "http://");
    let (code, said) = shop.run(&["topic", "list", "--server", &plain], &[token]).await?;
    assert!(code == Some(69) && !said.is_empty(), "{said}");
    Ok(())
}

/// A consumer outlives the token that it was started with.
#[tokio::test]
async fn consumer_picks_up_a_rotated_token() -> Outcome {
    let shop = Shop::open().await?;
    let (ca, admin, mine) = (shop.file("ca"), shop.file("admin"), shop.file("mine"));
    std::fs::copy(shop.file("consumer"), &mine)?;
    let env = [("DWELL_CA_FILE", &*ca), ("DWELL_TOKEN_FILE", &*mine)];
    let as_admin = [("DWELL_CA_FILE", &*ca), ("DWELL_TOKEN_FILE", &*admin)];
    shop.run(&["topic", "create", "orders"], &as_admin).await?;
    let push = async |id: &str| shop.run(&["push", "orders", "x", "--id", id], &as_admin).await;
    let mut consume = Command::new(env!("CARGO_BIN_EXE_dwell"));
    consume.args(["consume", "orders", "--count", "2", "--json"]).env_clear().envs(env).kill_on_drop(true);
    consume.env("DWELL_SERVER", &shop.served.base).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut consumer = consume.spawn()?;
    push("first").await?;
    let (stdout, mut first) = (consumer.stdout.as_mut().ok_or("no stdout")?, vec![0; 1]);
    use tokio::io::AsyncReadExt as _;
    shop.served.driven(stdout.read_exact(&mut first)).await??;
    // Both ends change it, as one would do: a new secret is written to both files.
    for file in [shop.file("consumer"), mine.clone()] {
        std::fs::write(shop.file("new"), "s3cret-of-the-consumer-is-new")?;
        std::fs::rename(shop.file("new"), file)?;
    }
    shop.served.pass(Duration::from_secs(1));
    push("second").await?;
    let output = shop.served.driven(consumer.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn config_check_reports_all_token_and_file_errors() -> Outcome {
    let dir = tempfile::tempdir()?;
    Certificates::new()?.write(dir.path())?;
    let check = |text: &str| -> Outcome<(Option<i32>, String)> {
        let path = dir.path().join("check.toml");
        std::fs::write(&path, text)?;
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(["config", "check", "--config"]).arg(&path).env_clear().env("HOME", dir.path());
        let output = command.output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let good = std::fs::read_to_string(audit_log::configuration(dir.path())?)?;
    let file = |name: &str| dir.path().join(name).display().to_string();
    let tls = |cert: &str, key: &str| format!("[tls]\ncert_file = {:?}\nkey_file = {:?}\n", file(cert), file(key));
    assert_eq!(check(&format!("{good}{}", tls("cert", "key")))?.0, Some(0));
    let (code, said) = check(&format!("listen = '0.0.0.0:7373'\n{}", tls("key", "absent")))?;
    assert_eq!(code, Some(64), "{said}");
    for error in ["listen = \"0.0.0.0:7373\"", "tls.cert_file = ", "holds no certificate", "tls.key_file = ", "absent"]
    {
        assert!(said.contains(error), "{error}: {said}");
    }
    assert!(said.contains("3 errors in the configuration"), "{said}");
    let alone = format!("[tls]\nkey_file = {:?}\n", file("key"));
    assert!(check(&alone)?.1.contains("1 error in the configuration:\n  tls.key_file"), "{}", check(&alone)?.1);
    let other = tempfile::tempdir()?;
    Certificates::new()?.write(other.path())?;
    std::fs::copy(other.path().join("key"), dir.path().join("other"))?;
    assert!(check(&tls("cert", "other"))?.1.contains("accepted: the key of the first certificate in tls.cert_file"));
    let socket = format!("listen = 'unix:/run/dwell.sock'\n{}", tls("cert", "key"));
    assert!(check(&socket)?.1.contains("is for TLS, which a Unix socket does not need"));
    Ok(())
}
