//! Stable names of the variants of an enum, the name that a misspelt one probably stands for, beginnings of texts, and counts with
//! their nouns.

/// Gives an enum without fields `ALL` and a method that tells the stable name of a variant, as in the API and in metrics.
macro_rules! names {
    ($type:ident::$method:ident: $($variant:ident => $name:literal),+ $(,)?) => {
        impl $type {
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            pub fn $method(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }
    };
}

pub(crate) use names;

/// The known name that a misspelt one probably stands for: the same but for capitals or the order of letters, or with one letter of four changed
/// at most.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (wrong, length) = (wrong.to_lowercase(), wrong.chars().count());
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let distance_to = |name: &str| {
        let name = name.to_lowercase();
        let is_close = last(&wrong) == last(&name) || letters(&wrong) == letters(&name);
        distance(&wrong, &name).min(if is_close { 1 } else { usize::MAX })
    };
    known
        .map(|name| (distance_to(name), name))
        .filter(|(distance, name)| *distance <= (name.len() / 4).max(1) && *distance < length)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// At most so many bytes of the beginning of a text, up to a character.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn letters(name: &str) -> Vec<char> {
    let mut letters: Vec<char> = name.chars().collect();
    letters.sort_unstable();
    letters
}

/// The edit distance (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// A count with its noun, in the plural unless there is one: `1 message`, `1,204 messages`, `2 entries`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let shown = thousands(count);
    match (count, noun.strip_suffix("ry")) {
        (1, _) => format!("{shown} {noun}"),
        (_, Some(stem)) => format!("{shown} {stem}ries"),
        (_, None) => format!("{shown} {noun}s"),
    }
}

pub fn thousands(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_commas() {
        let cases = [(0_u64, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn singular_is_used_for_one() {
        let cases = [(0_usize, "0 messages"), (1, "1 message"), (1_204, "1,204 messages")];
        for (count, text) in cases {
            assert_eq!(counted(count, "message"), text);
        }
        assert_eq!((counted(1_u8, "entry"), counted(2_u8, "entry")), ("1 entry".to_owned(), "2 entries".to_owned()));
    }

    #[test]
    fn nearest_finds_typos_and_nothing_for_nonsense() {
        let known =
            ["redis.timeout", "redis.url", "listen", "topic.visibility_timeout", "group.drain_timeout", "delay"];
        let cases = [
            ("redis.timout", Some("redis.timeout")),
            ("redis.Url", Some("redis.url")),
            ("lsten", Some("listen")),
            ("dealy", Some("delay")),
            ("topic.visibilty_timeout", Some("topic.visibility_timeout")),
            ("drain_timeout", Some("group.drain_timeout")),
            ("LISTEN", Some("listen")),
            ("dlay", Some("delay")),
            ("decay", Some("delay")),
            ("relax", None),
            ("completely.different", None),
            ("a", None),
        ];
        for (wrong, right) in cases {
            assert_eq!(nearest(wrong, known.into_iter()), right, "{wrong}");
        }
    }
}
