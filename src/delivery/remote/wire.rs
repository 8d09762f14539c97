//! Requests and answers as they are sent: JSON, read strictly.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::inquiry::{Inquiry, InquiryMessage, Report};
use super::name::RequestName;
use crate::codec::{read_last_error, write_last_error};
use crate::delivery::{Decision, Late, Verdict};
use crate::model::error::{Error, Result};
use crate::model::last_error::LastError;
use crate::model::limits::{BATCH_MESSAGES_MAX, DELAY_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::model::topic::check_visibility_timeout;
use crate::store::MemberId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) what: What,
    pub(crate) late: Late,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Settle(Vec<(String, Decision)>),
    Extend(Vec<String>, Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: RequestName,
    pub(super) from: MemberId,
    /// Until when, on the store's clock, it waits for an answer.
    pub(super) until: Timestamp,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) ask: Ask,
}

/// The answer of an owner: a verdict for each receipt, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnerAnswer {
    pub(super) name: RequestName,
    pub(super) verdicts: Vec<Verdict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RemoteMessage {
    Request(Request),
    Answer(OwnerAnswer),
    Inquiry(InquiryMessage),
    Report(RequestName, Report),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum WireMessage {
    Request {
        name: RequestName,
        from: String,
        until_ms: u64,
        topic: TopicName,
        group: GroupName,
        ask: WireAsk,
        #[serde(default)]
        late: Late,
    },
    Answer {
        name: RequestName,
        verdicts: Vec<WireVerdict>,
    },
    Inquiry {
        name: RequestName,
        from: String,
        until_ms: u64,
        topic: TopicName,
        group: GroupName,
        inquiry: Inquiry,
    },
    Report {
        name: RequestName,
        report: Report,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum WireAsk {
    Settle(Vec<(String, WireDecision)>),
    Extend { receipts: Vec<String>, timeout_ms: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum WireDecision {
    Ack,
    Nack {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<WireError>,
    },
    NackKey {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<WireError>,
    },
    Release,
    Bury {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<WireError>,
    },
}

/// The error of an attempt in its stored form: no text takes more than a third more than its bytes.
#[derive(Clone, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct WireError(LastError);

impl From<WireError> for String {
    fn from(WireError(error): WireError) -> String {
        write_last_error(&error)
    }
}

impl TryFrom<String> for WireError {
    type Error = Error;

    fn try_from(text: String) -> Result<WireError> {
        read_last_error(text).map(WireError)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireVerdict {
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
}

impl Ask {
    pub(crate) fn receipts(&self) -> Vec<&str> {
        match &self.what {
            What::Settle(decisions) => decisions.iter().map(|(receipt, _)| receipt.as_str()).collect(),
            What::Extend(receipts, _) => receipts.iter().map(String::as_str).collect(),
        }
    }

    pub(crate) fn pick(&self, at: &[usize]) -> Ask {
        let what = match &self.what {
            What::Settle(decisions) => What::Settle(at.iter().filter_map(|at| decisions.get(*at).cloned()).collect()),
            What::Extend(receipts, timeout) => {
                What::Extend(at.iter().filter_map(|at| receipts.get(*at).cloned()).collect(), *timeout)
            }
        };
        Ask { what, late: self.late }
    }

    fn is_valid(&self) -> bool {
        let fits = |delay: &Option<Duration>| delay.is_none_or(|delay| delay <= DELAY_MAX);
        (1..=BATCH_MESSAGES_MAX).contains(&self.receipts().len())
            && match &self.what {
                What::Settle(decisions) => decisions.iter().all(|(_, decision)| match decision {
                    Decision::Nack { delay, .. } | Decision::NackKey { delay, .. } => fits(delay),
                    Decision::Ack | Decision::Release | Decision::Bury { .. } => true,
                }),
                What::Extend(_, timeout) => check_visibility_timeout(*timeout).is_ok(),
            }
    }
}

impl RemoteMessage {
    pub(super) fn encode(self) -> Bytes {
        // Text, numbers and lists have a form as JSON.
        serde_json::to_vec(&WireMessage::from(self)).map_or_else(|_| Bytes::new(), Bytes::from)
    }

    /// `None` for everything that dwell does not write.
    pub(super) fn decode(bytes: &[u8]) -> Option<RemoteMessage> {
        match serde_json::from_slice(bytes).ok()? {
            WireMessage::Request { name, from, until_ms, topic, group, ask, late } => {
                let (from, until) = (MemberId::from_store(&from), Timestamp::from_ms(until_ms));
                let ask = Ask { what: ask.into(), late };
                let is_valid = from.is_plausible() && ask.is_valid();
                is_valid.then_some(RemoteMessage::Request(Request { name, from, until, topic, group, ask }))
            }
            WireMessage::Answer { name, verdicts } => {
                let verdicts = verdicts.iter().map(WireVerdict::read).collect::<Option<_>>()?;
                Some(RemoteMessage::Answer(OwnerAnswer { name, verdicts }))
            }
            WireMessage::Inquiry { name, from, until_ms, topic, group, inquiry } => {
                let (from, until) = (MemberId::from_store(&from), Timestamp::from_ms(until_ms));
                let is_valid = from.is_plausible() && inquiry.is_valid();
                let message = InquiryMessage { name, from, until, topic, group, inquiry };
                is_valid.then_some(RemoteMessage::Inquiry(message))
            }
            WireMessage::Report { name, report } => Some(RemoteMessage::Report(name, report)),
        }
    }
}

impl From<RemoteMessage> for WireMessage {
    fn from(message: RemoteMessage) -> WireMessage {
        match message {
            RemoteMessage::Request(Request { name, from, until, topic, group, ask }) => WireMessage::Request {
                name,
                from: from.as_str().to_owned(),
                until_ms: until.as_ms(),
                topic,
                group,
                ask: ask.what.into(),
                late: ask.late,
            },
            RemoteMessage::Answer(OwnerAnswer { name, verdicts }) => {
                WireMessage::Answer { name, verdicts: verdicts.into_iter().map(WireVerdict::of).collect() }
            }
            RemoteMessage::Inquiry(InquiryMessage { name, from, until, topic, group, inquiry }) => {
                let (from, until_ms) = (from.as_str().to_owned(), until.as_ms());
                WireMessage::Inquiry { name, from, until_ms, topic, group, inquiry }
            }
            RemoteMessage::Report(name, report) => WireMessage::Report { name, report },
        }
    }
}

impl From<What> for WireAsk {
    fn from(what: What) -> WireAsk {
        match what {
            What::Settle(decisions) => {
                WireAsk::Settle(decisions.into_iter().map(|(receipt, decision)| (receipt, decision.into())).collect())
            }
            What::Extend(receipts, timeout) => WireAsk::Extend { receipts, timeout_ms: ms(timeout) },
        }
    }
}

impl From<WireAsk> for What {
    fn from(ask: WireAsk) -> What {
        match ask {
            WireAsk::Settle(decisions) => {
                What::Settle(decisions.into_iter().map(|(receipt, decision)| (receipt, decision.into())).collect())
            }
            WireAsk::Extend { receipts, timeout_ms } => What::Extend(receipts, Duration::from_millis(timeout_ms)),
        }
    }
}

impl From<Decision> for WireDecision {
    fn from(decision: Decision) -> WireDecision {
        match decision {
            Decision::Ack => WireDecision::Ack,
            Decision::Nack { delay, reason } => {
                WireDecision::Nack { delay_ms: delay.map(ms), reason: reason.map(WireError) }
            }
            Decision::NackKey { delay, reason } => {
                WireDecision::NackKey { delay_ms: delay.map(ms), reason: reason.map(WireError) }
            }
            Decision::Release => WireDecision::Release,
            Decision::Bury { reason } => WireDecision::Bury { reason: reason.map(WireError) },
        }
    }
}

impl From<WireDecision> for Decision {
    fn from(decision: WireDecision) -> Decision {
        match decision {
            WireDecision::Ack => Decision::Ack,
            WireDecision::Nack { delay_ms, reason } => {
                let reason = reason.map(|WireError(error)| error);
                Decision::Nack { delay: delay_ms.map(Duration::from_millis), reason }
            }
            WireDecision::NackKey { delay_ms, reason } => {
                let reason = reason.map(|WireError(error)| error);
                Decision::NackKey { delay: delay_ms.map(Duration::from_millis), reason }
            }
            WireDecision::Release => Decision::Release,
            WireDecision::Bury { reason } => Decision::Bury { reason: reason.map(|WireError(error)| error) },
        }
    }
}

impl WireVerdict {
    fn of(verdict: Verdict) -> WireVerdict {
        WireVerdict {
            status: verdict.name().to_owned(),
            reason: verdict.reason().map(str::to_owned),
            deadline_ms: if let Verdict::Extended(deadline) = verdict { Some(deadline.as_ms()) } else { None },
        }
    }

    fn read(&self) -> Option<Verdict> {
        Verdict::named(&self.status, self.reason.as_deref(), self.deadline_ms.map(Timestamp::from_ms))
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{BlockedReason, HeldCounts, HeldKey, HeldKeys, KeyLimit, Located, Waits};
    use crate::model::limits::RECEIPT_BYTES_MAX;
    use crate::model::message::{Key, MessageId};
    use crate::model::partition::Partition;

    fn request(ask: Ask) -> Result<RemoteMessage> {
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        let (from, until) = (MemberId::fresh("host"), Timestamp::from_ms(7));
        Ok(RemoteMessage::Request(Request { name: RequestName::fresh(), from, until, topic, group, ask }))
    }

    #[test]
    fn requests_and_replies_round_trip() -> Result<()> {
        let nack = |delay, reason: Option<&str>| Decision::Nack { delay, reason: reason.map(LastError::from) };
        let decisions = vec![
            ("a".to_owned(), Decision::Ack),
            ("b".to_owned(), nack(Some(Duration::from_millis(1_500)), Some("busy"))),
            ("c".to_owned(), nack(None, None)),
            (
                "d".to_owned(),
                Decision::Bury {
                    reason: Some(LastError::new(Some("E".into()), "never".into(), Some("at x\n".into()))),
                },
            ),
            ("e".to_owned(), Decision::Release),
            ("f".to_owned(), Decision::NackKey { delay: Some(Duration::from_secs(30)), reason: Some("429".into()) }),
        ];
        let ask = Ask { what: What::Settle(decisions), late: Late::No };
        assert_eq!(ask.pick(&[3, 0]).receipts(), ["d", "a"]);
        let extend = Ask { what: What::Extend(vec!["a".to_owned()], Duration::from_secs(5)), late: Late::Redelivered };
        assert_eq!(extend.pick(&[0]).late, Late::Redelivered);
        let mut verdicts =
            vec![Verdict::Acked, Verdict::Released, Verdict::Extended(Timestamp::from_ms(9)), Verdict::Pending];
        verdicts.extend(Verdict::REFUSALS);
        let answer = RemoteMessage::Answer(OwnerAnswer { name: RequestName::fresh(), verdicts });
        for message in [request(ask)?, request(extend)?, answer] {
            assert_eq!(RemoteMessage::decode(&message.clone().encode()), Some(message));
        }
        Ok(())
    }

    #[test]
    fn questions_and_reports_round_trip() -> Result<()> {
        let (partition, id, at) = (Partition(3), MessageId::new("a")?, Timestamp::from_ms(9));
        let (ids, name) = (vec![id.clone()], RequestName::fresh());
        let question = |inquiry| -> Result<RemoteMessage> {
            let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
            let (name, from, until) = (name.clone(), MemberId::fresh("host"), Timestamp::from_ms(7));
            Ok(RemoteMessage::Inquiry(InquiryMessage { name, from, until, topic, group, inquiry }))
        };
        let held_up = Some(BlockedReason::NoConsumer { unasked: Duration::from_millis(1_500) });
        let located = vec![
            None,
            Some(Located::InFlight { attempt: 2, until: at }),
            Some(Located::Ready),
            Some(Located::Backoff { next_at: at, attempts: 1 }),
            Some(Located::Blocked { blocker: id, waits: Waits::Attempt { at } }),
        ];
        let counts = HeldCounts { out: 1, ready: 2, blocked: 3, backoff: 4, oldest: Some(at) };
        let limit = Some(KeyLimit::Rate);
        let busiest = vec![HeldKey { key: Some(Key::new("k")?), ready: 1, in_flight: 2, limit, opens_at: Some(at) }];
        let keys = HeldKeys { count: 7, busiest };
        for message in [
            question(Inquiry::Recall { partition, ids: ids.clone() })?,
            question(Inquiry::Locate { partition, ids: ids.clone(), key: Some(Key::new("k")?) })?,
            question(Inquiry::Refresh { partition })?,
            question(Inquiry::Release { recall: name.clone() })?,
            question(Inquiry::Counts)?,
            question(Inquiry::Keys)?,
            RemoteMessage::Report(name.clone(), Report::NotOwner),
            RemoteMessage::Report(name.clone(), Report::Recalled { out: ids.clone() }),
            RemoteMessage::Report(name.clone(), Report::Refreshed),
            RemoteMessage::Report(name.clone(), Report::Located { located, held_up }),
            RemoteMessage::Report(name.clone(), Report::Counts { partitions: vec![(partition, counts)] }),
            RemoteMessage::Report(name.clone(), Report::Keys { keys, partitions: vec![partition] }),
        ] {
            assert_eq!(RemoteMessage::decode(&message.clone().encode()), Some(message));
        }
        let many = Inquiry::Recall { partition, ids: vec![MessageId::new("a")?; BATCH_MESSAGES_MAX + 1] };
        assert_eq!(RemoteMessage::decode(&question(many)?.encode()), None);
        Ok(())
    }

    #[test]
    fn a_thousand_reasons_of_any_length_fit() -> Result<()> {
        let long = || "\u{1}".repeat(10_000);
        let reason = Some(LastError::new(Some(long()), long(), Some(long())));
        let decision = ("9".repeat(RECEIPT_BYTES_MAX), Decision::Bury { reason });
        let ask = Ask { what: What::Settle(vec![decision; BATCH_MESSAGES_MAX]), late: Late::Waiting };
        let bytes = request(ask)?.encode();
        assert!(bytes.len() <= crate::model::limits::DATAGRAM_BYTES_MAX, "{}", bytes.len());
        assert!(RemoteMessage::decode(&bytes).is_some());
        Ok(())
    }

    #[test]
    fn foreign_datagrams_are_not_parsed() {
        let request = |name: &str, from: &str, until: &str, group: &str, ask: &str| {
            format!(
                r#"{{"request":{{"name":"{name}","from":"{from}","until_ms":{until},"topic":"orders","group":"{group}","ask":{ask}}}}}"#
            )
        };
        let ack = r#"{"settle":[["3.1.a.1.0000002a","ack"]]}"#;
        assert!(RemoteMessage::decode(request("abc", "host-1", "7", "default", ack).as_bytes()).is_some());
        let long = "h".repeat(1_000);
        let many = format!(r#"{{"settle":[{}]}}"#, vec![r#"["a","ack"]"#; BATCH_MESSAGES_MAX + 1].join(","));
        for bad in [
            request("", "host-1", "7", "default", ack),
            request("a b", "host-1", "7", "default", ack),
            request(&long, "host-1", "7", "default", ack),
            request("abc", "", "7", "default", ack),
            request("abc", "a{b}", "7", "default", ack),
            request("abc", &long, "7", "default", ack),
            request("abc", "host-1", "-7", "default", ack),
            request("abc", "host-1", "7.5", "default", ack),
            request("abc", "host-1", "7", "a:b", ack),
            request("abc", "host-1", "7", "default", r#"{"settle":[]}"#),
            request("abc", "host-1", "7", "default", r#"{"settle":[["a","eat"]]}"#),
            request("abc", "host-1", "7", "default", r#"{"settle":[["a",{"nack":{"delay_ms":-1}}]]}"#),
            request(
                "abc",
                "host-1",
                "7",
                "default",
                r#"{"settle":[["a",{"nack":{"delay_ms":18446744073709551615}}]]}"#,
            ),
            request("abc", "host-1", "7", "default", r#"{"extend":{"receipts":["a"],"timeout_ms":1}}"#),
            request("abc", "host-1", "7", "default", &many),
            request("abc", "host-1", "7", "default", &format!(r#"{ack},"more":1"#)),
            r#"{"answer":{"name":"abc","verdicts":[{"status":"eaten"}]}}"#.to_owned(),
            r#"{"answer":{"name":"abc","verdicts":[{"status":"extended"}]}}"#.to_owned(),
            "[".repeat(100_000),
            "{}".to_owned(),
            String::new(),
        ] {
            assert_eq!(RemoteMessage::decode(bad.as_bytes()), None, "{}", &bad[..bad.len().min(200)]);
        }
        assert_eq!(RemoteMessage::decode(&[0xff, 0xfe]), None);
    }
}
