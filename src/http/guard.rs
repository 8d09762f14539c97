//! Only programs of this machine: not a web page in a browser of this machine, and not a name that an attacker points here.
//!
//! A loopback address is not enough: any page may send requests to it (`Origin` tells), and after DNS rebinding the
//! browser takes the answers for the page's own (`Host` tells).

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::problem::{Class, Problem};
use crate::error::Kind;

/// Which requests come from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// On a loopback address: `Host` has to be a loopback name or address.
    Loopback,
    /// On a Unix socket, which no browser reaches: clients put anything into `Host`.
    Unix,
}

/// Refuses what is not from this machine.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.guard.allows(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl Guard {
    fn allows<B>(self, request: &axum::http::Request<B>) -> Result<(), Problem> {
        let host = single(request.headers(), header::HOST)?;
        if self == Guard::Loopback {
            if host.is_none() && request.version() >= Version::HTTP_11 {
                return Err(Problem::malformed("the request has no `Host`"));
            }
            let of_target = request.uri().authority().map(Authority::as_str);
            for host in host.iter().copied().chain(of_target) {
                if !is_loopback(host) {
                    let detail = format!("`Host`: {host:?} is not a loopback name or address");
                    return Err(Problem::new(Class::Verb(Kind::Forbidden), detail));
                }
            }
        }
        let Some(origin) = single(request.headers(), header::ORIGIN)? else { return Ok(()) };
        let same = origin.strip_prefix("http://").zip(host).is_some_and(|(from, host)| from.eq_ignore_ascii_case(host));
        if same {
            return Ok(());
        }
        let detail = format!("`Origin`: {origin:?} is another site; web pages cannot use dwell");
        Err(Problem::new(Class::Verb(Kind::Forbidden), detail))
    }
}

/// The value of a header that comes at most once.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(&name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::malformed(format!("the header `{name}` is given twice")));
    }
    let text = value.map(|value| value.to_str()).transpose();
    text.map_err(|_| Problem::malformed(format!("the header `{name}` has bytes that are not visible ASCII")))
}

fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

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
            assert_eq!(status(Guard::Loopback, "/", &[("host", host)]), 200, "{host}");
        }
        let bad =
            ["", "evil.example", "localhost.evil.example", "evil@localhost", "10.0.0.1", "0.0.0.0", "[::2]", "a b"];
        for host in bad {
            assert_eq!(status(Guard::Loopback, "/", &[("host", host)]), 403, "{host:?}");
        }
        assert_eq!(status(Guard::Loopback, "/", &[]), 400);
        assert_eq!(status(Guard::Loopback, "/", &[("host", "localhost"), ("host", "localhost")]), 400);
        assert_eq!(status(Guard::Loopback, "http://evil.example/", &[("host", "localhost")]), 403);
        assert_eq!(status(Guard::Loopback, "http://localhost/", &[("host", "localhost")]), 200);
        assert_eq!(status(Guard::Unix, "/", &[("host", "dwell")]), 200);
        assert_eq!(status(Guard::Unix, "/", &[]), 200);
    }

    #[test]
    fn a_web_page_is_another_origin() {
        let from = |guard, origin| status(guard, "/", &[("host", "localhost:7373"), ("origin", origin)]);
        assert_eq!(from(Guard::Loopback, "http://localhost:7373"), 200);
        for origin in
            ["null", "http://evil.example", "http://localhost:3000", "https://localhost:7373", "localhost:7373"]
        {
            assert_eq!(from(Guard::Loopback, origin), 403, "{origin}");
            assert_eq!(from(Guard::Unix, origin), 403, "{origin}");
        }
    }
}
