//! Request ids: in answers and in the log.

use std::fmt;
use std::sync::Arc;

use crate::model::limits::REQUEST_ID_BYTES_MAX;

pub const REQUEST_ID: &str = "dwell-request-id";

tokio::task_local! {
    static CURRENT: RequestId;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub fn fresh() -> RequestId {
        let mut text = [0; ulid::ULID_LEN];
        RequestId((*ulid::Ulid::new().array_to_str(&mut text)).into())
    }

    /// A client's id: 1 to 128 of `A-Z a-z 0-9 . _ : -`, so that it cannot forge a line of the log.
    pub fn given(text: &[u8]) -> Option<RequestId> {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
        let sane = (1..=REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.iter().all(allowed);
        std::str::from_utf8(text).ok().filter(|_| sane).map(|text| RequestId(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn current() -> Option<RequestId> {
        CURRENT.try_with(RequestId::clone).ok()
    }

    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_request_ids_are_accepted() {
        for sane in ["a", "01JH2Y0000000000000000000", "7b1c:3.x_y-z", &"a".repeat(REQUEST_ID_BYTES_MAX)] {
            assert_eq!(RequestId::given(sane.as_bytes()).map(|id| id.to_string()).as_deref(), Some(sane));
        }
        for bad in ["", "a b", "a\n", "a\"b", "a=b", "é", "a\u{1b}[31m", &"a".repeat(REQUEST_ID_BYTES_MAX + 1)] {
            assert_eq!(RequestId::given(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(RequestId::given(b"\xff"), None);
        assert_ne!(RequestId::fresh(), RequestId::fresh());
    }

    #[tokio::test]
    async fn request_id_is_scoped_to_its_request() {
        let id = RequestId::fresh();
        assert_eq!(id.clone().scope(async { RequestId::current() }).await, Some(id));
        assert_eq!(RequestId::current(), None);
    }
}
