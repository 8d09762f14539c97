//! The keys of receipts, kept in a file: a broker reads receipts before its store answers, and gives a store back the key that
//! it lost.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::state_file::StateFile;
use crate::platform::clock::Clock;
use crate::platform::signing_key::{KeyRing, SigningKey};

/// A text for each key, the newest first.
#[derive(Debug)]
pub(super) struct KeptKeys {
    file: StateFile,
    keys: KeyRing,
}

impl KeptKeys {
    /// Reads the file. A key that it lacks the store has too.
    pub(super) fn load(path: PathBuf) -> KeptKeys {
        let (file, keys) = StateFile::load(path, SigningKey::from_text);
        KeptKeys { file, keys: KeyRing::new(keys) }
    }

    pub(super) fn all(&self) -> Vec<SigningKey> {
        self.keys.all().to_vec()
    }

    pub(super) fn newest(&self) -> Option<SigningKey> {
        self.keys.newest()
    }

    /// Keeps the key that the store has. When this returns the file has it, unless the disk fails.
    pub(super) async fn keep(&self, key: &SigningKey) {
        if self.keys.learn(key) {
            self.file.save(|| self.texts()).await;
        }
    }

    /// Writes what the disk did not take, until `stop`.
    pub(super) async fn run(&self, clock: &Clock, stop: CancellationToken) {
        self.file.run(clock, stop, || self.texts()).await;
    }

    fn texts(&self) -> Vec<String> {
        self.keys.all().iter().map(SigningKey::text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::{Error, Result};

    #[tokio::test]
    async fn keys_survive_a_restart_and_damage() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| Error::bug(error.to_string()))?;
        let path = dir.path().join("deep").join("receipt-keys");
        let (first, second) = (SigningKey::fresh()?, SigningKey::fresh()?);
        let kept = KeptKeys::load(path.clone());
        assert_eq!(kept.newest(), None);
        kept.keep(&first).await;
        kept.keep(&second).await;
        assert_eq!(KeptKeys::load(path.clone()).all(), [second.clone(), first.clone()]);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(std::fs::write(&path, &text[10..]).is_ok());
        assert_eq!(KeptKeys::load(path).all(), [first]);
        Ok(())
    }
}
