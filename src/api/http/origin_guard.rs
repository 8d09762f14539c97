//! Keeps web pages of other origins away, including those of a browser on this machine and those behind DNS rebinding.
//!
//! Without tokens every client may do everything, and a loopback address does not protect: any page may send requests to
//! it (`Origin` shows that), and after DNS rebinding the browser treats the answers as the page's own (`Host` shows that).
//! An image or a link sends a GET without `Origin`, whose answer no page can read; but a GET could have effects.
//! `Sec-Fetch-Site` shows those: browsers send it with every request to a loopback address or over TLS, and no page can
//! change it. Only the console may be linked to from other sites.
//!
//! Beyond loopback `Host` proves nothing: dwell does not know its names, and a rebound page sends its own name as `Host`
//! and as `Origin`. But there tokens are required, and a browser adds none: it keeps the token that was entered into the
//! console with that origin. So a rebound page reaches only `/livez`, `/readyz` and the files of the console. Other pages
//! cannot set `Authorization` without a preflight, which is refused. `Origin` must name the same host here too; its scheme
//! is ignored, since a proxy may have ended TLS.
//!
//! The listener for operators is the exception: beyond loopback it may ask for no token. There `Host` has to be an address, or a name
//! without a dot, as scrapers of pods and containers send it: a page on the internet has neither.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, Version, header};

use super::problem::{Class, Problem};
use crate::model::error::Kind;
use crate::model::limits::HOST_BYTES_MAX;

/// `same-origin`, `same-site` (another port, for example), `cross-site`, or `none` when the user typed the address.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// On a loopback address: `Host` has to be a loopback name or address.
    Loopback { tls: bool },
    /// No browser reaches a Unix socket; clients put anything into `Host`.
    Unix,
    /// On an address that other machines reach, where every request needs a token.
    Network,
    /// On an address that other machines reach, where none needs one: for operators.
    OpenNetwork,
}

impl Guard {
    pub(crate) fn allows<B>(self, request: &axum::http::Request<B>) -> Result<(), Problem> {
        let host = single(request.headers(), header::HOST)?;
        if self != Guard::Unix && host.is_none() && request.version() >= Version::HTTP_11 {
            return Err(Problem::malformed("the request has no `Host`"));
        }
        let of_target = request.uri().authority().map(Authority::as_str);
        let hosts = host.iter().copied().chain(of_target);
        if let Some(long) = hosts.clone().map(str::len).find(|bytes| *bytes > HOST_BYTES_MAX) {
            return Err(Problem::malformed(format!(
                "`Host` has {long} bytes, and a name with a port has at most {HOST_BYTES_MAX}"
            )));
        }
        let (is_named_well, wanted): (fn(&str) -> bool, _) = match self {
            Guard::Loopback { .. } => (is_loopback, "a loopback name or address"),
            Guard::OpenNetwork => (is_address_or_word, "an address or a name without a dot, and there are no tokens"),
            Guard::Unix | Guard::Network => (|_| true, ""),
        };
        for host in hosts {
            if !is_named_well(host) {
                let detail = format!("`Host`: {host:?} is not {wanted}");
                return Err(Problem::new(Class::Verb(Kind::Forbidden), detail));
            }
        }
        if let Some(site) = single(request.headers(), SEC_FETCH_SITE)?
            && !["same-origin", "none"].contains(&site)
            && !is_console(request)
        {
            let detail =
                format!("`Sec-Fetch-Site`: {site:?}, so another site asks; no web pages but dwell's own can use it");
            return Err(Problem::new(Class::Verb(Kind::Forbidden), detail));
        }
        let Some(origin) = single(request.headers(), header::ORIGIN)? else { return Ok(()) };
        let schemes: &[&str] = match self {
            Guard::Loopback { tls: true } => &["https://"],
            Guard::Loopback { tls: false } | Guard::Unix => &["http://"],
            Guard::Network | Guard::OpenNetwork => &["http://", "https://"],
        };
        let from = schemes.iter().find_map(|scheme| origin.strip_prefix(scheme));
        if from.zip(host).is_some_and(|(from, host)| from.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        let detail = format!("`Origin`: {origin:?} is another site; no web pages but dwell's own can use it");
        Err(Problem::new(Class::Verb(Kind::Forbidden), detail))
    }
}

pub(crate) fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(&name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::malformed(format!("the header `{name}` is given twice")));
    }
    let text = value.map(|value| value.to_str()).transpose();
    text.map_err(|_| Problem::malformed(format!("the header `{name}` has bytes that are not visible ASCII")))
}

pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let value = single(headers, header::AUTHORIZATION)?;
    let shown = value.and_then(|value| value.split_once(' '));
    Ok(shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim()))
}

fn is_console<B>(request: &axum::http::Request<B>) -> bool {
    let path = request.uri().path();
    request.method() == Method::GET && (path == "/ui" || path.starts_with("/ui/"))
}

fn is_loopback(authority: &str) -> bool {
    match host_of(authority) {
        Some(Ok(address)) => address.is_loopback(),
        Some(Err(name)) => name.eq_ignore_ascii_case("localhost"),
        None => false,
    }
}

fn is_address_or_word(authority: &str) -> bool {
    match host_of(authority) {
        Some(Ok(_)) => true,
        Some(Err(name)) => !name.is_empty() && !name.contains('.'),
        None => false,
    }
}

/// The address of a host, otherwise its name; `None` if it is neither.
fn host_of(authority: &str) -> Option<Result<IpAddr, String>> {
    let authority = authority.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    Some(address.parse().map_err(|_| host.to_owned()))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const LOOPBACK: Guard = Guard::Loopback { tls: false };

    fn status(guard: Guard, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let Ok(request) = request.body(()) else { return 0 };
        guard.allows(&request).map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_loopback_names_are_hosts() {
        let good = ["localhost", "LOCALHOST:7373", "127.0.0.1:7373", "127.9.9.9", "[::1]:7373", "[::1]"];
        for host in good {
            assert_eq!(status(LOOPBACK, "/", &[("host", host)]), 200, "{host}");
        }
        let bad =
            ["", "evil.example", "localhost.evil.example", "evil@localhost", "10.0.0.1", "0.0.0.0", "[::2]", "a b"];
        for host in bad {
            assert_eq!(status(LOOPBACK, "/", &[("host", host)]), 403, "{host:?}");
        }
        assert_eq!(status(LOOPBACK, "/", &[]), 400);
        assert_eq!(status(LOOPBACK, "/", &[("host", "localhost"), ("host", "localhost")]), 400);
        assert_eq!(status(LOOPBACK, "http://evil.example/", &[("host", "localhost")]), 403);
        assert_eq!(status(LOOPBACK, "http://localhost/", &[("host", "localhost")]), 200);
        assert_eq!(status(Guard::Unix, "/", &[("host", "dwell")]), 200);
        assert_eq!(status(Guard::Unix, "/", &[]), 200);
    }

    #[test]
    fn an_open_network_takes_addresses_and_words_as_hosts() {
        for host in ["10.0.0.4:7374", "[fd00::4]:7374", "127.0.0.1", "dwell:7374", "LOCALHOST"] {
            assert_eq!(status(Guard::OpenNetwork, "/", &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example:7374", "10.0.0.4.evil.example", "dwell.", "a@dwell", "", "a b"] {
            assert_eq!(status(Guard::OpenNetwork, "/", &[("host", host)]), 403, "{host:?}");
        }
        assert_eq!(status(Guard::OpenNetwork, "/", &[]), 400);
        assert_eq!(status(Guard::OpenNetwork, "http://evil.example/", &[("host", "dwell")]), 403);
    }

    #[test]
    fn request_of_a_web_page_is_cross_origin() {
        let from = |guard, origin| status(guard, "/", &[("host", "localhost:7373"), ("origin", origin)]);
        assert_eq!(from(LOOPBACK, "http://localhost:7373"), 200);
        assert_eq!(from(Guard::Loopback { tls: true }, "https://localhost:7373"), 200);
        assert_eq!(from(Guard::Loopback { tls: true }, "http://localhost:7373"), 403);
        for origin in
            ["null", "http://evil.example", "http://localhost:3000", "https://localhost:7373", "localhost:7373"]
        {
            assert_eq!(from(LOOPBACK, origin), 403, "{origin}");
            assert_eq!(from(Guard::Unix, origin), 403, "{origin}");
        }
    }

    #[test]
    fn cross_site_image_or_link_opens_no_stream() {
        let get = |guard, target, site| status(guard, target, &[("host", "localhost:7373"), ("sec-fetch-site", site)]);
        let stream = "/v1/topics/orders/groups/default/stream";
        for guard in [LOOPBACK, Guard::Loopback { tls: true }, Guard::Network, Guard::Unix] {
            for site in ["cross-site", "same-site", "", "anything"] {
                assert_eq!(get(guard, stream, site), 403, "{guard:?} {site:?}");
                assert_eq!(get(guard, "/uix", site), 403, "{guard:?} {site:?}");
                assert_eq!(get(guard, "/ui", site), 200, "who links to the console, {guard:?} {site:?}");
            }
            for site in ["same-origin", "none"] {
                assert_eq!(get(guard, stream, site), 200, "{guard:?} {site:?}");
            }
        }
        let twice = [("host", "localhost"), ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")];
        assert_eq!(status(LOOPBACK, stream, &twice), 400);
    }

    #[test]
    fn non_loopback_accepts_any_host_but_only_same_host_pages() {
        let from = |origin| status(Guard::Network, "/", &[("host", "dwell.internal:7373"), ("origin", origin)]);
        for origin in ["http://dwell.internal:7373", "https://dwell.internal:7373", "https://DWELL.internal:7373"] {
            assert_eq!(from(origin), 200, "{origin}");
        }
        for origin in
            ["null", "https://evil.example", "https://dwell.internal", "https://dwell.internal:7373.evil.example"]
        {
            assert_eq!(from(origin), 403, "{origin}");
        }
        for host in ["10.0.0.4:7373", "dwell", "evil.example"] {
            assert_eq!(status(Guard::Network, "/", &[("host", host)]), 200, "{host}");
        }
        assert_eq!(status(Guard::Network, "/", &[]), 400);
        assert_eq!(status(Guard::Network, "/", &[("host", "a"), ("host", "b")]), 400);
    }
}
