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

/// A score as Redis 7.0 writes it: `%.17g`.
pub(crate) fn double(number: f64) -> String {
    if number == number.trunc() && number.abs() < 1e17 {
        if number == 0.0 && number.is_sign_negative() {
            return "-0".to_owned();
        }
        return (number as i64).to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{number:.16e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let sign = if number < 0.0 { "-" } else { "" };
    place_point(sign, digits, exponent, (-4..17).contains(&exponent))
}

/// A score as servers from 7.2 on write it: the shortest text that reads as the same number.
fn shortest(number: f64) -> String {
    if number.is_infinite() || number == 0.0 {
        return double(number);
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i32::try_from(digits.len()).unwrap_or(0);
    let behind = exponent + 1 - count;
    let is_plain = if behind >= 0 { exponent.abs() < count + 7 } else { behind > -7 || exponent.abs() < 4 };
    place_point(if number < 0.0 { "-" } else { "" }, &digits, exponent, is_plain)
}

fn place_point(sign: &str, digits: &str, exponent: i32, is_plain: bool) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(0);
    if !is_plain {
        let (first, rest) = digits.split_at(1.min(digits.len()));
        let point = if rest.is_empty() { "" } else { "." };
        let direction = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{direction}{:02}", exponent.abs());
    }
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
            [0.1, 1.5, 1e20, 1_700_000_000_000.000_5].map(shortest),
            ["0.1", "1.5", "1e+20", "1700000000000.0005"]
        );
    }
}
