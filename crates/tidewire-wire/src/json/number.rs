//! Numbers of JSON, compared by value.

use std::cmp::Ordering;

/// A number: exact if it is whole and fits in a `u64` or an `i64`, else the nearest `f64`.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// A whole number from -2^63 to 2^64 - 1.
    Whole(i128),
    /// Any other number.
    Float(f64),
}

impl Number {
    /// Reads the number that `text` begins with, and returns it with its length in bytes. `None` if there is none.
    #[inline]
    #[must_use]
    pub fn read(text: &[u8]) -> Option<(Self, usize)> {
        let sign = usize::from(text.first() == Some(&b'-'));
        let (whole, mut at) = digits(text, sign, 0);
        match text.get(at) {
            Some(b'.' | b'e' | b'E') => {}
            _ if at == sign => return None,
            _ if at - sign <= DIGITS_EXACT && (sign == 0 || whole <= NEGATIVE_MAX) => {
                return Some((Self::Whole(signed(whole, sign == 1)), at));
            }
            _ => return Some((Self::read_slowly(&text[..at])?, at)),
        }
        if text[at] == b'.' {
            let (all, end) = digits(text, at + 1, whole);
            let places = end - at - 1;
            if !matches!(text.get(end), Some(b'e' | b'E'))
                && end - sign <= DIGITS_EXACT
                && all <= FLOAT_WHOLE_MAX
                && places < POWERS.len()
            {
                // Both are exact, so that the quotient is the nearest there is.
                let value = all as f64 / POWERS[places];
                return Some((Self::Float(if sign == 1 { -value } else { value }), end));
            }
            at = end;
        }
        let part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'e' | b'E' | b'+' | b'-');
        at += text[at..].iter().take_while(part).count();
        Some((Self::read_slowly(&text[..at])?, at))
    }

    /// By the reader that has read the filter's own numbers, so that the same text is the same number.
    fn read_slowly(text: &[u8]) -> Option<Self> {
        if let Ok(number) = serde_json::from_slice(text) {
            return Self::from_json(&number);
        }
        // Too large for the reader of documents, and rounded to infinity by this one.
        std::str::from_utf8(text)
            .ok()?
            .parse()
            .ok()
            .map(Self::Float)
    }

    /// The number of a parsed document. `None` for one that is neither a 64-bit integer nor a float.
    #[must_use]
    pub fn from_json(number: &serde_json::Number) -> Option<Self> {
        let unsigned = number.as_u64().map(i128::from);
        let whole = unsigned.or_else(|| number.as_i64().map(i128::from));
        whole
            .map(Self::Whole)
            .or_else(|| number.as_f64().map(Self::Float))
    }

    /// The order by value.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Self::Whole(whole), Self::Float(float)) => compare_mixed(whole, float),
            (Self::Float(float), Self::Whole(whole)) => compare_mixed(whole, float).reverse(),
        }
    }
}

/// Exact, where the conversion of one into the other's type would round.
fn compare_mixed(whole: i128, float: f64) -> Ordering {
    // A float that is too large for an `i128` becomes the largest one, which is larger than any whole
    // number here.
    let order = whole.cmp(&(float as i128));
    order.then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

/// Appends the digits from `at` on to `value`, and returns the value and where they end. The value wraps around
/// if they are more than a `u64` can hold; the callers ignore it then.
fn digits(text: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(digit) = text
        .get(at)
        .map(|byte| byte.wrapping_sub(b'0'))
        .filter(|&d| d < 10)
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

fn signed(value: u64, is_negative: bool) -> i128 {
    let value = i128::from(value);
    if is_negative { -value } else { value }
}

/// This many digits (and a point among them) always fit in a `u64`.
const DIGITS_EXACT: usize = 19;

/// The largest whole number whose negative is an `i64`.
const NEGATIVE_MAX: u64 = 1 << 63;

/// Up to here an `f64` holds every whole number.
const FLOAT_WHOLE_MAX: u64 = 1 << 53;

/// The powers of ten that an `f64` holds exactly, as far as they are of use here.
const POWERS: [f64; 20] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering::{Equal, Greater, Less};

    fn read(text: &str) -> Number {
        let (number, bytes) = Number::read(format!("{text},1").as_bytes()).expect(text);
        assert_eq!(bytes, text.len(), "{text}");
        number
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (a, b, expected) in [
            ("1", "1.0", Equal),
            ("-0", "0", Equal),
            ("0.0", "-0.0", Equal),
            ("100", "1e2", Equal),
            ("1E+2", "1000e-1", Equal),
            ("-5", "-4.5", Less),
            ("-4", "-4.5", Greater),
            ("4", "4.5", Less),
            ("0.1", "1e-1", Equal),
            ("9007199254740993", "9007199254740992", Greater),
            ("9007199254740993", "9007199254740992.0", Greater),
            ("9007199254740992.0", "9007199254740993", Less),
            ("18446744073709551615", "18446744073709551614", Greater),
            ("18446744073709551615", "18446744073709551616", Less),
            ("18446744073709551616", "18446744073709551617", Equal),
            ("-9223372036854775808", "-9223372036854775807", Less),
            ("9999999999999999999", "9999999999999999998", Greater),
            ("-9999999999999999999", "-9999999999999999998", Equal),
            ("1e400", "1e308", Greater),
            ("1e400", "18446744073709551615", Greater),
            ("-1e400", "-9223372036854775808", Less),
            ("1e-400", "0", Equal),
        ] {
            assert_eq!(read(a).compare(read(b)), expected, "{a} {b}");
            assert_eq!(read(b).compare(read(a)), expected.reverse(), "{b} {a}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", "-", "x", "-x", "+1", "-.e", "1e", "1.e", "e1"] {
            assert!(Number::read(text.as_bytes()).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_readers_agree(text in "-?(0|[1-9][0-9]{0,21})(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,2})?") {
            let Ok(number) = serde_json::from_str::<serde_json::Number>(&text) else {
                return Ok(());
            };
            let expected = Number::from_json(&number).unwrap();
            prop_assert_eq!(read(&text).compare(expected), Equal);
        }
    }
}
