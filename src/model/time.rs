//! Points in time and spans of time. Requests and answers have them too, so the wire says how they are written and read.

use std::time::Duration;

pub use dwell_client::wire::time::{
    NoTime, Timestamp, millis, ms_up, parse_millis, parse_span, parse_timestamp, short_span, show_span, span,
};

use crate::model::error::{Error, Fault, Result};

/// Of the fields `name` (text) and `name`_ms (number) a request gives at most one. Errors: `Invalid` for both.
pub fn one_span(name: &str, text: Option<Duration>, ms: Option<Duration>) -> Result<Option<Duration>> {
    match (text, ms) {
        (Some(_), Some(_)) => {
            Err(Error::wrong(Fault::Exclusive, name, format!("is given together with `{name}_ms`; give one of them")))
        }
        (text, ms) => Ok(text.or(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_accepts_two_forms() {
        let (text, ms) = (Some(Duration::from_secs(30)), Some(Duration::from_millis(30)));
        assert_eq!(one_span("delay", text, None), Ok(text));
        assert_eq!(one_span("delay", None, ms), Ok(ms));
        assert_eq!(one_span("delay", None, None), Ok(None));
        let both = one_span("delay", text, ms).map_err(|error| error.detail().to_owned());
        assert_eq!(both, Err("`delay`: is given together with `delay_ms`; give one of them".to_owned()));
    }
}
