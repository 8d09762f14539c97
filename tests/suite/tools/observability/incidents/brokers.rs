//! Brokers that end, stand still, or run out of something.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::platform::clock::Clock;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fleet::{Fleet, Setup};
use crate::support::{Certificates, eventually, failed, pause_of_load, scratch, shifted_clock, signal_to};
use crate::tools::observability::queries::{list, text};

#[tokio::test]
async fn broker_that_is_killed_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellDown"], async {
            fleet.spare().await.kill()?;
            fleet.waits_for("DwellDown").await?;
            fleet.shows("a third of the fleet is down").await?;
            fleet.spare().await.restart().await?;
            fleet.is_well().await
        })
        .await
}

/// Each start is quick, so Prometheus finds the broker up.
#[tokio::test]
async fn crash_loop_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellCrashLoop"], async {
            for _ in 0..4 {
                fleet.spare().await.restart().await?;
                // Each start has to be scraped.
                fleet.is_scraped_again().await?;
            }
            fleet.waits_for("DwellCrashLoop").await
        })
        .await
}

/// A broker stands still for longer than its lease. Prometheus misses it for less than it takes to say so.
#[tokio::test]
async fn broker_that_stands_still_and_loses_its_leases_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellLeasesLost"], async {
            let (one, spare) = (&fleet.brokers[0], fleet.spare().await);
            one.tell("PUT /v1/topics/still", &json!({"partitions": 2})).await?;
            let ask = json!({"max": 1, "wait": "30s"});
            let owners = async || -> Result<Vec<String>> {
                let topic = one.tell("GET /v1/topics/still", &Value::Null).await?;
                let owners: Vec<String> =
                    list(&topic, "partitions").map(|partition| text(partition, "owner").to_owned()).collect();
                Ok(owners)
            };
            let waits = spare.send("POST /v1/topics/still/groups/default/reserve", &ask);
            let lost = async {
                eventually("the spare broker owns all", async || {
                    Ok(owners().await?.iter().all(|owner| !owner.is_empty()).then_some(()))
                })
                .await?;
                let before = owners().await?;
                // Its leases have been counted.
                fleet.is_scraped_again().await?;
                signal_to(spare.pid(), Signal::STOP)?;
                let other = one.send("POST /v1/topics/still/groups/default/reserve", &ask);
                let taken = eventually("another broker owns all", async || {
                    let is_other = |(owner, before): (String, &String)| !owner.is_empty() && owner != *before;
                    Ok(owners().await?.into_iter().zip(&before).all(is_other).then_some(()))
                });
                let taken = tokio::select! {
                    taken = taken => taken,
                    _ = other => Ok(()),
                };
                signal_to(spare.pid(), Signal::CONT)?;
                taken?;
                fleet.waits_for("DwellLeasesLost").await
            };
            let (_, lost) = tokio::join!(waits, lost);
            lost
        })
        .await
}

/// A consumer at the spare broker takes so many messages, the broker hangs, and the consumer acks them elsewhere, one by one;
/// until an alert fires.
async fn settles_elsewhere(fleet: &Fleet, count: usize, alert: &str) -> Result<()> {
    let (one, spare) = (&fleet.brokers[0], fleet.spare().await);
    one.tell("PUT /v1/topics/held", &json!({"partitions": 1})).await?;
    let held = json!({"messages": vec![json!({"payload": "held"}); count]});
    one.tell("POST /v1/topics/held/messages/batch", &held).await?;
    let ask = json!({"max": count, "wait": "20s", "visibility_timeout": "10m"});
    let mut receipts = Vec::new();
    while receipts.len() < count {
        let taken = spare.tell("POST /v1/topics/held/groups/default/reserve", &ask).await?;
        receipts.extend(list(&taken, "deliveries").map(|delivery| text(delivery, "receipt").to_owned()));
    }
    signal_to(spare.pid(), Signal::STOP)?;
    let acks = receipts.iter().map(|receipt| async move {
        one.send("POST /v1/topics/held/groups/default/ack", &json!({"receipts": [receipt]})).await
    });
    let answers = futures_util::future::join_all(acks).await;
    let down = fleet.waits_for("DwellDown").await;
    let fired = fleet.waits_for(alert).await;
    signal_to(spare.pid(), Signal::CONT)?;
    for answer in answers {
        let (status, answer) = answer?;
        assert!(status == 504 && answer.to_string().contains("unreachable"), "{status}: {answer}");
    }
    down.and(fired)
}

/// The owner of a partition hangs, and consumers settle at another broker what they got from it. Its leases outlast the incident:
/// nobody takes its partitions over.
#[tokio::test]
async fn broker_that_hangs_fires_alerts_about_itself_and_about_settling_elsewhere() -> Result<()> {
    let fleet = Setup { lease_ttl: Some("2m"), ..Setup::default() }.start().await?;
    fleet.fires(&["DwellDown", "DwellRemoteFails"], settles_elsewhere(&fleet, 20, "DwellRemoteFails")).await
}

/// The same with a few acks, which are too few to say that brokers do not reach each other.
#[tokio::test]
async fn acks_that_are_refused_fire_one_alert_beside_that_of_the_broker() -> Result<()> {
    let fleet = Setup { lease_ttl: Some("2m"), ..Setup::default() }.start().await?;
    let incident = async {
        settles_elsewhere(&fleet, 8, "DwellSettleRefused").await?;
        fleet.types("DwellSettleRefused", "dwell attention", &[]).await?.says(&[]);
        Ok(())
    };
    fleet.fires(&["DwellDown", "DwellSettleRefused"], incident).await
}

/// A pod is deleted with a log that nobody has replayed, and leaves discovery.
#[tokio::test]
async fn broker_that_leaves_with_buffered_pushes_fires_one_alert_beside_that_of_redis() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellBrokerLost", "DwellRedisDown"], async {
            fleet.redis().await.kill()?;
            let mut spare = fleet.spare().await;
            let kept = json!({"messages": [{"payload": "kept"}]});
            let answer = spare.tell("POST /v1/topics/orders/messages/batch", &kept).await?;
            assert_eq!(answer["results"][0]["status"], "buffered");
            let records = format!(r#"dwell_wal_records{{log="wal",instance="127.0.0.1:{}"}}"#, spare.port);
            fleet.until(&records, |records| records > 0.0).await?;
            fleet.prometheus.forget(fleet.dir.path(), spare.port)?;
            fleet.until("count(up)", |brokers| brokers == 2.0).await?;
            spare.kill()?;
            fleet.waits_for("DwellBrokerLost").await?;
            fleet.redis().await.restart().await
        })
        .await
}

/// The day in so many days.
fn in_days(days: u64) -> (i32, u8, u8) {
    let day = Clock::System.now().plus(Duration::from_secs(days * 86_400)).to_string();
    let part = |at: std::ops::Range<usize>| day.get(at).and_then(|part| part.parse().ok()).unwrap_or_default();
    (i32::from(part(0..2)) * 100 + i32::from(part(2..4)), part(5..7), part(8..10))
}

/// Each broker has one that ends; then it is renewed without a restart.
#[tokio::test]
async fn certificate_that_ends_soon_fires_one_alert_until_it_is_renewed() -> Result<()> {
    let certificates = Certificates::ending(Some(in_days(10)))?;
    let fleet = Setup { certificates: Some(&certificates), ..Setup::default() }.start().await?;
    fleet
        .fires(&["DwellCertificateEnds"], async {
            fleet.waits_for("DwellCertificateEnds").await?;
            let file = fleet.dir.path().join("cert").display().to_string();
            let names = [("FILE", file.as_str())];
            fleet
                .types("DwellCertificateEnds", "openssl x509 -enddate -noout -in FILE", &names)
                .await?
                .says(&["notAfter="]);
            certificates.renewed()?.write(fleet.dir.path())?;
            fleet.types("DwellCertificateEnds", "dwell reload", &names).await?.says(&[]);
            fleet.is_well().await
        })
        .await
}

/// A broker may open few files, and clients keep their connections.
#[tokio::test]
async fn broker_with_many_files_open_fires_one_alert() -> Result<()> {
    let fleet = Fleet::start("", &[]).await?;
    fleet
        .fires(&["DwellOpenFiles"], async {
            let spare = fleet.spare().await;
            let few = ["--pid", &spare.pid().to_string(), "--nofile=200:"].map(str::to_owned);
            let limited = Command::new("prlimit").args(few).status().map_err(failed("prlimit, of util-linux"))?;
            assert!(limited.success());
            let part = format!(r#"process_open_fds{{instance="127.0.0.1:{}"}} / 200"#, spare.port);
            let mut connections = Vec::new();
            while fleet.value(&part).await?.is_none_or(|part| part < 0.85) {
                for _ in 0..10 {
                    let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, spare.port));
                    connections.push(keep(connection.map_err(failed("a connection"))?)?);
                }
                assert!(connections.len() < 200, "{:?}", fleet.value(&part).await?);
                fleet.is_scraped_again().await?;
            }
            fleet.waits_for("DwellOpenFiles").await?;
            let causes = Fleet::attention_of(&spare, "open_files").await?;
            assert!(causes.len() == 1 && causes[0].contains("% of the files open that it may"), "{causes:?}");
            let doctor = fleet.types_at(&spare, "DwellOpenFiles", "dwell doctor", &[]).await?;
            assert!(doctor.said.contains("files"), "{doctor:#?}");
            fleet.types_at(&spare, "DwellOpenFiles", "ulimit -n", &[]).await?.says(&[]);
            drop(connections);
            fleet.is_well().await
        })
        .await
}

/// A connection on which a request was answered, and which the broker keeps for the next one.
fn keep(mut connection: TcpStream) -> Result<TcpStream> {
    use std::io::{Read as _, Write as _};

    let request = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    connection.write_all(request).map_err(failed("a request"))?;
    connection.read(&mut [0; 1_024]).map_err(failed("an answer"))?;
    Ok(connection)
}

/// The clock of a machine is wrong.
#[tokio::test]
async fn broker_whose_clock_is_wrong_fires_one_alert() -> Result<()> {
    let dir = scratch()?;
    let (library, shift) = (shifted_clock(dir.path())?, dir.path().join("shift"));
    std::fs::write(&shift, "20").map_err(failed("the shift"))?;
    let by = ["/usr/bin/env".to_owned(), format!("LD_PRELOAD={library}"), format!("WALL_SHIFT={}", shift.display())];
    let fleet = Setup { spare_by: &by, ..Setup::default() }.start().await?;
    fleet
        .fires(&["DwellClockOffset"], async {
            fleet.waits_for("DwellClockOffset").await?;
            let causes = Fleet::attention_of(&*fleet.spare().await, "clock_offset").await?;
            assert!(causes.len() == 1 && causes[0].contains("s ahead of that of Redis"), "{causes:?}");
            assert!(fleet.attention("clock_offset").await?.is_empty());
            std::fs::write(&shift, "0").map_err(failed("the shift"))?;
            pause_of_load(Duration::from_millis(100)).await;
            fleet.is_well().await
        })
        .await
}
