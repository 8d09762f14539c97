//! The section `[sqs]`.

use std::time::Duration;

use super::reader::Reader;
use crate::model::limits::{DELAY_MAX, PARTITIONS_MAX};
use crate::sqs::SqsOptions;

const REGION_CHARS_MAX: usize = 64;

impl Reader<'_> {
    pub(super) fn sqs(&mut self) -> SqsOptions {
        let default = SqsOptions::default();
        let accepted = "an http or https URL without a path";
        SqsOptions {
            enabled: self.switch("sqs.enabled", default.enabled),
            public_url: self.parsed("sqs.public_url", accepted, default.public_url, public_url),
            region: self.parsed("sqs.region", "the name of a region, as in eu-west-1", default.region, region),
            account: self.parsed("sqs.account", "12 digits", default.account, account),
            partitions: self.number("sqs.partitions", 1..=PARTITIONS_MAX / 8, default.partitions),
            max_delay: self.span("sqs.max_delay", Duration::ZERO..=DELAY_MAX, default.max_delay),
            strict: self.switch("sqs.strict", default.strict),
            auto_create: self.switch("sqs.auto_create", default.auto_create),
            celery_eta: self.switch("sqs.celery_eta", default.celery_eta),
        }
    }
}

fn public_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_host = |rest: &str| {
        let host = rest.trim_end_matches('/');
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
    };
    match text.is_empty() || rest.is_some_and(is_host) {
        true => Ok(text.to_owned()),
        false => Err("is no such URL".to_owned()),
    }
}

fn region(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match (1..=REGION_CHARS_MAX).contains(&text.len()) && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("is no name of a region".to_owned()),
    }
}

fn account(text: &str) -> Result<String, String> {
    match text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("has not 12 digits".to_owned()),
    }
}
