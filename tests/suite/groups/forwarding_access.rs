//! Receipts that are brought to another member, where each member asks for tokens.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use dwell::error::Result;
use serde_json::json;

use super::fleet::{Fleet, ORDERS, declare};
use super::forwarding::{ACK, in_hand, receipts, results, statuses};
use super::sidecar::Sidecar;
use crate::support::{RedisServer, failed};

const ADMIN: &str = "s3cret-of-the-operator";
const FORWARDER: &str = "s3cret-of-the-forwarder";

impl Fleet {
    /// Starts a sidecar that says where it listens, asks for tokens, and shows one when it forwards, if it has one.
    async fn start_asking(&self, name: &str, forwards: Option<&str>) -> Result<Sidecar> {
        let write = |file: &str, text: &str| {
            let path = self.file(file);
            let private = || std::fs::set_permissions(&path, Permissions::from_mode(0o600));
            let written = std::fs::write(&path, text).and_then(|()| private());
            written.map(|()| path.display().to_string()).map_err(failed(file))
        };
        let admin =
            format!("[[auth.token]]\nname = 'admin'\nfile = {:?}\nscopes = ['admin']\n", write("admin", ADMIN)?);
        let file = write("forwarder", FORWARDER)?;
        let forwarder = format!("[[auth.token]]\nname = 'forwarder'\nfile = {file:?}\nscopes = ['consume']\n");
        let config = write("dwell.toml", &[admin, forwarder].concat())?;
        let (address, shown) = (self.address(name), forwards.map(|token| write("shown", token)).transpose()?);
        let mut with = vec![("DWELL_CONFIG", &*config), ("DWELL_GROUP_ADVERTISE", &*address)];
        with.extend(shown.as_deref().map(|file| ("DWELL_GROUP_TOKEN_FILE", file)));
        Ok(self.start_with(name, &with).await?.with_token(ADMIN))
    }
}

#[tokio::test]
async fn a_receipt_is_forwarded_with_the_token_of_the_broker_and_not_of_the_consumer() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let (a, b) = (fleet.start_asking("a", Some(FORWARDER)).await?, fleet.start_asking("b", Some(FORWARDER)).await?);
    let [of_a, _] = in_hand([&a, &b]).await?;
    let acked = results(&b, ACK, json!({"receipts": receipts(&of_a)})).await?;
    assert_eq!(statuses(&acked), ["acked"; 10], "{}", b.log());
    assert_eq!(b.metric("dwell_forwards_total", "outcome=\"answered\"").await?, 1.0);
    for log in [a.log(), b.log()] {
        assert!(!log.contains("s3cret"), "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn without_a_token_that_the_owner_knows_it_is_not_reached() -> Result<()> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let a = fleet.start_asking("a", Some(FORWARDER)).await?;
    let b = fleet.start_asking("b", None).await?;
    declare(&a, ORDERS, 8).await?;
    let [of_a, _] = in_hand([&a, &b]).await?;
    let refused = results(&b, ACK, json!({"receipts": receipts(&of_a)})).await?;
    assert_eq!(statuses(&refused), ["unreachable"; 10]);
    assert!(b.metric("dwell_forwards_total", "outcome=\"failed\"").await? >= 1.0);
    // The receipts are as good as before where they came from.
    let acked = results(&a, ACK, json!({"receipts": receipts(&of_a)})).await?;
    assert_eq!(statuses(&acked), ["acked"; 10]);
    Ok(())
}
