//! Whether more may be stored: sled works, and the disk is not nearly full.

use super::Inner;
use crate::model::error::Result;
use crate::platform::disk::check_room;

impl Inner {
    /// What has to be so before anything is stored. Consuming goes on without room.
    ///
    /// # Errors
    /// `Unavailable` when the disk failed, `Full` below the bytes that are kept free.
    pub(super) fn check_storable(&self) -> Result<()> {
        self.committer.check()?;
        check_room(&self.dir, self.reserve_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Embedded;
    use crate::model::error::Kind;
    use crate::platform::clock::Clock;
    use crate::store::Backend as _;

    #[tokio::test]
    async fn a_store_that_refuses_pushes_for_want_of_room_is_not_ready() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let mut store = Embedded::open(&dir.path().join("store"), Clock::System)?;
        assert_eq!(store.ready().await, Ok(None));
        Arc::get_mut(&mut store.inner).ok_or("it is shared")?.reserve_bytes = u64::MAX;
        assert_eq!(store.ready().await.map_err(|error| error.kind()), Err(Kind::Full));
        assert_eq!(store.ping().await, Ok(()), "what is there can be consumed");
        Ok(())
    }
}
