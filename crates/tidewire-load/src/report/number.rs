//! Numbers for readers: three significant digits and a unit.

/// A rate or count with a decimal prefix: `15.2 M`, `950`, `0.52`.
pub fn si(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G", " T"])
}

/// Bytes per second with a decimal prefix: `3.40 GB/s`.
pub fn byte_rate(value: f64) -> String {
    decimal_bytes(value) + "/s"
}

/// Bytes with a decimal prefix: `3.40 GB`.
pub fn decimal_bytes(value: f64) -> String {
    scaled(value, 1000.0, &[" B", " kB", " MB", " GB", " TB"])
}

/// A size of memory or of a payload with a binary prefix: `175 B`, `64 KiB`, `1.50 GiB`.
pub fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// A time given in microseconds: `850 ns`, `52.4 µs`, `1.25 ms`, `2.50 s`.
pub fn us(value: f64) -> String {
    match value {
        v if v <= 0.0 => "0 µs".into(),
        v if v < 0.9995 => format!("{} ns", digits(v * 1e3)),
        v if v < 999.5 => format!("{} µs", digits(v)),
        v if v < 999_500.0 => format!("{} ms", digits(v / 1e3)),
        v => format!("{} s", digits(v / 1e6)),
    }
}

/// A time given in seconds.
pub fn seconds(value: f64) -> String {
    us(value * 1e6)
}

/// A whole number in groups of three: `10,000`.
pub fn grouped(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 connection`, `10,000 connections`.
pub fn connections(count: u64) -> String {
    let noun = plural(count, "connection", "connections");
    format!("{} {noun}", grouped(count))
}

/// `1 user`, `10,000 users`.
pub fn users(count: u64) -> String {
    let noun = plural(count, "user", "users");
    format!("{} {noun}", grouped(count))
}

/// The noun for a number of things.
pub fn plural(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// A percentage with enough decimals to distinguish it from 100: `99.98 %`, `100 %`. One above 100 has fewer: `264.5 %`.
pub fn percent(value: f64) -> String {
    if value == value.round() || value >= 999.5 {
        return format!("{value:.0} %");
    }
    if value > 100.0 {
        return format!("{value:.1} %");
    }
    if value > 0.0 && value < 0.01 {
        return format!("{value:.4} %");
    }
    // Rounding must not turn a loss into 100 %.
    let shown = if value > 99.99 && value < 100.0 {
        99.99
    } else {
        value
    };
    format!("{shown:.2} %")
}

/// A ratio: `1.25×`.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        r if r >= 99.95 => format!("{value:.0}×"),
        r if r >= 9.995 => format!("{value:.1}×"),
        r if r >= 0.0995 => format!("{value:.2}×"),
        _ => format!("{value:.3}×"),
    }
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    let mut rest = value.abs();
    let mut unit = 0;
    // 999.5 would be shown as 1000 of the smaller unit.
    while rest >= base - base / 2000.0 && unit + 1 < units.len() {
        rest /= base;
        unit += 1;
    }
    format!("{sign}{}{}", digits(rest), units[unit])
}

/// Three significant digits; whole numbers without decimals.
fn digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == magnitude.trunc() && magnitude < 1e6 {
        return format!("{value:.0}");
    }
    match magnitude {
        m if m >= 99.95 => format!("{value:.0}"),
        m if m >= 9.995 => format!("{value:.1}"),
        m if m >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_the_right_unit() {
        let cases = [
            (si(15_200_000.0), "15.2 M"),
            (si(999_600.0), "1.00 M"),
            (si(950.0), "950"),
            (si(0.5171), "0.52"),
            (si(1e30), "1000000000000000000 T"),
            (byte_rate(3.4e9), "3.40 GB/s"),
            (bytes(175.0), "175 B"),
            (bytes(65_536.0), "64 KiB"),
            (bytes(-1_572_864.0), "-1.50 MiB"),
            (us(0.85), "850 ns"),
            (us(52.41), "52.4 µs"),
            (us(1250.0), "1.25 ms"),
            (us(999_900.0), "1.00 s"),
            (us(0.0), "0 µs"),
            (seconds(5.0), "5 s"),
            (ratio(2.204), "2.20×"),
            (ratio(1.0), "1.00×"),
            (ratio(0.0714), "0.071×"),
        ];
        for (actual, expected) in cases {
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn whole_numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(10_000), "10,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn a_loss_never_rounds_to_all() {
        assert_eq!(percent(100.0), "100 %");
        assert_eq!(percent(99.999), "99.99 %");
        assert_eq!(percent(0.001), "0.0010 %");
        assert_eq!(percent(98.5), "98.50 %");
        assert_eq!(percent(264.52), "264.5 %");
        assert_eq!(percent(12_345.6), "12346 %");
        assert_eq!(connections(1), "1 connection");
        assert_eq!(connections(1_000), "1,000 connections");
    }
}
