//! Random calls of dwell's scripts, with keys and arguments as their headers say, on a topic of two partitions and two groups.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::Failure;
use crate::client::{Pair, words};

pub(crate) struct Calls {
    random: Rng,
    digests: BTreeMap<String, String>,
    /// Microseconds, of the scripts' own time.
    now: u64,
    /// First words of answers, by script: what was reached.
    reached: BTreeMap<String, BTreeMap<String, u64>>,
    is_large: bool,
    last: String,
}

const GROUPS: [&str; 2] = ["g", "h"];
/// Keys of messages; the first is that of those without one.
const KEYS: [&str; 3] = ["", "ka", "kb"];
/// Scripts that begin anywhere in a hash: with large hashes their order is not specified.
const SCANNING: [&str; 17] = [
    "recover",
    "repair",
    "verify",
    "in_flight",
    "copy",
    "cron_jobs",
    "stage",
    "unstage",
    "move_out",
    "move_done",
    "reapply_purge",
    "restore_progress",
    "move_in",
    "put_cron_job",
    "delete_cron_job",
    "restore_cron_job",
    "fire_cron_job",
];

fn say_all(words: &mut Vec<Vec<u8>>, some: &[&str]) {
    words.extend(some.iter().map(|word| word.as_bytes().to_vec()));
}

struct Call {
    verb: String,
    keys: Vec<String>,
    words: Vec<Vec<u8>>,
}

impl Calls {
    pub(crate) fn new(seed: u64, scripts: BTreeMap<String, String>, pair: &mut Pair) -> Result<Calls, Failure> {
        let mut digests = BTreeMap::new();
        for (verb, source) in scripts {
            let load = [b"SCRIPT".to_vec(), b"LOAD".to_vec(), source.into_bytes()];
            digests.insert(verb, pair.both(&load)?.text());
        }
        let random = Rng::with_seed(seed ^ 0xD3E11);
        let channels: Vec<String> = (0..2).map(|partition| format!("{{dwell:t:{partition}}}:wake")).collect();
        pair.listen(&channels)?;
        let (now, reached) = (1_700_000_000_000_000, BTreeMap::new());
        Ok(Calls { random, digests, now, reached, is_large: seed.is_multiple_of(3), last: String::new() })
    }

    pub(crate) fn report(&self) {
        let verbs = self.reached.len();
        let outcomes: usize = self.reached.values().map(BTreeMap::len).sum();
        println!("{verbs} of {} scripts, {outcomes} kinds of outcome", self.digests.len());
        if std::env::var("REACHED").is_ok() {
            self.reached.iter().for_each(|(verb, outcomes)| println!("  {verb}: {outcomes:?}"));
        }
    }

    /// Notes what the last call was answered.
    pub(crate) fn note(&mut self, answer: &crate::client::Answer) {
        let outcome = answer.list().first().map_or_else(|| answer.text(), crate::client::Answer::text);
        let outcome = outcome.chars().take(40).collect();
        *self.reached.entry(std::mem::take(&mut self.last)).or_default().entry(outcome).or_default() += 1;
    }

    /// The words of a random call.
    pub(crate) fn any(&mut self, pair: &mut Pair) -> Result<Vec<Vec<u8>>, Failure> {
        self.now += self.random.u64(..3_000);
        let verbs: Vec<String> =
            self.digests.keys().filter(|verb| !self.is_large || !SCANNING.contains(&verb.as_str())).cloned().collect();
        let verb = match self.random.u32(..10) {
            // What others need to go on.
            0..4 => {
                ["push", "push_over", "reserve", "settle", "acquire", "merge_descriptor", "push_ordered", "reserve"]
                    [self.random.usize(..8)]
                .to_owned()
            }
            _ => verbs[self.random.usize(..verbs.len())].clone(),
        };
        let call = self.call(&verb, pair)?;
        let digest = self.digests.get(&call.verb).cloned().unwrap_or_default();
        let mut all = words(&["EVALSHA", &digest, &call.keys.len().to_string()]);
        all.extend(call.keys.into_iter().map(String::into_bytes));
        all.extend(call.words);
        self.last = call.verb;
        Ok(all)
    }

    fn read(&self, pair: &mut Pair, command: &[&str]) -> Result<String, Failure> {
        Ok(pair.real.call(&words(command))?.text())
    }

    fn is(&mut self, one_in: u32) -> bool {
        self.random.u32(..one_in) == 0
    }

    fn id(&mut self) -> String {
        format!("m{}", self.random.u32(..14))
    }

    fn due(&mut self) -> u64 {
        (self.now / 1_000).saturating_add_signed(self.random.i64(-6..12))
    }

    /// How long after its first push a message may be due.
    fn bound(&mut self, policy: &str) -> Vec<u8> {
        let has_bound = policy == "debounce" && self.is(2);
        if has_bound { self.random.u64(1..12).to_string().into_bytes() } else { Vec::new() }
    }

    fn version(&mut self) -> u64 {
        self.now.saturating_add_signed(self.random.i64(-4_000..9_000))
    }

    fn body(&mut self, due: u64, version: u64) -> Vec<u8> {
        let mut body = due.to_be_bytes()[2..].to_vec();
        body.extend(&version.to_be_bytes()[1..]);
        let is_bare = self.is(3);
        body.push(if is_bare { 8 } else { 9 });
        body.extend([1, 2, 3, 4]);
        let pushed = (self.now / 1_000).saturating_add_signed(self.random.i64(-3..3));
        body.extend(&pushed.to_be_bytes()[2..]);
        if !is_bare {
            match self.random.bool() {
                true => body.extend([1, 2, b'k', b'a' + self.random.u8(..2)]),
                false => body.push(0),
            }
            match self.is(4) {
                true => {
                    body.extend([1, 253]);
                    body.extend((self.due() + 4).to_le_bytes());
                }
                false => body.push(0),
            }
        }
        let payload = if self.is_large { 60 } else { self.random.usize(..12) };
        body.extend(std::iter::repeat_n(b'p', payload));
        body
    }

    /// A body that perhaps has a successor.
    fn perhaps_followed(&mut self, due: u64, version: u64) -> Vec<u8> {
        let mut body = self.body(due, version);
        // Two make a hash large, and then the two servers scan it in another order.
        if self.is_large && self.is(4) {
            let (due, version) = (self.due(), self.version());
            let successor = self.body(due, version);
            let length = u32::try_from(successor.len()).unwrap_or(0);
            body[13] |= 128;
            body.extend(successor);
            body.extend(b"m3~1");
            body.push(4);
            body.extend(length.to_be_bytes());
        }
        body
    }

    /// What a push says about the message that is there.
    fn about(&mut self, policy: &str, id: &str) -> Vec<u8> {
        if policy == "after" { format!("{id}~1").into_bytes() } else { self.bound(policy) }
    }

    fn dead(&mut self, due: u64, version: u64) -> Vec<u8> {
        let mut value = 3_u32.to_be_bytes().to_vec();
        value.extend(b"rec");
        value.extend(self.body(due, version));
        value
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each script")]
    fn call(&mut self, verb: &str, pair: &mut Pair) -> Result<Call, Failure> {
        let tag = format!("{{dwell:t:{}}}", self.random.u32(..2));
        let group = GROUPS[self.random.usize(..2)];
        let t = |suffix: &str| format!("{tag}:{suffix}");
        let g = |suffix: &str| format!("{tag}:{group}:{suffix}");
        let each = |suffixes: &[&str]| {
            let of = |group: &'static str| suffixes.iter().map(move |suffix| (group, *suffix)).collect::<Vec<_>>();
            GROUPS
                .iter()
                .flat_map(|group| of(group))
                .map(|(group, suffix)| format!("{tag}:{group}:{suffix}"))
                .collect::<Vec<_>>()
        };
        let now = if self.is(40) { String::new() } else { self.now.to_string() };
        let number = if self.is(12) { "0000000000000002" } else { "0000000000000003" };
        let history = if self.is(15) { String::new() } else { self.read(pair, &["GETRANGE", &t("gen"), "17", "48"])? };
        let generation = format!("{number} {history}");
        let generation = generation.as_str();
        let until = (self.now / 1_000).saturating_add_signed(if self.is(20) { -5 } else { 50 }).to_string();
        let stream = format!("s{}", self.random.u32(..3));
        let memory = t(&format!("c:{stream}"));
        let last = self.read(pair, &["GET", &memory])?;
        let last: u64 = last.split(' ').next().and_then(|last| last.parse().ok()).unwrap_or(0);
        let seq = match self.random.u32(..12) {
            0 => last,
            1 => last.saturating_sub(1),
            2 => last + 2,
            _ => last + 1,
        };
        let seq = seq.to_string();
        let line = self.read(pair, &["HGET", &g("r"), "@"])?;
        let epoch = line.split('/').next().filter(|epoch| !epoch.is_empty()).unwrap_or("1.a").to_owned();
        let line_seq: u64 = line.split('/').nth(1).and_then(|seq| seq.parse().ok()).unwrap_or(0);
        let cur = match self.random.u32(..14) {
            0 => format!("{epoch}/{line_seq}/"),
            1 => format!("{epoch}/{}/", line_seq.saturating_sub(1)),
            2 => "9.z/1/".to_owned(),
            _ => format!("{epoch}/{}/", line_seq + 1),
        };
        let prev = if self.is(14) { format!("{epoch}/{line_seq}/5") } else { line.clone() };
        let page_number = |header: String| header.split(' ').next().unwrap_or("0").to_owned();
        let ids = |random: &mut Rng, most: usize| {
            let mut ids: Vec<String> = (0..random.usize(1..=most)).map(|_| format!("m{}", random.u32(..14))).collect();
            ids.sort();
            ids.dedup();
            ids
        };
        let mut words: Vec<Vec<u8>> = Vec::new();
        let member = ["A", "B"][self.random.usize(..2)];
        let mut verb = verb.to_owned();
        let is_ordered = verb.ends_with("_ordered") && verb != "reserve_ordered";
        let plain = verb.trim_end_matches("_ordered").to_owned();
        let mut keys: Vec<String> = match if is_ordered { &*plain } else { &*verb } {
            "push" => {
                let n = self.random.usize(1..4);
                let version = self.version();
                say_all(
                    &mut words,
                    &[
                        generation,
                        &until,
                        if self.is(3) { "fresh" } else { "live" },
                        if self.is(30) { "2" } else { "1000" },
                    ],
                );
                let dues: Vec<u64> = (0..n).map(|_| self.due()).collect();
                let ids: Vec<String> = (0..n).map(|_| self.id()).collect();
                say_all(&mut words, &[&dues.iter().min().copied().unwrap_or(0).to_string()]);
                say_all(&mut words, &[&now, &seq, &version.to_string(), &n.to_string()]);
                for (due, id) in dues.iter().zip(&ids) {
                    say_all(&mut words, &[&due.to_string()]);
                    say_all(&mut words, &[id]);
                }
                for (at, (due, id)) in dues.iter().zip(&ids).enumerate() {
                    words.push(id.clone().into_bytes());
                    words.push(self.body(*due, version + at as u64));
                }
                if self.is(3) {
                    let from = self.now / 1_000;
                    words.push(b"1".to_vec());
                    words.push(format!("{from:015} {:015} d{}", from + 9, self.random.u32(..3)).into_bytes());
                }
                let mut keys = vec![
                    t("gen"),
                    memory,
                    t("seen"),
                    t("x"),
                    t("wake"),
                    t("gone"),
                    t("purged"),
                    t("dedup"),
                    t("dedup-end"),
                ];
                keys.extend(each(&["z", "h", "dh"]));
                keys
            }
            "push_over" => {
                let n = self.random.usize(1..4);
                let version = self.version();
                let policies = if self.is_large { 4 } else { 3 };
                let policy = ["reject", "replace", "debounce", "after"][self.random.usize(..policies)];
                say_all(&mut words, &[generation, &until, "1000", policy, &now, &seq, &version.to_string()]);
                for at in 0..n {
                    let due = self.due();
                    let id = self.id();
                    words.push(due.to_string().into_bytes());
                    words.push(id.clone().into_bytes());
                    words.push(self.body(due, version + at as u64));
                    words.push(self.about(policy, &id));
                }
                let mut keys = vec![t("gen"), memory, t("seen"), t("x"), t("gone"), t("wake"), t("purged")];
                keys.extend(each(&["z", "h", "a", "dh"]));
                if policy == "after" {
                    keys.extend(each(&["m", "n"]));
                }
                keys
            }
            "replay" => {
                let policies = if self.is_large { 5 } else { 4 };
                let policy = ["keep", "reject", "replace", "debounce", "after"][self.random.usize(..policies)];
                say_all(&mut words, &[generation, "1000", policy, &now]);
                for at in 0..self.random.u64(1..4) {
                    let (due, version) = (self.due(), self.version());
                    words.push((last + at).to_string().into_bytes());
                    words.push(if self.is(4) { self.random.u32(1..9).to_string().into_bytes() } else { Vec::new() });
                    let id = self.id();
                    words.push(due.to_string().into_bytes());
                    words.push(id.clone().into_bytes());
                    words.push(self.body(due, version));
                    let from = self.now / 1_000;
                    words.push(match self.is(4) && policy != "after" {
                        true => format!("{from:015} {:015} d{}", from + 9, self.random.u32(..3)).into_bytes(),
                        false => Vec::new(),
                    });
                    words.push(self.about(policy, &id));
                }
                let mut keys = vec![
                    t("gen"),
                    memory,
                    t("seen"),
                    t("x"),
                    t("gone"),
                    t("wake"),
                    t("c:o"),
                    t("c:o#1"),
                    t("purged"),
                    t("dedup"),
                    t("dedup-end"),
                ];
                keys.extend(each(&["z", "h", "a", "dz", "dh"]));
                if policy == "after" {
                    keys.extend(each(&["m", "n"]));
                }
                keys
            }
            "restore" => {
                say_all(&mut words, &[generation, "2", &now]);
                for _ in 0..self.random.usize(1..4) {
                    let (due, version) = (self.due(), self.version());
                    let is_end = self.is(3);
                    words.push([&b""[..], b"g", b"g h"][self.random.usize(..3)].to_vec());
                    words.push(self.id().into_bytes());
                    words.push(version.to_string().into_bytes());
                    if is_end {
                        words.extend(std::iter::repeat_n(Vec::new(), 5));
                    } else {
                        words.push(due.to_string().into_bytes());
                        words.push(self.perhaps_followed(due, version));
                        words.push(b"1".to_vec());
                        words.push((last + self.random.u64(..3)).to_string().into_bytes());
                        words.push(Vec::new());
                    }
                }
                let mut keys = vec![t("gen"), t("x"), t("gone"), t("wake"), t("purged"), t("dedup"), t("dedup-end")];
                keys.extend(each(&["z", "h", "a", "dz", "dh"]));
                keys.push(memory);
                keys
            }
            "forward" => {
                let page = (self.now + self.random.u64(..2)).to_string();
                say_all(&mut words, &[generation, &page, "1000", &self.due().to_string(), &now, &until]);
                for _ in 0..self.random.usize(1..4) {
                    let (due, version) = (self.due(), self.version());
                    words.push(self.id().into_bytes());
                    words.push(format!("n{}", self.random.u32(..40)).into_bytes());
                    words.push(self.body(due, version));
                }
                let mut keys = vec![t("gen"), t("c:fw"), t("x"), t("wake"), t("c:fw@b")];
                keys.extend(each(&["z", "h", "dh"]));
                keys
            }
            "cancel" => {
                let seq = if self.is(5) { String::new() } else { seq };
                let version = self.version().to_string();
                say_all(
                    &mut words,
                    &[generation, &until, &self.id(), "3600000000", "5", &version, &seq, &now, "g", "h"],
                );
                let mut keys = vec![t("gen"), memory, t("x")];
                keys.extend(each(&["z", "h", "a", "dh"]));
                keys
            }
            "reschedule" => {
                let (due, version) = (self.due().to_string(), self.version().to_string());
                let expected = if self.is(3) { self.due().to_string() } else { String::new() };
                let attempts = if self.is(3) { "1" } else { "" };
                say_all(&mut words, &[generation, &until, &self.id(), &due, &expected, attempts, &now, &seq, &version]);
                let mut keys = vec![t("gen"), t("x"), t("gone"), t("wake"), t("purged"), t("dedup"), t("dedup-end")];
                keys.extend(each(&["z", "h", "a", "dz", "dh", "n"]));
                keys.push(memory);
                keys
            }
            "purge_group" => {
                let dead = if self.is(2) { "1" } else { "" };
                say_all(&mut words, &[generation, &until, group, dead, &self.version().to_string(), &seq, &now]);
                vec![
                    t("gen"),
                    memory,
                    t("purged"),
                    t("wake"),
                    g("z"),
                    g("h"),
                    g("r"),
                    g("a"),
                    g("dz"),
                    g("dh"),
                    g("lease"),
                    g("f"),
                    g("k"),
                    g("n"),
                ]
            }
            "pause_key" => {
                let key = KEYS[self.random.usize(..KEYS.len())];
                let till = if self.is(3) { String::new() } else { self.due().to_string() };
                let most = self.random.u32(1..4).to_string();
                say_all(&mut words, &[generation, &until, key, &till, &most, &seq, &now]);
                vec![t("gen"), memory, g("p")]
            }
            "reapply_purge" => {
                let version = self.now.saturating_sub(self.random.u64(..20_000)).to_string();
                let cursor = ["0", "0", "d0"][self.random.usize(..3)];
                say_all(&mut words, &[generation, group, if self.is(2) { "1" } else { "" }, &version, cursor, &now]);
                vec![t("gen"), t("purged"), g("z"), g("h"), g("a"), g("dz"), g("dh")]
            }
            "fence" => {
                say_all(&mut words, &[&seq, &self.random.u32(1..3).to_string()]);
                vec![memory]
            }
            "acquire" => {
                let expected = if self.is(8) {
                    "7.x".to_owned()
                } else if line.is_empty() {
                    String::new()
                } else {
                    epoch.clone()
                };
                let number: u64 = epoch.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
                say_all(
                    &mut words,
                    &[generation, member, "60000", &expected, &format!("{}.{member}", number + 1), &now],
                );
                vec![t("gen"), g("lease"), g("r")]
            }
            "renew" => {
                say_all(&mut words, &[member, "60000", &epoch, &now]);
                vec![g("lease"), g("r"), g("z"), t("gen")]
            }
            "release" => {
                say_all(
                    &mut words,
                    &[member, &epoch, &format!("{}.-/0/", epoch.split('.').next().unwrap_or("1")), &now],
                );
                vec![g("lease"), g("r"), t("wake")]
            }
            "owner_record" => vec![g("r"), g("lease")],
            "recover" => {
                let most = self.random.u32(1..6).to_string();
                say_all(&mut words, &[&epoch, &most, &now]);
                vec![g("r"), g("z"), g("h"), g("a"), g("k")]
            }
            "repair" => {
                say_all(&mut words, &[&epoch, if self.is(2) { "0" } else { "z0" }, &now]);
                vec![g("r"), g("z"), g("h"), g("a")]
            }
            "reserve" | "reserve_ordered" => {
                let bytes = self.random.u32(1..400).to_string();
                say_all(
                    &mut words,
                    &[
                        &prev,
                        &cur,
                        &now,
                        &format!("{epoch}.{}", self.random.u32(..4)),
                        if verb == "reserve" { "5" } else { "2" },
                        &bytes,
                        "3",
                    ],
                );
                vec![g("r"), g("z"), g("h"), g("a")]
            }
            "reserve_by_key" => {
                let bytes = self.random.u32(1..400).to_string();
                let field = format!("{epoch}.{}", self.random.u32(..4));
                let share = ["", "1", "2"][self.random.usize(..3)];
                let looks = self.random.u32(1..6).to_string();
                say_all(&mut words, &[&prev, &cur, &now, &field, "3", &bytes, "3", share, &looks]);
                for key in KEYS.iter().take(self.random.usize(..=KEYS.len())) {
                    say_all(&mut words, &[&self.random.u32(1..4).to_string(), key]);
                }
                vec![g("r"), g("z"), g("h"), g("a"), g("k"), g("p")]
            }
            "sorted_keys" => {
                say_all(&mut words, &[&self.random.u32(1..3).to_string()]);
                if self.is(2) {
                    say_all(&mut words, &[KEYS[self.random.usize(..KEYS.len())]]);
                }
                vec![g("k")]
            }
            "settle" => {
                let has_window = self.is(2);
                say_all(&mut words, &[&prev, &cur, &now, if has_window { "20" } else { "0" }]);
                for block in 0..6 {
                    let some = if self.is(3) { ids(&mut self.random, 3) } else { Vec::new() };
                    let mut block_words: Vec<Vec<u8>> = Vec::new();
                    for id in some {
                        let (due, id) = (self.due().to_string().into_bytes(), id.into_bytes());
                        let failure = if self.is(8) { b"5\n".to_vec() } else { Vec::new() };
                        match block {
                            0 => block_words.push(id),
                            1 => block_words.extend([due, id]),
                            2 => {
                                let attempts = if self.is(2) { b"0 " } else { b"2 " };
                                block_words.extend([id, [attempts, &*due].concat(), failure]);
                            }
                            3 => block_words.extend([id, b"rec".to_vec(), failure]),
                            4 => block_words.extend([format!("{epoch}.{}", self.random.u32(..4)).into_bytes(), id]),
                            _ => block_words.push(format!("{epoch}.{}", self.random.u32(..4)).into_bytes()),
                        }
                    }
                    words.push(block_words.len().to_string().into_bytes());
                    words.extend(block_words);
                }
                let mut keys = vec![g("r"), g("z"), g("h"), g("a"), g("dz"), g("dh"), g("n")];
                keys.extend(has_window.then(|| t("seen")));
                if self.is(3) {
                    let sorted = ids(&mut self.random, 3);
                    words.push((3 * sorted.len()).to_string().into_bytes());
                    for id in sorted {
                        let (due, key) = (self.due(), KEYS[self.random.usize(..KEYS.len())]);
                        let score = ((1_u64 << 42) + due).to_string();
                        say_all(&mut words, &[&score, &id, &format!("{key}\0{due:013}{id}")]);
                    }
                    keys.extend([g("k"), g("p")]);
                    let pauses = self.random.usize(..3);
                    words.push((2 * pauses).to_string().into_bytes());
                    for key in KEYS.iter().take(pauses) {
                        say_all(&mut words, &[&self.due().to_string(), key]);
                    }
                }
                keys.push(t("gen"));
                keys
            }
            "settle_late" => {
                say_all(
                    &mut words,
                    &[
                        generation,
                        &until,
                        &now,
                        &seq,
                        if self.is(2) { "0" } else { "20" },
                        if self.is(3) { "1" } else { "0" },
                        group,
                    ],
                );
                for id in ids(&mut self.random, 3) {
                    let body = pair.real.call(&crate::client::words(&["HGET", &g("h"), &id]))?;
                    let version = match &body {
                        crate::client::Answer::Bulk(body) if body.len() >= 13 => {
                            body[6..13].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
                        }
                        _ => self.version(),
                    };
                    words.push(id.into_bytes());
                    words.push(version.to_string().into_bytes());
                    words.push(self.random.u32(..3).to_string().into_bytes());
                    words.push(if self.is(2) { Vec::new() } else { self.due().to_string().into_bytes() });
                    words.push(if self.is(8) { b"5\n".to_vec() } else { Vec::new() });
                    words.push(self.random.u32(..2).to_string().into_bytes());
                    words.push(self.random.u32(..2).to_string().into_bytes());
                }
                let shared = [t("gen"), memory, t("seen"), t("gone"), t("wake")];
                let own = ["r", "z", "h", "a", "dh", "p"].map(g);
                shared.into_iter().chain(own).collect()
            }
            "start" => {
                say_all(&mut words, &[&prev, &cur, &now]);
                for id in ids(&mut self.random, 3) {
                    words.push(id.into_bytes());
                    words.push(b"1".to_vec());
                }
                vec![g("r"), g("a"), g("h")]
            }
            "peek" => {
                say_all(&mut words, &[&self.id(), &now]);
                vec![g("z"), g("h"), g("a"), g("dz"), g("dh"), g("lease"), g("m")]
            }
            "waiting" => {
                let (from, to) = (self.due(), self.due() + 5);
                let after = if self.is(2) { self.id() } else { String::new() };
                say_all(&mut words, &[&from.to_string(), &to.to_string(), &after, &self.due().to_string(), "4", "150"]);
                if self.is(2) {
                    words.push(b"sizes".to_vec());
                }
                vec![g("z"), g("h"), g("a")]
            }
            "in_flight" => {
                let after = if self.is(2) { self.id() } else { String::new() };
                say_all(&mut words, &["0", &after, "4", "150", "20"]);
                vec![g("r"), g("z"), g("h"), g("a")]
            }
            "stats" => {
                say_all(&mut words, &[&now, "5", "100"]);
                vec![g("z"), g("h"), g("dz"), g("lease")]
            }
            "claim_stats" => {
                say_all(&mut words, &[member, if self.is(3) { "" } else { "50000" }]);
                vec!["dwell:stats-collector".to_owned()]
            }
            "verify" => {
                let at = ["h0", "z0", "a0", "d0", "g0"][self.random.usize(..5)];
                say_all(&mut words, &[at, if self.is(2) { "repair" } else { "" }, &now]);
                vec![g("r"), g("z"), g("h"), g("a"), g("dz"), g("dh")]
            }
            "bulk_range" => {
                let after = if self.is(2) { self.id() } else { String::new() };
                say_all(
                    &mut words,
                    &[&self.due().to_string(), &(self.due() + 6).to_string(), &after, &self.due().to_string(), "4"],
                );
                vec![g("z")]
            }
            "forecast" => {
                say_all(&mut words, &[&self.due().to_string(), "2", "5"]);
                vec![g("z")]
            }
            "dead_letters" => {
                let after = if self.is(2) { self.id() } else { String::new() };
                let first = if self.is(2) { "oldest" } else { "newest" };
                say_all(&mut words, &[&after, &(self.now / 1_000).to_string(), "4", "150", first]);
                if self.is(2) {
                    say_all(&mut words, &["sizes"]);
                }
                vec![g("dz"), g("dh")]
            }
            "redrive" => {
                say_all(&mut words, &[&now]);
                words.extend(ids(&mut self.random, 3).into_iter().map(String::into_bytes));
                vec![g("dz"), g("dh"), g("z"), g("h"), g("a"), t("wake"), g("m"), g("f"), t("gen")]
            }
            "purge_dead_letters" => {
                words.extend(ids(&mut self.random, 3).into_iter().map(String::into_bytes));
                vec![g("dz"), g("dh"), g("m"), g("f"), t("gen")]
            }
            "trim_dead_letters" => {
                let before = if self.is(2) { (self.now / 1_000 - 5).to_string() } else { String::new() };
                say_all(&mut words, &[&before, if self.is(2) { "3" } else { "" }, "2"]);
                vec![g("dz"), g("dh"), g("m"), g("f")]
            }
            "stage" => {
                say_all(&mut words, &["150", "st", if self.is(4) { "" } else { "u" }, &now]);
                words.extend(ids(&mut self.random, 4).into_iter().map(String::into_bytes));
                vec![g("dz"), g("dh"), g("f"), g("m"), t("gen")]
            }
            "unstage" => {
                let page = page_number(self.read(pair, &["HGET", &g("f"), " "])?);
                say_all(&mut words, &[&page, if self.is(3) { "1" } else { "" }]);
                words.extend(ids(&mut self.random, 2).into_iter().map(String::into_bytes));
                vec![g("dz"), g("dh"), g("f"), t("gen")]
            }
            "cron_jobs" => vec![t("s")],
            "put_cron_job" => {
                let name = format!("j{}", self.random.u32(..3));
                let there = self.read(pair, &["HGET", &t("s"), &name])?;
                let revision = there.split(' ').next().unwrap_or("").to_owned();
                let revision = if self.is(5) { "9".to_owned() } else { revision };
                let done = if self.is(3) { String::new() } else { (self.now / 1_000 - 2).to_string() };
                let done = if there.is_empty() && done.is_empty() { "5".to_owned() } else { done };
                let next = self.random.u32(..30).to_string();
                say_all(&mut words, &[generation, &name, &revision, &next, &done, "{}", "2"]);
                vec![t("gen"), t("s"), t("gone")]
            }
            "delete_cron_job" => {
                let (name, revision) = (format!("j{}", self.random.u32(..3)), self.random.u32(..30).to_string());
                say_all(&mut words, &[generation, &name, &revision, &now]);
                vec![t("gen"), t("s"), t("gone")]
            }
            "restore_cron_job" => {
                let (name, revision) = (format!("j{}", self.random.u32(..3)), self.random.u32(..30).to_string());
                let done = (self.now / 1_000 - self.random.u64(..3)).to_string();
                say_all(&mut words, &[generation, &name, &revision, &done, if self.is(3) { "" } else { "{}" }, &now]);
                vec![t("gen"), t("s"), t("gone")]
            }
            "fire_cron_job" => {
                let name = format!("j{}", self.random.u32(..3));
                let there = self.read(pair, &["HGET", &t("s"), &name])?;
                let mut parts = there.split(' ');
                let (revision, last) = (parts.next().unwrap_or("0").to_owned(), parts.next().unwrap_or("0").to_owned());
                let (due, version) = (self.due(), self.version());
                let to = (self.now / 1_000).saturating_add_signed(self.random.i64(-2..1)).to_string();
                say_all(&mut words, &[generation, &name, &revision, &last, &to, "1000", &now]);
                words.push(due.to_string().into_bytes());
                words.push(self.id().into_bytes());
                words.push(self.body(due, version));
                let mut keys = vec![t("gen"), t("s"), t("seen"), t("wake"), t("c:cron.j")];
                keys.extend(each(&["z", "h", "dh"]));
                keys
            }
            "move_out" => {
                say_all(&mut words, &["3", "200", &now, "mv", if self.is(4) { "" } else { "u" }]);
                vec![g("z"), g("h"), g("a"), g("dz"), g("dh"), g("m"), g("r"), g("f"), t("gen")]
            }
            "move_done" => {
                say_all(&mut words, &[&page_number(self.read(pair, &["HGET", &g("m"), " "])?)]);
                words.extend(ids(&mut self.random, 2).into_iter().map(String::into_bytes));
                vec![g("z"), g("h"), g("a"), g("dz"), g("dh"), g("m"), g("r"), t("wake"), t("gen")]
            }
            "move_in" => {
                say_all(
                    &mut words,
                    &[
                        generation,
                        &format!("mv{}", self.random.u32(..3)),
                        &(self.now + self.random.u64(..2)).to_string(),
                        "1000",
                    ],
                );
                for _ in 0..self.random.usize(1..3) {
                    let (due, version) = (self.due(), self.version());
                    let is_dead = self.is(2);
                    words.push(self.id().into_bytes());
                    words.push(if is_dead { b"d".to_vec() } else { b"w".to_vec() });
                    words.push(due.to_string().into_bytes());
                    words.push(if is_dead || self.is(2) { Vec::new() } else { b"1 5".to_vec() });
                    words.push(if is_dead { self.dead(due, version) } else { self.perhaps_followed(due, version) });
                }
                vec![t("gen"), t("moved"), t("wake"), g("z"), g("h"), g("a"), g("dz"), g("dh"), t("c:mv@b"), g("n")]
            }
            "move_close" => {
                say_all(&mut words, &[&format!("mv{}", self.random.u32(..3)), &(self.now + 1).to_string()]);
                vec![t("moved")]
            }
            "merge_descriptor" => {
                let leaving = if self.is(6) { r#","leaving":["h"]"# } else { "" };
                say_all(
                    &mut words,
                    &[
                        generation,
                        &format!(
                            "{{\"subscriptions\":{{\"g\":{{\"born\":1,\"a\":null}},\"h\":{{\"copy_of\":\"g\",\"born\":2}}}}{leaving}}}"
                        ),
                    ],
                );
                say_all(&mut words, &[if self.is(3) { "500000" } else { "" }, if self.is(2) { "1" } else { "" }]);
                let replaces = match self.random.u32(..4) {
                    0 => self.read(pair, &["GETRANGE", &t("gen"), "0", "15"])?,
                    1 => "none".to_owned(),
                    _ => String::new(),
                };
                let process = format!("{:012}", self.random.u32(..3));
                say_all(&mut words, &[&replaces, &format!("{:04}", self.random.u32(..10_000)), &now, &process]);
                vec![t("gen"), t("wake")]
            }
            "compare" => {
                let there = self.read(pair, &["GETRANGE", &t("gen"), "17", "65"])?;
                let (history, count) = there.split_once(' ').unwrap_or_default();
                let count = if self.is(3) { format!("{:016}", self.random.u32(..40)) } else { count.to_owned() };
                let history = if self.is(6) { "" } else { history };
                let process = format!("{:012}", self.random.u32(..3));
                say_all(&mut words, &[history, &count, &format!("{:04}", self.random.u32(..10_000)), &now, &process]);
                vec![t("gen"), t("past")]
            }
            "set_once" => {
                say_all(&mut words, &[&self.random.u32(..9).to_string()]);
                vec!["dwell:receipt-key".to_owned()]
            }
            "delete_partition" => {
                say_all(&mut words, &[if self.is(9) { number } else { "0000000000000009" }]);
                let mut keys = vec![t("gen"), t("seen"), t("x")];
                keys.extend(each(&["z", "h", "r", "a", "dz", "dh", "m", "f", "lease"]));
                keys
            }
            "unsubscribe" => {
                say_all(&mut words, &["h"]);
                vec![
                    t("gen"),
                    t("purged"),
                    format!("{tag}:h:z"),
                    format!("{tag}:h:h"),
                    format!("{tag}:h:r"),
                    format!("{tag}:h:a"),
                ]
            }
            "copy" => {
                let born = if self.is(4) { "1" } else { "2" };
                say_all(&mut words, &["h", born, "g", "", "3"]);
                let (from, to) =
                    (|suffix: &str| format!("{tag}:g:{suffix}"), |suffix: &str| format!("{tag}:h:{suffix}"));
                vec![t("gen"), from("z"), from("h"), from("a"), to("z"), to("h"), to("n")]
            }
            "heartbeat" => {
                let now = if self.is(10) { (self.now + 100_000_000).to_string() } else { now.clone() };
                say_all(&mut words, &[member, "60000", &now, if self.is(2) { "0" } else { "1x" }, &t("wake")]);
                // One slot for keys and channel.
                vec![t("members"), t("members:state")]
            }
            "leave_group" => {
                say_all(&mut words, &[member, &t("wake")]);
                vec![t("members"), t("members:state")]
            }
            "members" => {
                say_all(&mut words, &["20", &now]);
                vec![t("members"), t("members:state")]
            }
            "note_process" => {
                say_all(
                    &mut words,
                    &[
                        ["a/b", "c/d"][self.random.usize(..2)],
                        if self.is(2) { "1" } else { "0" },
                        &now,
                        if self.is(4) { "1" } else { "0" },
                    ],
                );
                vec!["dwell:history".to_owned()]
            }
            "wait_marker" => vec!["dwell:history:mark".to_owned()],
            "rate_slots" => {
                say_all(
                    &mut words,
                    &[&self.random.u32(1..9).to_string(), "700", "3000", "2000", &self.now.to_string()],
                );
                vec!["dwell:rate-slots:t:g".to_owned()]
            }
            "restore_progress" => {
                let said = ["lost", "busy", "settled", "gone", "look"][self.random.usize(..5)];
                say_all(&mut words, &[member, said, &(self.now / 1_000).to_string(), &now]);
                vec!["dwell:brokers".to_owned()]
            }
            "check_permissions" => {
                say_all(&mut words, &["dwell:id", "{dwell::0}:gen"]);
                Vec::new()
            }
            other => return Err(format!("no arguments are known for the script {other}").into()),
        };
        if is_ordered {
            keys.push(t("o"));
        }
        // Without an override some answers name the time of the server.
        if now.is_empty() {
            verb = "owner_record".to_owned();
            (keys, words) = (vec![g("r"), g("lease")], Vec::new());
        }
        Ok(Call { verb, keys, words })
    }
}
