//! A load that has everything in it which a metric counts: pushes of all outcomes, consumers that ack, fail, bury and
//! forget, a webhook, a schedule, requests that are wrong.

use dwell::model::error::{Error, Result};
use futures_util::future::try_join;
use serde_json::{Value, json};

use super::broker::Broker;
use super::queries::{list, text};

/// Messages of a round. Their delays are spread over a tenth of a second, which paces the rounds.
const ROUND: usize = 60;

/// Two brokers that share the topic `orders`, with a consumer at each; the first posts what is pushed to `mail`.
pub(super) struct Load<'a> {
    pub(super) one: &'a Broker,
    pub(super) two: &'a Broker,
}

impl Load<'_> {
    /// Declares the topics.
    pub(super) async fn prepare(&self) -> Result<()> {
        let orders = json!({"partitions": 8, "max_attempts": 3, "dead_max_count": 1,
                            "backoff": {"kind": "ladder", "steps": ["50ms"]}});
        self.one.tell("PUT /v1/topics/orders", &orders).await?;
        self.one.tell("PUT /v1/topics/orders/groups/default", &json!({"fair": "key"})).await?;
        self.one.tell("PUT /v1/topics/mail", &json!({"partitions": 2})).await?;
        let every_second = json!({"every": "1s", "payload": "look"});
        self.one.tell("PUT /v1/topics/orders/cron/look", &every_second).await?;
        // What is due only later is in the forecast.
        let later = ["30s", "5m", "30m", "12h"].map(|delay| json!({"payload": "later", "delay": delay}));
        self.one.tell("POST /v1/topics/orders/messages/batch", &json!({"messages": later})).await.map(drop)
    }

    /// Pushes some, and consumes about as many.
    pub(super) async fn round(&self) -> Result<()> {
        let message = |n: usize| {
            let delay = format!("{}ms", n * 100 / ROUND);
            json!({"payload": "close", "key": format!("customer-{n}"), "delay": delay})
        };
        let messages: Vec<Value> = (0..ROUND).map(message).collect();
        self.one.tell("POST /v1/topics/orders/messages/batch", &json!({"messages": messages})).await?;
        let (again, id) = (json!({"messages": [{"payload": "x", "id": "the-same", "delay": "1h"}]}), "the-same");
        self.two.tell("POST /v1/topics/orders/messages/batch", &again).await?;
        let mail = json!({"messages": [{"payload": "dear customer"}, {"payload": "yours"}]});
        self.one.tell("POST /v1/topics/mail/messages/batch", &mail).await?;
        // A delay that is none: 422. A message that is not there: 404.
        let wrong = json!({"messages": [{"payload": id, "delay": "soon"}]});
        self.one.send("POST /v1/topics/orders/messages/batch", &wrong).await?;
        self.two.send("GET /v1/topics/orders/messages/nobody", &Value::Null).await?;
        try_join(self.consume(self.one, self.two), self.consume(self.two, self.one)).await.map(drop)
    }

    /// A consumer at one broker, who sometimes brings what it got there to another one.
    async fn consume(&self, here: &Broker, there: &Broker) -> Result<()> {
        const GROUP: &str = "/v1/topics/orders/groups/default";
        for _ in 0..4 {
            let wanted = json!({"max": ROUND, "wait": "100ms", "visibility_timeout": "500ms"});
            let got = here.tell(&format!("POST {GROUP}/reserve"), &wanted).await?;
            let receipts: Vec<&str> = list(&got, "deliveries").map(|delivery| text(delivery, "receipt")).collect();
            let (mut acked, mut failed, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
            for (n, receipt) in receipts.iter().enumerate() {
                match n % 16 {
                    // Forgotten: it comes again after its deadline.
                    3 => {}
                    5 => failed.push(json!({"receipt": receipt, "reason": "not now"})),
                    7 => failed.push(json!({"receipt": receipt, "reason": "never", "bury": true})),
                    9 => elsewhere.push(receipt),
                    _ => acked.push(receipt),
                }
            }
            for (broker, verb, receipts) in
                [(here, "ack", json!(acked)), (here, "nack", json!(failed)), (there, "ack", json!(elsewhere))]
            {
                if receipts.as_array().is_some_and(|receipts| !receipts.is_empty()) {
                    let line = format!("POST {GROUP}/{verb}");
                    let (status, answer) = broker.send(&line, &json!({"receipts": receipts})).await?;
                    // On a busy machine the deadline of all of them may have passed.
                    if !matches!(status, 200..=299 | 409) {
                        return Err(Error::unavailable(format!("{line}: {status}: {answer}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Pushes while Redis is away: they are buffered.
    pub(super) async fn push_buffered(&self, count: usize) -> Result<()> {
        let messages: Vec<Value> = (0..count).map(|_| json!({"payload": "buffered"})).collect();
        for broker in [self.one, self.two] {
            let answer = broker.tell("POST /v1/topics/orders/messages/batch", &json!({"messages": messages})).await?;
            let buffered = list(&answer, "results").filter(|result| text(result, "status") == "buffered").count();
            if buffered != count {
                return Err(Error::bug(format!("{buffered} of {count} buffered: {answer}")));
            }
        }
        Ok(())
    }
}
