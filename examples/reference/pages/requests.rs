//! What each request of each surface needs, changes and holds, from the tables that the gate uses.

use dwell::api::http::{ACTIONS, CONSOLE};
use dwell::gate::Action;

use super::table;

const HEAD: &str = "\
# What requests need

This page lists, for each request in both protocols, the token that it needs, and the memory and places that it takes. dwell checks each request
twice by this table: before it reads the body, by the token or the key that the request names, and after the body, before anything happens.

* **needs**: a token with that scope; `admin` includes every other scope. Without configured tokens nothing is needed. A request that
  is not in a table needs `admin`.
* **effect**: a request that `changes` stores, changes, delivers, settles or deletes something. A GET never does, so nobody can change anything
  by a link. In the query protocol of SQS, a GET that changes something needs a signature; if no token is configured, the signature has to be in
  the header `Authorization`.
* **acts on**: a request about a group never acts on its topic. If an action of SQS acts on a `topic`, it is refused for the name of a group.
* **body**: the size of the largest body. Bodies that are arriving share 256 MiB. One token has at most half of them. Senders whose signature
  is not checked yet have half of them together, and their bodies are dropped first.
* **answer**: a `counted` answer begins only while there is memory for it. Answers that are not read yet share 128 MiB. One token has at most half
  of them, and clients without a token an eighth. While there is no memory, a request of SQS with more than 64 KiB is refused.
* **holds**: dwell answers two whole reads at a time, of one token one. A token takes at most eight tenths of the places of waiting consumers, and
  of the memberships of a broker (its partitions in all groups). A membership that nobody uses ends when another group needs its place.
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
