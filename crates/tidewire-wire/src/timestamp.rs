//! Times on the wire: RFC 3339, UTC, milliseconds (`2024-11-21T18:05:45.678Z`).

/// Appends `unix_ms`, milliseconds since 1970, as 24 characters of RFC 3339. A time past the year 9999
/// is written as the last millisecond of that year.
pub fn write_rfc3339_ms(unix_ms: u64, out: &mut Vec<u8>) {
    let unix_ms = unix_ms.min(YEAR_9999_END_MS);
    let (year, month, day) = civil_from_days(unix_ms / DAY_MS);
    let in_day = unix_ms % DAY_MS;
    let mut text = *b"0000-00-00T00:00:00.000Z";
    put(&mut text[0..4], year);
    put(&mut text[5..7], month);
    put(&mut text[8..10], day);
    put(&mut text[11..13], in_day / 3_600_000);
    put(&mut text[14..16], in_day / 60_000 % 60);
    put(&mut text[17..19], in_day / 1000 % 60);
    put(&mut text[20..23], in_day % 1000);
    out.extend_from_slice(&text);
}

/// Reads an RFC 3339 time with `Z` or an offset and any number of second decimals (those past the
/// millisecond are cut off) as milliseconds since 1970. `None` if it is not one, or before 1970.
pub fn parse_rfc3339_ms(text: &str) -> Option<u64> {
    let text = text.as_bytes();
    let (head, tail) = text.split_at_checked(19)?;
    let separators = [head[4], head[7], head[10] | 0x20, head[13], head[16]];
    if separators != *b"--t::" {
        return None;
    }
    let (year, month, day) = (
        digits(&head[..4])?,
        digits(&head[5..7])?,
        digits(&head[8..10])?,
    );
    let (hour, minute, second) = (
        digits(&head[11..13])?,
        digits(&head[14..16])?,
        digits(&head[17..19])?,
    );
    let days = days_from_civil(year, month, day)?;
    // RFC 3339 allows a leap second; it counts as the second after.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction_ms, zone) = fraction(tail)?;
    let local_ms = days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + fraction_ms;
    match zone {
        b"Z" | b"z" => Some(local_ms),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset_ms = hours * 3_600_000 + minutes * 60_000;
            if *sign == b'+' {
                local_ms.checked_sub(offset_ms)
            } else {
                Some(local_ms + offset_ms)
            }
        }
        _ => None,
    }
}

/// Splits what follows the seconds into milliseconds and the zone.
fn fraction(tail: &[u8]) -> Option<(u64, &[u8])> {
    let Some(decimals) = tail.strip_prefix(b".") else {
        return Some((0, tail));
    };
    let count = decimals.iter().take_while(|b| b.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    let padded = decimals[..count].iter().chain(b"00").take(3);
    let ms = padded.fold(0, |ms, digit| ms * 10 + u64::from(digit - b'0'));
    Some((ms, &decimals[count..]))
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value, byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + u64::from(byte - b'0'))
    })
}

fn put(place: &mut [u8], mut value: u64) {
    for byte in place.iter_mut().rev() {
        *byte = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a day counted from 1970-01-01. The calendar is shifted to start in March, so
/// that the leap day is the last of its year; 146,097 days make 400 years.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + DAYS_0000_03_01_TO_1970;
    let era = shifted / DAYS_PER_400_YEARS;
    let of_era = shifted % DAYS_PER_400_YEARS;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || day < 1 || year < 1970 {
        return None;
    }
    let shifted_year = year - u64::from(month <= 2);
    let march_month = (month + 9) % 12;
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    let days =
        365 * shifted_year + shifted_year / 4 - shifted_year / 100 + shifted_year / 400 + of_year
            - DAYS_0000_03_01_TO_1970;
    // A day that the month does not have is converted back to a day of the next month.
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

const DAY_MS: u64 = 86_400_000;
const DAYS_0000_03_01_TO_1970: u64 = 719_468;
const DAYS_PER_400_YEARS: u64 = 146_097;
const YEAR_9999_END_MS: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(unix_ms: u64) -> String {
        let mut out = Vec::new();
        write_rfc3339_ms(unix_ms, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_times() {
        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(written(1_732_212_345_678), "2024-11-21T18:05:45.678Z");
        assert_eq!(written(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(written(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(written(u64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn offsets_and_decimals() {
        let utc = parse_rfc3339_ms("2024-11-21T18:05:45.678Z");
        assert_eq!(utc, Some(1_732_212_345_678));
        assert_eq!(parse_rfc3339_ms("2024-11-21T20:05:45.678999+02:00"), utc);
        assert_eq!(parse_rfc3339_ms("2024-11-21t13:35:45.678-04:30"), utc);
        assert_eq!(parse_rfc3339_ms("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(parse_rfc3339_ms("1970-01-01T00:00:00.5Z"), Some(500));
    }

    #[test]
    fn what_is_no_time() {
        for wrong in [
            "",
            "2024-11-21",
            "2024-11-21T18:05:45",
            "2024-11-21T18:05:45.Z",
            "2023-02-29T00:00:00Z",
            "2024-04-31T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00+0200",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2024-11-21T18:05:45Zé",
        ] {
            assert_eq!(parse_rfc3339_ms(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(unix_ms in 0..=YEAR_9999_END_MS) {
            prop_assert_eq!(parse_rfc3339_ms(&written(unix_ms)), Some(unix_ms));
        }

        #[test]
        fn a_time_that_is_read_is_written_the_same(
            text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z"
        ) {
            if let Some(unix_ms) = parse_rfc3339_ms(&text) {
                prop_assert_eq!(&written(unix_ms)[..19], &text[..19]);
            }
        }
    }
}
