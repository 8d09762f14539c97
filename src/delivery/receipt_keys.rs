//! The keys that receipts are signed with, as this process knows them.
//!
//! A store has one key, which its first broker made. A broker that finds another key there, since the store lost its data,
//! signs with that one from then on, and still knows the receipts of before. A text that no known key has signed may be
//! signed with a new one: the store is asked before it is refused. One question is out at a time, and all that came before it
//! was sent share its answer.

use super::receipt::{NoReceipt, Receipt};
use super::verdict::{UnknownReason, Verdict};
use crate::model::error::Result;
use crate::platform::clock::{Clock, Instant};
use crate::platform::signing_key::{KeyRing, SIGNATURE_BYTES, SigningKey};
use crate::store::Store;

pub struct ReceiptKeys {
    store: Store,
    keys: KeyRing,
    asked: tokio::sync::Mutex<Option<Asked>>,
}

/// The last time that the store was asked.
struct Asked {
    began: Instant,
    answer: Result<SigningKey>,
}

impl ReceiptKeys {
    pub fn new(store: Store) -> ReceiptKeys {
        let keys = KeyRing::new(store.backend.kept_receipt_keys());
        ReceiptKeys { store, keys, asked: tokio::sync::Mutex::default() }
    }

    /// The key for an epoch that was acquired by a call which ended at `acquired`. The store is asked after that: a store that has
    /// the lease of this epoch then also has its key, unless it loses both. Errors: the store's.
    pub(super) async fn for_epoch(&self, acquired: Instant) -> Result<SigningKey> {
        self.ask(|asked| asked.answer.is_ok() && asked.began >= acquired).await
    }

    /// Reads texts. Errors: the verdict on a text that is no receipt of this store, or `Unreachable` while that cannot be said.
    pub async fn read(&self, texts: &[impl AsRef<str>]) -> Vec<std::result::Result<Receipt, Verdict>> {
        let mut read = self.read_with_known(texts);
        let mut refusal = Verdict::Unknown(UnknownReason::Invalid);
        if read.contains(&Err(NoReceipt::Unsigned)) {
            let now = Clock::System.instant();
            match self.ask(|asked| asked.began >= now).await {
                Ok(_) => read = self.read_with_known(texts),
                Err(_) => refusal = Verdict::Unreachable,
            }
        }
        let verdict = |none| match none {
            NoReceipt::Garbage => Verdict::Unknown(UnknownReason::Invalid),
            NoReceipt::Unsigned => refusal,
        };
        read.into_iter().map(|receipt| receipt.map_err(verdict)).collect()
    }

    /// A code of a text that nobody outside can compute. Another one after the store lost its key. Errors: the store's.
    pub async fn code(&self, text: &str) -> Result<[u8; SIGNATURE_BYTES]> {
        let key = self.ask(|asked| asked.answer.is_ok()).await?;
        Ok(key.sign(text.as_bytes()))
    }

    fn read_with_known(&self, texts: &[impl AsRef<str>]) -> Vec<std::result::Result<Receipt, NoReceipt>> {
        let keys = self.keys.all();
        texts.iter().map(|text| Receipt::read(text.as_ref(), &keys)).collect()
    }

    /// Asks the store for its key, and offers it one; unless the last answer will do. One call at a time, so that those who wait
    /// for one share the next.
    async fn ask(&self, will_do: impl Fn(&Asked) -> bool) -> Result<SigningKey> {
        let mut asked = self.asked.lock().await;
        if let Some(last) = asked.as_ref().filter(|last| will_do(last)) {
            return last.answer.clone();
        }
        let began = Clock::System.instant();
        let offered = self.keys.newest().map_or_else(SigningKey::fresh, Ok)?;
        let answer = self.store.backend.receipt_key(&offered).await;
        if let Ok(key) = &answer {
            self.keys.learn(key);
        }
        *asked = Some(Asked { began, answer: answer.clone() });
        answer
    }
}
