//! Tokens that change while the broker runs.

use std::time::Duration;

use super::{asking, status, token};
use crate::http::api::served::Outcome;

#[tokio::test]
async fn token_is_rotated_without_a_restart() -> Outcome {
    let (dwell, dir) = asking().await?;
    let line = "GET /v1/topics/orders/groups/default/dead-letters";
    let (old, new) = (format!("Bearer {}", token("consumer")), "Bearer s3cret-that-is-new");
    let both = async || -> Outcome<[u16; 2]> {
        Ok([status(&dwell, line, Some(&old)).await?, status(&dwell, line, Some(new)).await?])
    };
    assert_eq!(both().await?, [404, 401]);
    std::fs::write(dir.path().join("new"), "s3cret-that-is-new")?;
    std::fs::rename(dir.path().join("new"), dir.path().join("consumer"))?;
    dwell.pass(Duration::from_secs(1));
    assert_eq!(both().await?, [401, 404]);
    // A file that is gone, or empty, lets nobody in, and no other token suffers.
    for gone in [true, false] {
        match gone {
            true => std::fs::remove_file(dir.path().join("consumer"))?,
            false => std::fs::write(dir.path().join("consumer"), "")?,
        }
        dwell.pass(Duration::from_secs(1));
        assert_eq!(both().await?, [401, 401], "gone: {gone}");
        assert_eq!(status(&dwell, line, Some("Bearer ")).await?, 401);
        assert_eq!(status(&dwell, line, Some(&format!("Bearer {}", token("admin")))).await?, 404);
        std::fs::write(dir.path().join("consumer"), token("consumer"))?;
        dwell.pass(Duration::from_secs(1));
        assert_eq!(both().await?, [404, 401]);
    }
    Ok(())
}

#[tokio::test]
async fn stream_ends_when_its_token_is_revoked() -> Outcome {
    let (dwell, dir) = asking().await?;
    let with = |line: &str, name: &str| -> Outcome<_> {
        Ok(dwell.request(line)?.header("authorization", format!("Bearer {}", token(name))))
    };
    assert_eq!(dwell.send(with("PUT /v1/topics/orders", "admin")?).await?.status, 201);
    let push = async |id: &str| -> Outcome {
        let line = format!("POST /v1/topics/orders/messages?id={id}");
        assert_eq!(dwell.send(with(&line, "producer")?.body("x")).await?.status, 201);
        Ok(())
    };
    let group = "/v1/topics/orders/groups/default";
    let mut stream = dwell.driven(with(&format!("POST {group}/stream"), "consumer")?.send()).await??;
    push("before").await?;
    let line = dwell.driven(stream.chunk()).await??.unwrap_or_default();
    assert!(line.starts_with(b"{"), "{line:?}");
    std::fs::remove_file(dir.path().join("consumer"))?;
    dwell.pass(Duration::from_secs(1));
    push("after").await?;
    assert_eq!(dwell.driven(stream.chunk()).await??, None);
    // Nobody had it, and what the stream had is there again.
    let mut taken = Vec::new();
    while taken.len() < 2 {
        let reserve = with(&format!("POST {group}/reserve"), "both")?.json(&serde_json::json!({"wait": "5s"}));
        let answer = dwell.send(reserve).await?;
        let delivery = &answer.body["deliveries"][0];
        taken.push((delivery["id"].to_string(), delivery["attempt"].to_string()));
    }
    taken.sort();
    let text = |id: &str, attempt: u32| (format!("{id:?}"), attempt.to_string());
    assert_eq!(taken, [text("after", 1), text("before", 2)]);
    Ok(())
}
