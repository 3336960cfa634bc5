//! Quantities in the form of a command line: `10s`, `500ms`, `1.5k`, `10s:1k,30s:5k`.

use std::time::Duration;

use super::OptionError;

/// A time with its unit: `ns`, `us`, `ms`, `s`, `m` or `h`; a number alone is seconds.
///
/// # Errors
/// The text is not a time, or is negative.
pub fn duration(text: &str) -> Result<Duration, OptionError> {
    let wrong = || {
        OptionError::new(format_args!(
            "`{text}` is not a time: write a number and a unit, such as 500ms, 10s or 2m"
        ))
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit.trim() {
        "ns" => number * 1e-9,
        "us" | "µs" => number * 1e-6,
        "ms" => number * 1e-3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// A number that may end in `k`, `M` or `G`.
///
/// # Errors
/// The text is not a number, or is negative.
pub fn number(text: &str) -> Result<f64, OptionError> {
    let wrong = || {
        OptionError::new(format_args!(
            "`{text}` is not a number: write digits, with k, M or G for thousands, millions or billions"
        ))
    };
    let trimmed = text.trim();
    let (digits, factor) = match trimmed.as_bytes().last() {
        Some(b'k' | b'K') => (&trimmed[..trimmed.len() - 1], 1e3),
        Some(b'm' | b'M') => (&trimmed[..trimmed.len() - 1], 1e6),
        Some(b'g' | b'G') => (&trimmed[..trimmed.len() - 1], 1e9),
        _ => (trimmed, 1.0),
    };
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    if !is_plain || !number.is_finite() {
        return Err(wrong());
    }
    Ok(number * factor)
}

/// A whole number that may end in `k`, `M` or `G`.
///
/// # Errors
/// The text is not a number, or has a fraction.
pub fn count(text: &str) -> Result<u64, OptionError> {
    let number = number(text)?;
    if number.fract() != 0.0 || number > 9e15 {
        return Err(OptionError::new(format_args!(
            "`{text}` is not a whole number"
        )));
    }
    Ok(number as u64)
}

/// Stages such as `10s:1k,30s:5k,10s:0`: in each time, in a straight line to the number after it.
///
/// # Errors
/// A part is not a time and a number.
pub fn stages(text: &str) -> Result<Vec<(Duration, f64)>, OptionError> {
    let stages: Result<Vec<_>, OptionError> = text
        .split(',')
        .map(|part| {
            let (time, target) = part.split_once(':').ok_or_else(|| {
                OptionError::new(format_args!(
                    "`{part}` is not a stage: write a time, a colon and a number, such as 10s:1k"
                ))
            })?;
            Ok((duration(time)?, number(target)?))
        })
        .collect();
    let stages = stages?;
    if stages.iter().all(|(time, _)| time.is_zero()) {
        return Err(OptionError::new(format_args!(
            "`{text}`: the stages have no duration: give at least one a time above 0"
        )));
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let ms = |text| duration(text).unwrap().as_micros();
        assert_eq!(
            [ms("500ms"), ms("10s"), ms("1.5"), ms("2m"), ms("250us")],
            [500_000, 10_000_000, 1_500_000, 120_000_000, 250]
        );
        for wrong in ["", "s", "-1s", "10 parsecs", "1e3s", "1..2s"] {
            let error = duration(wrong).unwrap_err().to_string();
            assert!(error.contains("is not a time"), "{wrong}: {error}");
        }
    }

    #[test]
    fn numbers_have_prefixes() {
        assert_eq!(number("1.5k").unwrap(), 1_500.0);
        assert_eq!(count("2M").unwrap(), 2_000_000);
        assert_eq!(count("10").unwrap(), 10);
        for wrong in ["", "k", "-1", "1e5", "inf", "nan", "1.2.3"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert!(count("1.5").is_err() && count("1.2345k").is_err());
    }

    #[test]
    fn stages_are_times_and_targets() {
        let s = Duration::from_secs;
        assert_eq!(
            stages("10s:1k, 30s:5k,10s:0").unwrap(),
            [(s(10), 1e3), (s(30), 5e3), (s(10), 0.0)]
        );
        assert!(stages("10s").unwrap_err().0.contains("such as 10s:1k"));
        assert!(stages("0s:5").unwrap_err().0.contains("no duration"));
    }
}
