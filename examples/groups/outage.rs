//! Redis stands still for two ttl, and nobody else takes over: the epochs go on.

use std::time::Instant;

use dwell::model::error::{Error, Result};
use rustix::process::Signal;
use serde_json::json;

use crate::fleet::{Fleet, ORDERS, declare};
use crate::report::{Report, show};
use crate::sidecar::{Sidecar, Taken};
use crate::support::{RedisServer, eventually};
use crate::{TTL, passed, signal};

/// Messages that consumers of each of the two members have in hand.
const HELD: usize = 20;

/// Two members with half of the messages handed out.
async fn half_way() -> Result<(Fleet, Vec<Sidecar>, Vec<Vec<Taken>>)> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let members = vec![fleet.start("a").await?, fleet.start("b").await?];
    declare(&members[0], ORDERS, 16).await?;
    for member in &members {
        member.reserve(ORDERS, 1, "0s").await?;
    }
    members[0].shared(ORDERS, &[8, 8]).await?;
    let messages: Vec<_> = (0..HELD * 8).map(|n| json!({"id": format!("m{n}"), "payload": "x"})).collect();
    members[0].push(ORDERS, &messages).await?;
    let held = vec![members[0].take(ORDERS, HELD).await?, members[1].take(ORDERS, HELD).await?];
    Ok((fleet, members, held))
}

/// Takes and acks until the topic is empty; answers what came.
async fn rest(members: &[Sidecar]) -> Result<Vec<Taken>> {
    let mut all = Vec::new();
    eventually("the topic is empty", async || {
        for member in members {
            let Ok(taken) = member.reserve(ORDERS, 100, "200ms").await else { return Ok(None) };
            if !taken.is_empty() {
                member.ack(ORDERS, &taken).await?;
                all.extend(taken);
            }
        }
        Ok((members[0].counts(ORDERS).await? == [0; 4]).then_some(()))
    })
    .await?;
    Ok(all)
}

/// Acks half of what each consumer has when the outage begins, and the rest when it ends.
pub(crate) async fn stopped(report: &mut Report) -> Result<()> {
    let (fleet, members, held) = half_way().await?;
    let before = fleet.epochs(16).await?;
    let since = Instant::now();
    signal(fleet.redis.pid(), Signal::STOP)?;
    let mut acks = Vec::new();
    let ack = |member: &Sidecar, taken: &[Taken]| {
        let (member, taken) = (member.clone(), taken.to_vec());
        tokio::spawn(async move { member.ack(ORDERS, &taken).await })
    };
    for (member, held) in members.iter().zip(&held) {
        acks.push(ack(member, &held[..HELD / 2]));
    }
    passed(since, TTL * 2).await?;
    for (member, held) in members.iter().zip(&held) {
        acks.push(ack(member, &held[HELD / 2..]));
    }
    signal(fleet.redis.pid(), Signal::CONT)?;
    let back = Instant::now();
    let mut verdicts = Vec::new();
    for ack in acks {
        verdicts.extend(ack.await.map_err(|error| Error::bug(error.to_string()))??);
    }
    let count = |what: &str| verdicts.iter().filter(|verdict| *verdict == what).count();
    let (acked, pending) = (count("acked"), count("pending"));
    let figures = format!("{acked} acked, {pending} pending of {}", 2 * HELD);
    report.row("Redis stands still for 2 ttl: acks meanwhile", figures, "none refused", acked + pending == 2 * HELD);

    let rest = rest(&members).await?;
    let settled = back.elapsed();
    let again = rest.iter().filter(|taken| held.iter().flatten().any(|held| held.id == taken.id)).count();
    let first = rest.iter().filter(|taken| taken.attempt == 1).count();
    let figures = format!("{again} redelivered, {first} others came as attempt 1, all settled {} later", show(settled));
    report.row(
        "what was acked, and the rest",
        figures,
        "0 redelivered",
        again == 0 && first == HELD * 6 && rest.len() == first,
    );
    let after = fleet.epochs(16).await?;
    let same = before.iter().zip(&after).filter(|(before, after)| before == after).count();
    let lost = members[0].metric("dwell_leases_lost_total", "").await?
        + members[1].metric("dwell_leases_lost_total", "").await?;
    report.row(
        "the owners resume",
        format!("{same} of 16 epochs go on, {lost} lost"),
        "all, 0 lost",
        same == 16 && lost == 0.0,
    );
    Ok(())
}
