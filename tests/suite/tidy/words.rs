//! One word for each thing: those of docs/glossary.md.

use dwell::model::error::Result;

use super::{File, files, line_of, pages, places_of};

/// What others call something that dwell calls otherwise.
const BANNED: [&str; 16] = [
    "job", "jobs", "task", "queue", "queues", "queued", "queueing", "enqueue", "enqueued", "dequeue", "shard",
    "shards", "sharded", "tube", "tubes", "pop",
];

/// Names of the standard library, of other crates and of Linux; and cron jobs, which everybody calls so.
const ALLOWED: [&str; 9] = [
    "std::task::",
    "tokio::task::",
    "tokio_util::task::",
    "/proc/{pid}/task",
    "pop_front",
    "pop_back",
    "cron jobs",
    "cron job",
    "(#cron-jobs)",
];

/// The chapters about other products.
const OF_OTHERS: [&str; 3] = ["## If you know another one", "## Against others", "## Compared with others"];

/// The room that speaks the language of Amazon SQS.
const OF_SQS: &str = "src/sqs/";

/// The pages for readers who come from another product.
const MIGRATIONS: &str = "docs/migrate/";

fn banned(file: &File) -> Vec<String> {
    let mut text = file.text.to_lowercase();
    for allowed in ALLOWED {
        text = text.replace(allowed, "");
    }
    // A method of a collection, as in the standard library; no verb of dwell.
    text = text.replace(".pop(", "").replace("fn pop(", "");
    let found = BANNED.iter().flat_map(|word| places_of(&text, word).map(|at| (*word, at)).collect::<Vec<_>>());
    found.map(|(word, at)| format!("{}:{}: {word}", file.path, line_of(&text, at))).collect()
}

#[test]
fn the_words_of_others_are_not_used() -> Result<()> {
    let mut pages: Vec<File> = pages()?.into_iter().filter(|page| !page.path.starts_with(MIGRATIONS)).collect();
    for page in &mut pages {
        // What a reader who knows another product is told, in that product's words.
        for from in OF_OTHERS.iter().filter_map(|heading| page.text.find(heading)).collect::<Vec<_>>() {
            let to = page.text[from + 2..].find("\n## ").map_or(page.text.len(), |at| from + 2 + at);
            let blank: String = page.text[from..to].chars().filter(|c| *c == '\n').collect();
            page.text.replace_range(from..to, &blank);
        }
    }
    let is_ours = |file: &File| !file.path.starts_with(OF_SQS);
    let all = [
        files("src", ".rs")?.into_iter().filter(is_ours).collect(),
        files("src", ".lua")?,
        files("src", ".js")?,
        files("src", ".html")?,
        files("deploy", ".toml")?,
        pages,
    ]
    .into_iter()
    .flatten();
    let found: Vec<_> = all.flat_map(|file| banned(&file)).collect();
    assert!(found.is_empty(), "{found:#?}");
    Ok(())
}
