//! What an operator sees with redis-cli: the keys of the two pages redis-keys.md and no others, and messages spread over partitions.

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::broker::{Options, ReserveRequest};
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, Key, NewMessage, TopicName};
use dwell::model::partition::hash;

use crate::support::{RedisServer, Running, World, eventually};

const MESSAGES: usize = 100_000;
const PARTITIONS: usize = 8;
/// It is made with the first lease.
const RECEIPT_KEY: &str = "dwell:receipt-key";

/// The keys of a topic, and these for each partition, sorted.
fn keys(of_partition: &[&str], others: &[String]) -> Vec<String> {
    let of = |partition| of_partition.iter().map(move |key| format!("{{dwell:orders:{partition}}}:{key}"));
    let partitions: BTreeSet<String> = (0..PARTITIONS).flat_map(of).collect();
    let others = ["dwell:history", "dwell:topics"].map(str::to_owned).into_iter().chain(others.iter().cloned());
    others.collect::<BTreeSet<_>>().into_iter().chain(partitions).collect()
}

/// The heartbeats of processes.
fn of_processes() -> [String; 2] {
    let members = format!("{{dwell:members-{}}}:~brokers:default", hash(b"~brokers/default") % 16);
    [members.clone(), format!("{members}:state")]
}

/// All keys but the memory of calls, which goes by itself.
async fn lasting(server: &RedisServer) -> Result<Vec<String>> {
    Ok(server.keys().await?.into_iter().filter(|key| !key.contains(":c:")).collect())
}

#[tokio::test]
async fn keys_have_documented_types_and_messages_are_spread() -> Result<()> {
    let server = RedisServer::start().await?;
    let world = World::redis_at(server.url(), Duration::from_secs(10)).await?;
    let running = Running::start(&world, Options::default())?;
    let topic = TopicName::new("orders")?;
    for page in 0..MESSAGES / 1_000 {
        let message = |n| Ok(NewMessage::new("close").key(Key::new(format!("customer-{}", page * 1_000 + n))?));
        let batch = (0..1_000).map(message).collect::<Result<_>>()?;
        running.broker.push_batch(&topic, batch).await?.into_iter().try_for_each(|pushed| pushed.map(drop))?;
    }
    let told = async || {
        Ok((lasting(&server).await? == keys(&["default:h", "default:z", "gen"], &of_processes())).then_some(()))
    };
    eventually("only those are there", told).await?;
    let mut total = 0;
    for partition in 0..PARTITIONS {
        let tag = format!("{{dwell:orders:{partition}}}");
        for (key, expected) in [("default:z", "zset"), ("default:h", "hash"), ("gen", "string")] {
            assert_eq!(server.ask::<String>(&format!("TYPE {tag}:{key}")).await?, expected, "{key}");
        }
        let scheduled: usize = server.ask(&format!("ZCARD {tag}:default:z")).await?;
        assert_eq!(server.ask::<usize>(&format!("HLEN {tag}:default:h")).await?, scheduled);
        let even = MESSAGES / PARTITIONS;
        assert!(scheduled.abs_diff(even) * 10 <= even, "{scheduled} messages in partition {partition}");
        total += scheduled;
    }
    assert_eq!(total, MESSAGES);
    Ok(())
}

#[tokio::test]
async fn acked_messages_leave_only_owner_records_and_leases() -> Result<()> {
    let server = RedisServer::start().await?;
    let world = World::redis_at(server.url(), Duration::from_secs(10)).await?;
    let running = Running::start(&world, Options::default())?;
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let mut left = 2_000;
    for _ in 0..2 {
        running.broker.push_batch(&topic, vec![NewMessage::new("close"); 1_000]).await?;
    }
    let request = ReserveRequest { max: 500, wait: Duration::from_secs(5), visibility_timeout: None };
    let mut again = true;
    while left > 0 {
        let deliveries = running.broker.reserve(&topic, &group, request).await?;
        assert!(!deliveries.is_empty(), "{left} did not come");
        // The first ones fail once, so that attempts are charged.
        let (decision, verdict) = match std::mem::take(&mut again) {
            true => (Decision::Nack { delay: Some(Duration::ZERO), reason: None }, Verdict::Nacked),
            false => (Decision::Ack, Verdict::Acked),
        };
        left -= if verdict == Verdict::Acked { deliveries.len() } else { 0 };
        let decisions = deliveries.iter().map(|delivery| (delivery.receipt.to_string(), decision.clone())).collect();
        let verdicts = running.broker.settle(&topic, &group, decisions).await?;
        assert!(verdicts.iter().all(|said| *said == verdict), "{verdicts:?}");
    }
    let members = format!("{{dwell:members-{}}}:orders:default", hash(b"orders/default") % 16);
    let of_group = [members.clone(), format!("{members}:state"), RECEIPT_KEY.to_owned()];
    let others: Vec<String> = of_group.into_iter().chain(of_processes()).collect();
    let owned = keys(&["default:lease", "default:r", "gen"], &others);
    // A partition that has nothing is taken as well, if not at once.
    eventually("only those are left", async || Ok((lasting(&server).await? == owned).then_some(()))).await?;
    for partition in 0..PARTITIONS {
        let fields: Vec<String> = server.ask(&format!("HKEYS {{dwell:orders:{partition}}}:default:r")).await?;
        assert_eq!(fields, ["@"]);
        assert_eq!(server.ask::<String>(&format!("TYPE {{dwell:orders:{partition}}}:default:lease")).await?, "string");
    }
    running.stop().await;
    assert_eq!(lasting(&server).await?, keys(&["default:r", "gen"], &[RECEIPT_KEY.to_owned()]));
    Ok(())
}
