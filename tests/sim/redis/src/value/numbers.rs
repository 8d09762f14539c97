//! Numbers as Redis reads and writes them.

/// An integer without blanks, plus signs or leading zeros.
pub(crate) fn int(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_plain {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A score. Never NaN.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    if let Some(number) = int(text) {
        return Some(number as f64);
    }
    let text = std::str::from_utf8(text).ok()?;
    text.parse::<f64>().ok().filter(|number| !number.is_nan())
}

/// A whole number below a limit, or an infinite one.
fn special(number: f64, limit: f64) -> Option<String> {
    match number {
        f64::INFINITY => Some("inf".to_owned()),
        f64::NEG_INFINITY => Some("-inf".to_owned()),
        0.0 if number.is_sign_negative() => Some("-0".to_owned()),
        _ if number == number.trunc() && number.abs() < limit => Some((number as i64).to_string()),
        _ => None,
    }
}

/// A score as Redis 7.0 writes it: `%.17g`.
pub(crate) fn double(number: f64) -> String {
    if let Some(text) = special(number, 1e17) {
        return text;
    }
    let text = format!("{number:.16e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let sign = if number < 0.0 { "-" } else { "" };
    match (-4..17).contains(&exponent) {
        true => plain(sign, digits, exponent),
        false => with_exponent(sign, digits, exponent, 2),
    }
}

/// A score as servers from 7.2 on write it: the shortest text that reads as the same number.
fn shortest(number: f64) -> String {
    // Half of the greatest integer.
    if let Some(text) = special(number, 4_611_686_018_427_387_904.0) {
        return text;
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i32::try_from(digits.len()).unwrap_or(0);
    let behind = exponent + 1 - count;
    let is_plain = if behind >= 0 { exponent.abs() < count + 7 } else { behind > -7 || exponent.abs() < 4 };
    let sign = if number < 0.0 { "-" } else { "" };
    if is_plain { plain(sign, &digits, exponent) } else { with_exponent(sign, &digits, exponent, 1) }
}

/// The exponent has so many digits at least.
fn with_exponent(sign: &str, digits: &str, exponent: i32, least: usize) -> String {
    let (first, rest) = digits.split_at(1.min(digits.len()));
    let point = if rest.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{direction}{:0least$}", exponent.abs())
}

fn plain(sign: &str, digits: &str, exponent: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(0);
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        return format!("{sign}0.{zeros}{digits}");
    }
    if exponent + 1 >= count {
        let zeros = "0".repeat(usize::try_from(exponent + 1 - count).unwrap_or(0));
        return format!("{sign}{digits}{zeros}");
    }
    let (whole, part) = digits.split_at(usize::try_from(exponent + 1).unwrap_or(0));
    format!("{sign}{whole}.{part}")
}

pub(crate) fn format_double(number: f64, is_shortest: bool) -> String {
    if is_shortest { shortest(number) } else { double(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written_as_by_redis() {
        assert_eq!([int(b"-7"), int(b"007"), int(b"+1"), int(b"-0"), int(b"")], [Some(-7), None, None, None, None]);
        let texts = [0.1, 1.5, 1e17, 1e-5, 1_700_000_000_000.000_5, 0.000_123, -2.5e-9, 3.0].map(double);
        let expected = [
            "0.10000000000000001",
            "1.5",
            "1e+17",
            "1.0000000000000001e-05",
            "1700000000000.0005",
            "0.00012300000000000001",
            "-2.5000000000000001e-09",
            "3",
        ];
        assert_eq!(texts, expected);
        assert_eq!(
            [0.1, 1.5, 1e15, 1e20, -1e-5, 1.0 / 2_048.0, 1_700_000_000_000.000_5, -0.0].map(shortest),
            ["0.1", "1.5", "1000000000000000", "1e+20", "-0.00001", "4.8828125e-4", "1700000000000.0005", "-0"]
        );
    }
}
