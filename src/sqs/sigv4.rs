//! Signature Version 4: the access key is the name of a token, the secret key is the token.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::civil::DateTime;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::errors::{EXPIRED, Failure, INCOMPLETE_SIGNATURE, Result, UNKNOWN_TOKEN, WRONG_SIGNATURE};
use super::model::hex;
use super::protocol;
use crate::model::time::Timestamp;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How far the clock of a client may be off, as at AWS.
const SKEW_MS: u64 = 15 * 60 * 1_000;
/// A week: the longest validity of a presigned URL.
const EXPIRES_MAX: u64 = 7 * 86_400;
const REGION_BYTES_MAX: usize = 64;

/// The parts that a signature covers, apart from the body.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// As it was sent, in percent-encoding.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// All values of a header, by its name in lower case.
    pub(crate) header: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all headers that begin with `x-amz-`: those that say something to AWS.
    pub(crate) amz: Vec<String>,
}

/// A signature with everything that the client says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) key_id: String,
    pub(crate) region: String,
    /// `20260102`.
    date: String,
    /// `20260102T030405Z`.
    time: String,
    headers: Vec<String>,
    signature: String,
    /// Seconds; only of a presigned URL, whose query has the signature.
    expires: Option<u64>,
}

impl Signature {
    /// Reads the header `Authorization`, or the query of a presigned URL. `None` if the request is not signed. Errors:
    /// `IncompleteSignature`.
    pub(crate) fn read(signed: &Signed) -> Result<Option<Signature>> {
        if let Some(authorization) = (signed.header)("authorization")
            && let Some(parts) = authorization.strip_prefix(ALGORITHM)
        {
            return Signature::of_header(parts, signed).map(Some);
        }
        let query = signed.query.unwrap_or_default();
        if !query.contains("X-Amz-Signature=") {
            return Ok(None);
        }
        let pairs = protocol::pairs(query)?;
        let get = |name: &str| pairs.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        if get("X-Amz-Algorithm").as_deref() != Some(ALGORITHM) {
            return Err(incomplete("X-Amz-Algorithm"));
        }
        let expires = get("X-Amz-Expires").and_then(|text| text.parse().ok()).filter(|secs| *secs <= EXPIRES_MAX);
        let expires = Some(expires.ok_or_else(|| incomplete("X-Amz-Expires"))?);
        Signature::new(get, get("X-Amz-Date"), expires, "X-Amz-")?.covers(&signed.amz).map(Some)
    }

    /// Whether it stands in a URL, and so in any link.
    pub(crate) fn is_presigned(&self) -> bool {
        self.expires.is_some()
    }

    fn of_header(parts: &str, signed: &Signed) -> Result<Signature> {
        let parts: Vec<_> = parts.split(',').filter_map(|part| part.trim().split_once('=')).collect();
        let get = |name: &str| parts.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned());
        Signature::new(get, (signed.header)("x-amz-date"), None, "")?.covers(&signed.amz)
    }

    fn new(
        get: impl Fn(&str) -> Option<String>,
        time: Option<String>,
        expires: Option<u64>,
        prefix: &str,
    ) -> Result<Signature> {
        let get = |name: &str| get(&format!("{prefix}{name}")).ok_or_else(|| incomplete(name));
        let (credential, headers, signature) = (get("Credential")?, get("SignedHeaders")?, get("Signature")?);
        let mut parts = credential.rsplitn(5, '/');
        let mut part = || parts.next().map(str::to_owned).ok_or_else(|| incomplete("Credential"));
        let (end, service, region, date, key_id) = (part()?, part()?, part()?, part()?, part()?);
        let time = time.ok_or_else(|| incomplete("X-Amz-Date"))?;
        // The region is shown again, in ARNs.
        let is_region =
            region.len() <= REGION_BYTES_MAX && region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if end != "aws4_request" || service != "sqs" || !time.starts_with(&date) || !is_region {
            return Err(incomplete("Credential"));
        }
        let headers: Vec<String> = headers.split(';').map(str::to_ascii_lowercase).collect();
        let needed: &[&str] = if expires.is_some() { &["host"] } else { &["host", "x-amz-date"] };
        if !needed.iter().all(|needed| headers.iter().any(|header| header == needed)) {
            return Err(incomplete("SignedHeaders"));
        }
        Ok(Signature { key_id, region, date, time, headers, signature, expires })
    }

    /// Nobody adds a header that means something. Errors: `IncompleteSignature`.
    fn covers(self, amz: &[String]) -> Result<Signature> {
        match amz.iter().find(|name| !self.headers.contains(name)) {
            None => Ok(self),
            Some(name) => {
                let why =
                    format!("There is a header that is not signed: {}.", name.chars().take(80).collect::<String>());
                Err(Failure::new(INCOMPLETE_SIGNATURE, why))
            }
        }
    }

    /// Whether the signature was made about now. Errors: `RequestExpired`.
    pub(crate) fn check_time(&self, now: Timestamp) -> Result<()> {
        let made = DateTime::strptime("%Y%m%dT%H%M%SZ", &self.time).ok();
        let made = made.and_then(|made| made.to_zoned(jiff::tz::TimeZone::UTC).ok()).map(|made| made.timestamp());
        let made =
            made.and_then(|made| u64::try_from(made.as_millisecond()).ok()).ok_or_else(|| incomplete("X-Amz-Date"))?;
        let until = self.expires.map_or(SKEW_MS, |secs| secs * 1_000);
        if made > now.as_ms().saturating_add(SKEW_MS) || now.as_ms() > made.saturating_add(until) {
            let message = format!("Signature expired: {} is too far from now. Check your clock.", self.time);
            return Err(Failure::new(EXPIRED, message));
        }
        Ok(())
    }

    /// Whether the signature is the one of this request, with this secret, and was made about now. Errors:
    /// `RequestExpired`, `SignatureDoesNotMatch`.
    pub(crate) fn verify(&self, signed: &Signed, body: &[u8], secret: &str, now: Timestamp) -> Result<()> {
        self.check_time(now)?;
        let expected = self.expected(&self.canonical(signed, body), secret);
        match bool::from(expected.as_bytes().ct_eq(self.signature.as_bytes())) {
            true => Ok(()),
            false => Err(Failure::new(
                WRONG_SIGNATURE,
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
                 Access Key and signing method. Consult the service documentation for details.",
            )),
        }
    }

    /// The request in the form that both sides hash.
    fn canonical(&self, signed: &Signed, body: &[u8]) -> String {
        let path = if signed.path.is_empty() { "/".into() } else { encode(signed.path, true) };
        let pairs = protocol::pairs(signed.query.unwrap_or_default()).unwrap_or_default();
        let pairs = pairs.iter().filter(|(name, _)| name != "X-Amz-Signature");
        let mut pairs: Vec<_> = pairs.map(|(name, value)| (encode(name, false), encode(value, false))).collect();
        pairs.sort();
        let query: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let header = |name: &String| {
            let value = (signed.header)(name).unwrap_or_default();
            let words: Vec<_> = value.split(' ').filter(|word| !word.is_empty()).collect();
            format!("{name}:{}\n", words.join(" "))
        };
        let headers: String = self.headers.iter().map(header).collect();
        let (names, hash) = (self.headers.join(";"), hex(&Sha256::digest(body)));
        format!("{}\n{path}\n{}\n{headers}\n{names}\n{hash}", signed.method, query.join("&"))
    }

    fn expected(&self, canonical: &str, secret: &str) -> String {
        let Signature { date, region, time, .. } = self;
        let hash = hex(&Sha256::digest(canonical));
        let text = format!("{ALGORITHM}\n{time}\n{date}/{region}/sqs/aws4_request\n{hash}");
        let start = format!("AWS4{secret}").into_bytes();
        let parts = [date.as_str(), region, "sqs", "aws4_request", &text];
        hex(&parts.into_iter().fold(start, |key, part| hmac(&key, part.as_bytes()).to_vec()))
    }
}

pub(crate) fn unknown_token() -> Failure {
    Failure::new(UNKNOWN_TOKEN, "The security token included in the request is invalid.")
}

fn incomplete(what: &str) -> Failure {
    Failure::new(INCOMPLETE_SIGNATURE, format!("The signature of the request has no valid {what}."))
}

pub(crate) fn hmac(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    // A key may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    mac.update(bytes);
    mac.finalize().into_bytes().into()
}

/// Encodes everything but letters, digits and `-._~`; of a path not `/`.
fn encode(text: &str, is_path: bool) -> Cow<'_, str> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || is_path && *byte == b'/';
    if text.as_bytes().iter().all(plain) {
        return text.into();
    }
    let encoded = text.bytes().map(|byte| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-02T03:04:05Z.
    const NOW: Timestamp = Timestamp::from_ms(1_767_323_045_000);
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const BODY: &[u8] = b"{\"QueueName\":\"orders\"}";

    fn header(name: &str) -> Option<String> {
        let value = match name {
            "host" => "127.0.0.1:7373",
            "x-amz-date" => "20260102T030405Z",
            "x-amz-target" => "  AmazonSQS.GetQueueUrl ",
            "authorization" => {
                "AWS4-HMAC-SHA256 Credential=orders/with/20260102/eu-west-1/sqs/aws4_request, \
                 SignedHeaders=host;x-amz-date;x-amz-target, Signature=SIGNATURE"
            }
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn post(header: &dyn Fn(&str) -> Option<String>) -> Signed<'_> {
        Signed { method: "POST", path: "/", query: None, header, amz: vec!["x-amz-date".to_owned()] }
    }

    fn signed() -> Result<Signature> {
        let mut read = Signature::read(&post(&header))?.ok_or_else(unknown_token)?;
        read.signature = read.expected(&read.canonical(&post(&header), BODY), SECRET);
        Ok(read)
    }

    #[test]
    fn a_signature_covers_body_headers_path_and_time() -> Result<()> {
        let signature = signed()?;
        assert_eq!((signature.key_id.as_str(), signature.region.as_str()), ("orders/with", "eu-west-1"));
        assert_eq!(
            signature.canonical(&post(&header), BODY),
            "POST\n/\n\nhost:127.0.0.1:7373\nx-amz-date:20260102T030405Z\nx-amz-target:AmazonSQS.GetQueueUrl\n\n\
             host;x-amz-date;x-amz-target\n93e6fbb18a2eb61a2a0f3d1ed0b2c0a1ab9dcf2ae7f6e1a6f2d86ed2ae8dd5f1"
                .replace(
                    "93e6fbb18a2eb61a2a0f3d1ed0b2c0a1ab9dcf2ae7f6e1a6f2d86ed2ae8dd5f1",
                    &hex(&Sha256::digest(BODY))
                )
        );
        let class = |signed: &Signed, body: &[u8], secret: &str, now| {
            signature.verify(signed, body, secret, now).err().map(|failure| failure.class)
        };
        let late = |ms: u64| Timestamp::from_ms(NOW.as_ms() + ms);
        let early = |ms: u64| Timestamp::from_ms(NOW.as_ms() - ms);
        assert_eq!(class(&post(&header), BODY, SECRET, NOW), None);
        assert_eq!(class(&post(&header), BODY, SECRET, late(SKEW_MS)), None);
        assert_eq!(class(&post(&header), BODY, SECRET, late(SKEW_MS + 1)), Some(EXPIRED));
        assert_eq!(class(&post(&header), BODY, SECRET, early(SKEW_MS + 1)), Some(EXPIRED));
        assert_eq!(class(&post(&header), b"{}", SECRET, NOW), Some(WRONG_SIGNATURE));
        assert_eq!(class(&post(&header), BODY, "other", NOW), Some(WRONG_SIGNATURE));
        let path = Signed { path: "/0/orders", ..post(&header) };
        assert_eq!(class(&path, BODY, SECRET, NOW), Some(WRONG_SIGNATURE));
        let moved = |name: &str| if name == "host" { Some("other".to_owned()) } else { header(name) };
        assert_eq!(class(&post(&moved), BODY, SECRET, NOW), Some(WRONG_SIGNATURE));
        Ok(())
    }

    #[test]
    fn the_signature_is_the_one_that_botocore_makes() -> Result<()> {
        let header = |name: &str| match name {
            "authorization" => Some(BOTOCORE.to_owned()),
            "content-type" => Some("application/x-amz-json-1.0".to_owned()),
            other => header(other),
        };
        let signature = Signature::read(&post(&header))?.ok_or_else(unknown_token)?;
        signature.verify(&post(&header), BODY, SECRET, NOW)
    }

    #[test]
    fn a_presigned_url_is_valid_for_its_time() -> Result<()> {
        let query = "Action=ListQueues&Version=2012-11-05&X-Amz-Algorithm=AWS4-HMAC-SHA256\
            &X-Amz-Credential=orders%2F20260102%2Feu-west-1%2Fsqs%2Faws4_request&X-Amz-Date=20260102T030405Z\
            &X-Amz-Expires=60&X-Amz-SignedHeaders=host\
            &X-Amz-Signature=2464a0d5ac6dbf944d3ba70bf06e180bc2168f3edc25abbfc606b0fd80ff1200";
        let header = |name: &str| header(name).filter(|_| name == "host");
        let get = Signed { method: "GET", query: Some(query), amz: vec![], ..post(&header) };
        let signature = Signature::read(&get)?.ok_or_else(unknown_token)?;
        let at = |ms: u64| signature.verify(&get, b"", SECRET, Timestamp::from_ms(NOW.as_ms() + ms)).is_ok();
        assert_eq!([at(0), at(60_000), at(60_001)], [true, true, false]);
        Ok(())
    }

    const BOTOCORE: &str = "AWS4-HMAC-SHA256 Credential=orders/20260102/eu-west-1/sqs/aws4_request, \
        SignedHeaders=content-type;host;x-amz-date;x-amz-target, \
        Signature=f07ecc51f47389ac9a455e092fa3ec3e9716f535771f150b3dd80d166f624aaf";

    #[test]
    fn a_header_that_says_something_has_to_be_signed() {
        let read = |amz: &[&str]| {
            let amz = amz.iter().map(|name| (*name).to_owned()).collect();
            Signature::read(&Signed { amz, ..post(&header) })
                .map(|read| read.is_some())
                .map_err(|failure| failure.class)
        };
        assert_eq!(read(&["x-amz-date", "x-amz-target"]), Ok(true));
        assert_eq!(read(&["x-amz-date", "x-amz-target", "x-amz-security-token"]), Err(INCOMPLETE_SIGNATURE));
        let presigned = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=orders%2F20260102%2Feu-west-1%2Fsqs%2Faws4_request\
            &X-Amz-Date=20260102T030405Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=x";
        let host = |name: &str| header(name).filter(|_| name == "host");
        let read = |amz: Vec<String>| {
            Signature::read(&Signed { query: Some(presigned), amz, ..post(&host) }).map_err(|failure| failure.class)
        };
        assert!(read(vec![]).is_ok());
        assert_eq!(read(vec!["x-amz-target".to_owned()]).err(), Some(INCOMPLETE_SIGNATURE));
    }

    #[test]
    fn incomplete_or_unsigned_requests_are_refused() {
        let class = |authorization: &str, query: Option<&str>| {
            let header = |name: &str| match name {
                "authorization" => Some(authorization.to_owned()),
                other => header(other),
            };
            let amz = if query.is_some() { vec![] } else { vec!["x-amz-date".to_owned()] };
            let read = Signature::read(&Signed { query, amz, ..post(&header) });
            read.map(|read| read.is_some()).map_err(|failure| failure.class)
        };
        assert_eq!(class("Bearer x", None), Ok(false));
        let scope = "orders/20260102/eu-west-1/sqs/aws4_request";
        for wrong in [
            String::new(),
            format!(" Credential={scope}, SignedHeaders=host;x-amz-date"),
            format!(" Credential={scope}, SignedHeaders=host, Signature=x"),
            " Credential=orders/20260102/eu-west-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=x"
                .to_owned(),
            " Credential=orders/20260103/eu-west-1/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=x"
                .to_owned(),
            " Credential=x, SignedHeaders=host;x-amz-date, Signature=x".to_owned(),
        ] {
            assert_eq!(class(&format!("{ALGORITHM}{wrong}"), None), Err(INCOMPLETE_SIGNATURE), "{wrong}");
        }
        assert_eq!(class("", Some("X-Amz-Signature=x")), Err(INCOMPLETE_SIGNATURE));
        let query = format!(
            "Action=ListQueues&X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}&X-Amz-Date=20260102T030405Z\
             &X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=x",
            scope.replace('/', "%2F")
        );
        assert_eq!(class("", Some(&query)), Ok(true));
        assert_eq!(class("", Some(&query.replace("=60", "=604801"))), Err(INCOMPLETE_SIGNATURE));
    }
}
