//! Tokens that change while the broker runs.

use std::time::Duration;

use super::{asking, status, token};
use crate::http::served::Outcome;

#[tokio::test]
async fn a_token_is_changed_without_a_restart() -> Outcome {
    let (dwell, dir) = asking().await?;
    let line = "GET /v1/topics/orders/groups/default/dead";
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
