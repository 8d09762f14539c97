//! One word for each thing: those of docs/glossary.md; in code, comments and texts as on the pages.

use dwell::model::error::Result;

use super::site::{UNCLEAR, unclear};
use super::{File, files, line_of, pages, places_of};

/// What others call something that dwell calls otherwise.
const BANNED: [&str; 16] = [
    "job", "jobs", "task", "queue", "queues", "queued", "queueing", "enqueue", "enqueued", "dequeue", "shard",
    "shards", "sharded", "tube", "tubes", "pop",
];

/// Names of the standard library, of other crates and of Linux; and cron jobs, which everybody calls so.
const ALLOWED: [&str; 11] = [
    "std::task::",
    "tokio::task::",
    "tokio_util::task::",
    "futures_util::task::",
    "/proc/{pid}/task",
    "pop_front",
    "pop_back",
    "cron jobs",
    "cron job",
    "(#cron-jobs)",
    "fair queueing",
];

/// The chapters about other products.
const OF_OTHERS: [&str; 4] =
    ["## If you know another one", "## Against others", "## Compared with others", "## Amazon SQS"];

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
fn terms_of_other_products_are_not_used() -> Result<()> {
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
        files("clients/rust/src", ".rs")?,
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

/// Names that only dwell's own code had; each is followed by the usual one.
const RETIRED: [(&str, &str); 55] = [
    ("BY_HAND", "CLI_USER_AGENT_PREFIX"),
    ("Beat", "Heartbeat"),
    ("BeatFailed", "HeartbeatFailed"),
    ("Checkup", "Diagnostics"),
    ("DeadAction", "DeadLetterAction"),
    ("DeadCursor", "DeadLetterCursor"),
    ("DeadPage", "DeadLetterPage"),
    ("DeadRecord", "DeadLetterRecord"),
    ("Deed", "DeadLetterAction"),
    ("Door", "ListenerOptions"),
    ("Ear", "Subscriptions"),
    ("Errand", "Request"),
    ("Farewell", "Leave"),
    ("Glance", "HeadState"),
    ("Hand", "SessionReceipts"),
    ("Hindrance", "BlockedReason"),
    ("HowItFailed", "NackDetails"),
    ("Keepsake", "OrderedDelivery"),
    ("Kick", "LoopSignal"),
    ("Lack", "Gap"),
    ("Mailbox", "Inbox"),
    ("NotTaken", "PostError"),
    ("PairKeys", "GroupPartitionKeys"),
    ("PairState", "GroupPartitionState"),
    ("Parcel", "RemoteMessage"),
    ("Porter", "AttendGuard"),
    ("Said", "a noun"),
    ("ScheduleName", "CronJobName"),
    ("ScheduleRecord", "CronJobRecord"),
    ("Seat", "RankedMember"),
    ("Tenant", "OwnerRecord"),
    ("There", "StoredDuplicate"),
    ("Unsaid", "LogThrottles"),
    ("census", "stats"),
    ("checkup", "diagnostics"),
    ("deed", "action"),
    ("ear", "subscriber"),
    ("errand", "request"),
    ("farewell", "leave"),
    ("glance", "head_state"),
    ("hindrance", "blocked_reason"),
    ("hurry", "expedite"),
    ("keep_places", "keep_positions"),
    ("kick", "signal"),
    ("look_at_group", "peek_group"),
    ("mailbox", "inbox"),
    ("make_group", "create_group"),
    ("proclaim", "publish"),
    ("put_schedule", "put_cron_job"),
    ("said", "a noun"),
    ("stand_still", "is_stalled"),
    ("told", "a noun"),
    ("unsaid", "log_throttle"),
    ("vitals", "health_snapshot"),
    ("whereabouts", "location_of"),
];

#[test]
fn retired_names_are_not_used() -> Result<()> {
    let mut found = Vec::new();
    for file in files("src", ".rs")? {
        let code = file.shipped();
        for (name, instead) in RETIRED {
            let places = places_of(&code, name);
            found.extend(places.map(|at| format!("{}:{}: {name}, now {instead}", file.path, line_of(&code, at))));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    Ok(())
}

/// A group's part of a partition is a partition too; a pair is a key with its value.
#[test]
fn partition_is_the_only_word_for_partitions() -> Result<()> {
    let mut found = Vec::new();
    for room in ["store", "coordination", "delivery", "outage", "broker"] {
        for file in files(&format!("src/{room}"), ".rs")? {
            for name in ["pair", "pairs", "tenant"] {
                let places = places_of(&file.text, name);
                found.extend(places.map(|at| format!("{}:{}: {name}", file.path, line_of(&file.text, at))));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    Ok(())
}

/// The comments of a file, each named by its first line.
fn comments(file: &File) -> Vec<File> {
    let marks: &[&str] = if file.path.ends_with(".lua") { &["--"] } else { &["///", "//!", "//"] };
    let (mut comments, mut is_open) = (Vec::<File>::new(), false);
    for (number, line) in (1..).zip(file.text.lines()) {
        let text = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        if text.is_some() && !is_open {
            comments.push(File { path: format!("{}:{number}", file.path), text: String::new() });
        }
        is_open = text.is_some();
        if let (Some(text), Some(comment)) = (text, comments.last_mut()) {
            comment.text.push_str(text.trim());
            comment.text.push('\n');
        }
    }
    comments
}

/// The literals and comments of a file, where they stand: everything that is no code.
fn texts(file: &File) -> String {
    let blank = |(is, code): (char, char)| if is == code && is != '\n' { ' ' } else { is };
    file.text.chars().zip(file.code().chars()).map(blank).collect()
}

#[test]
fn comments_and_texts_avoid_unclear_phrases() -> Result<()> {
    let mut wrong = Vec::new();
    for file in files("src", ".rs")?.iter().chain(&files("clients/rust/src", ".rs")?).chain(&files("src", ".lua")?) {
        wrong.extend(comments(file).iter().flat_map(unclear));
        let texts = if file.path.ends_with(".rs") { texts(file) } else { String::new() };
        for words in UNCLEAR {
            wrong.extend(places_of(&texts, words).map(|at| format!("{}:{}: {words}", file.path, line_of(&texts, at))));
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let bad = "/// What it is.\nfn lives() { say(\"for ever\") } // Is it so long as `lives`?\n";
    let file = File { path: "x.rs".to_owned(), text: bad.to_owned() };
    assert_eq!(comments(&file).iter().flat_map(unclear).count(), 1);
    let found = |words: &&str| places_of(&texts(&file), words).next().is_some();
    assert_eq!(UNCLEAR.iter().filter(|words| found(words)).count(), 3);
    Ok(())
}
