//! What each request of each surface needs, changes and holds, from the tables that the gate uses.

use dwell::api::http::{ACTIONS, CONSOLE};
use dwell::gate::Action;

use super::table;

const HEAD: &str = "\
# What requests need

Each request to the listener passes one gate twice, whatever its protocol: before its body is read, by the token or the key that it
claims, and after it, before anything happens. This page is the table that the gate uses.

* **needs**: a token with that scope; `admin` includes every other scope. Without configured tokens nothing is needed. A request that
  is not in a table needs `admin`.
* **changes**: the request stores, changes, delivers, settles or deletes something. A GET never does, so that no link can: of the query
  protocol of SQS a GET that changes something needs a signature, and where no token is configured one in the header `Authorization`.
* **acts on**: a request about a group never acts on its topic. An action of SQS on a `topic` is refused under the name of a group.
* **body**: bytes of the largest body. Bodies that are arriving share 256 MiB: one token has at most half of them, senders whose
  signature is not checked yet have half of them together, and their bodies yield first.
* **answer**: a `counted` answer begins only while there is memory for it. Answers that are not read yet share 128 MiB, of which one
  token has at most half and clients without a token an eighth. A request of SQS with more than 64 KiB is refused while there is none.
* **holds**: of two whole reads at a time a token makes one; of the places of waiting consumers, and of the memberships of a broker, it
  takes at most eight tenths. A membership that nobody uses ends when another group needs its room.
";

pub(super) fn page() -> String {
    let mut text = HEAD.to_owned();
    let native = ACTIONS.iter().map(|action| (format!("`{} {}`", action.method, action.name), action));
    text.push_str(&section("HTTP API", native.collect()));
    text.push_str(&section("Console", vec![("`GET /`, `GET /ui`, `GET /ui/{file}`".to_owned(), &CONSOLE)]));
    let of_sqs = dwell::sqs::actions().into_iter();
    let of_sqs = of_sqs.map(|action| (format!("`{}`", action.name.trim_start_matches("AmazonSQS.")), action));
    text.push_str(&section("Amazon SQS", of_sqs.collect()));
    text.push_str(
        "\n`CreateQueue` with attributes or tags needs `admin`, and so does any `CreateQueue` while `topic.auto_create` is false.\n\
         `GetQueueUrl` that creates a queue, with `sqs.auto_create`, needs what `CreateQueue` needs.\n",
    );
    text
}

fn section(title: &str, actions: Vec<(String, &Action)>) -> String {
    let row = |(name, action): (String, &Action)| {
        let body = if action.body_bytes == 0 { "none".to_owned() } else { format!("{} MiB", action.body_bytes >> 20) };
        [
            name,
            action.needs.name(),
            action.effect.name().to_owned(),
            action.acts_on.name().to_owned(),
            body,
            action.answer.name().to_owned(),
            action.holds.name().to_owned(),
        ]
    };
    let rows: Vec<_> = actions.into_iter().map(row).collect();
    let heads = ["request", "needs", "effect", "acts on", "body", "answer", "holds"];
    format!("\n## {title}\n\n{}", table(heads, &rows))
}
