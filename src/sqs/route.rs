//! Which requests are of SQS, and which queue they mean.

use super::errors::{Failure, INVALID_ADDRESS, Result};

/// Serves all other requests of the listener.
const OTHERS: [&str; 6] = ["/v1", "/ui", "/livez", "/readyz", "/metrics", "/openapi.json"];

const TARGET: &str = "AmazonSQS.";

/// Characters of a name of a queue.
const NAME_MAX: usize = 80;
pub(crate) const FIFO: &str = ".fifo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// With the name of the action.
    Json(String),
    Query,
}

/// `None` for a request that is not of SQS.
pub(crate) fn recognise(
    method: &str,
    path: &str,
    query: Option<&str>,
    header: impl Fn(&str) -> Option<String>,
) -> Option<Protocol> {
    let is_other = |other: &str| path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if OTHERS.into_iter().any(is_other) {
        return None;
    }
    if method == "GET" {
        let mut names = query?.split('&').map(|pair| pair.split('=').next());
        return names.any(|name| name == Some("Action")).then_some(Protocol::Query);
    }
    if method != "POST" {
        return None;
    }
    if let Some(action) = header("x-amz-target").and_then(|target| Some(target.strip_prefix(TARGET)?.to_owned())) {
        return Some(Protocol::Json(action));
    }
    let content_type = header("content-type")?;
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded").then_some(Protocol::Query)
}

/// The name of the queue that a request means: the parameter wins over the path, and of both only the last segment
/// counts. Errors: `MissingParameter`, `InvalidAddress`.
pub(crate) fn queue_name<'a>(queue_url: Option<&'a str>, path: &'a str) -> Result<&'a str> {
    let of_path = path.trim_matches('/').rsplit_once('/').map(|(_, name)| name);
    let name = match queue_url {
        Some(url) => url.rsplit('/').next(),
        None => of_path,
    };
    let name = name.ok_or_else(|| Failure::missing("QueueUrl"))?;
    let invalid = || Failure::new(INVALID_ADDRESS, format!("The address {name} is not valid for this endpoint."));
    is_queue_name(name).then_some(name).ok_or_else(invalid)
}

/// The last part of an ARN.
pub(crate) fn name_of_arn(arn: &str) -> Option<&str> {
    let name = arn.strip_prefix("arn:")?.rsplit(':').next()?;
    is_queue_name(name).then_some(name)
}

pub(crate) fn is_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(FIFO).unwrap_or(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    name.len() <= NAME_MAX && !stem.is_empty() && stem.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognised_by_header_path_and_type() {
        let seen = |method: &str, target: &str, amz: Option<&str>, kind: Option<&str>| {
            let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
            let header = |name: &str| match name {
                "x-amz-target" => amz.map(str::to_owned),
                "content-type" => kind.map(str::to_owned),
                _ => None,
            };
            recognise(method, path, query, header)
        };
        let (target, form) = (Some("AmazonSQS.SendMessage"), Some("application/x-www-form-urlencoded; charset=utf-8"));
        let json = Some(Protocol::Json("SendMessage".to_owned()));
        for path in ["/", "/000000000000/orders", "/queue/orders", "/v1x"] {
            assert_eq!(seen("POST", path, target, Some("application/json")), json, "{path}");
            assert_eq!(seen("POST", path, None, form), Some(Protocol::Query), "{path}");
        }
        assert_eq!(seen("GET", "/?Action=ListQueues", None, None), Some(Protocol::Query));
        for other in ["/", "/?x=Action", "/ui?Action=x", "/readyz?Action=x"] {
            assert_eq!(seen("GET", other, None, None), None, "{other}");
        }
        for path in ["/v1", "/v1/topics", "/ui/", "/livez", "/metrics", "/openapi.json"] {
            assert_eq!(seen("POST", path, target, form), None, "{path}");
        }
        assert_eq!(seen("POST", "/", None, Some("application/json")), None);
        assert_eq!(seen("PUT", "/", target, form), None);
        assert_eq!(seen("POST", "/", Some("AmazonSNS.Publish"), None), None);
    }

    #[test]
    fn a_queue_is_named_by_url_name_or_path() {
        let name = |url, path| queue_name(url, path).ok();
        assert_eq!(name(Some("http://h:1/000000000000/orders"), "/0/other"), Some("orders"));
        assert_eq!(name(Some("orders.fifo"), "/"), Some("orders.fifo"));
        assert_eq!(name(None, "/000000000000/orders"), Some("orders"));
        assert_eq!(name(None, "/queue/orders/"), Some("orders"));
        assert_eq!(queue_name(None, "/"), Err(Failure::missing("QueueUrl")));
        for wrong in ["", "http://h/0/", "http://h/0/a.b", ".fifo", "ö"] {
            assert!(queue_name(Some(wrong), "/").is_err_and(|failure| failure.class == INVALID_ADDRESS), "{wrong}");
        }
        assert_eq!(name_of_arn("arn:aws:sqs:eu-west-1:000000000000:orders"), Some("orders"));
        assert_eq!(name_of_arn("orders"), None);
        assert!(is_queue_name(&"a".repeat(80)) && !is_queue_name(&"a".repeat(81)));
        assert!(!is_queue_name(&format!("{}.fifo", "a".repeat(76))));
    }
}
