//! Addresses: where to listen, where Redis is, where targets of webhooks are.

use dwell::api::http::Listen;
use dwell::api::webhook::Target;
use dwell::app::config::RedisUrl;
use dwell::app::engine::RedisOptions;
use dwell::store::redis::location_of;
use libfuzzer_sys::Corpus;

use crate::kept;
use crate::memory::bounded;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let listen = bounded(data, || Listen::parse(text));
    if let Ok(listen) = &listen {
        assert_eq!(Listen::parse(&listen.to_string()).as_ref(), Ok(listen));
        if let Listen::Tcp(address) = listen {
            assert!(listen.check(false).is_err() || address.ip().is_loopback());
        }
    }
    let target = Target::parse(text, false);
    if let Ok(target) = &target {
        assert_eq!(Target::parse(&target.to_string(), false).as_ref(), Ok(target));
    }
    let redis = RedisUrl::parse(text);
    if let Ok(url) = &redis {
        assert_eq!(url.secret().expose(), text);
        secrets_stay(url);
    }
    kept(listen.is_ok() || target.is_ok() || redis.is_ok())
}

/// Neither what is shown of a URL nor what is said about it holds its password.
fn secrets_stay(url: &RedisUrl) {
    let mut said = format!("{url} {url:?}");
    let url = url.secret().expose();
    // With TLS the certificates of this machine would be read each time.
    if !url.starts_with("rediss") {
        said += &location_of(&RedisOptions::new(url)).unwrap_or_else(|error| error.to_string());
    }
    let Some(password) = password(url) else { return };
    assert!(!said.contains(password), "{password:?} is in {said:?}");
}

/// The password of a URL, if it is long enough not to be a part of something else by chance.
fn password(url: &str) -> Option<&str> {
    // After the scheme of a socket comes a path, which holds what it likes.
    let (_, rest) = url.split_once("://").filter(|(scheme, _)| !scheme.ends_with("unix"))?;
    let (before, _) = rest.rsplit_once('@')?;
    let password = before.split_once(':')?.1;
    let is_telling = password.len() > 6 && url.matches(password).count() == 1;
    is_telling.then_some(password)
}
