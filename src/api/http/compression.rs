//! Compresses the metrics for clients that accept it: their lines repeat one another, so they shrink to a tenth.

use std::io::Write as _;

use axum::http::{HeaderMap, header};
use flate2::Compression;
use flate2::write::GzEncoder;

/// `None` if the client does not accept gzip.
pub(crate) fn gzip(headers: &HeaderMap, text: &str) -> Option<Vec<u8>> {
    if !accepts_gzip(headers) {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    // Writing to memory cannot fail.
    encoder.write_all(text.as_bytes()).ok()?;
    encoder.finish().ok()
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.unwrap_or(1.0) > 0.0
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::http::HeaderValue;
    use flate2::read::GzDecoder;

    use super::*;

    fn accepting(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_client_that_accepts_gzip_gets_the_same_text_in_fewer_bytes() -> std::io::Result<()> {
        let text = "dwell_messages{topic=\"orders\"} 7\n".repeat(1_000);
        let bytes = gzip(&accepting("gzip"), &text).unwrap_or_default();
        assert!(bytes.len() < text.len() / 10, "{}", bytes.len());
        let mut again = String::new();
        GzDecoder::new(&bytes[..]).read_to_string(&mut again)?;
        assert_eq!(again, text);
        Ok(())
    }

    #[test]
    fn a_client_that_does_not_accept_it_gets_the_text() {
        for accepted in ["gzip", "deflate, GZIP;q=0.5", "br,gzip ; q=1"] {
            assert!(accepts_gzip(&accepting(accepted)), "{accepted}");
        }
        for refused in ["", "identity", "deflate", "gzip;q=0", "gzip; q=0.000", "x-gzip"] {
            assert!(!accepts_gzip(&accepting(refused)), "{refused}");
        }
        assert_eq!(gzip(&HeaderMap::new(), "x"), None);
    }
}
