//! Values of a template, and their sources.

use super::escape::HEX;
use rand::Rng;
use rand::rngs::SmallRng;

/// A value that is inserted into a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// 1, 2, 3 … over all users and workers, each number once.
    Sequence,
    /// A number between two, both included, drawn for each request.
    Random(u64, u64),
    /// A random UUID of version 4.
    Uuid,
    /// The number of the user, counted from 0.
    User,
    /// Milliseconds since 1970.
    UnixMs,
    /// Microseconds since 1970.
    UnixUs,
    /// The captured variable with this index.
    Captured(usize),
    /// A column of the row of a data file: the file's index and the column's.
    Column(usize, usize),
}

/// The sources of the values of one request.
#[derive(Debug)]
pub struct Values<'a> {
    /// See [`Value::Sequence`].
    pub sequence: u64,
    /// See [`Value::User`].
    pub user: u64,
    /// See [`Value::UnixMs`], in microseconds.
    pub unix_us: u64,
    /// Draws random values.
    pub random: &'a mut SmallRng,
    /// Captured variables; empty for one that has no value yet.
    pub captured: &'a [Vec<u8>],
    /// The rows of each data file.
    pub feeds: &'a [Feed],
    /// The current row of each data file.
    pub rows: &'a [usize],
}

/// A data file: its columns' names and its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feed {
    /// Its file.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Each with one value per column.
    pub rows: Vec<Vec<Vec<u8>>>,
    /// Each row belongs to one user.
    pub is_unique: bool,
}

impl Values<'_> {
    /// Appends a value as text.
    pub(super) fn write(&mut self, value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Sequence => write_number(self.sequence, out),
            Value::Random(from, to) => write_number(self.random.random_range(*from..=*to), out),
            Value::Uuid => write_uuid(self.random.random(), out),
            Value::User => write_number(self.user, out),
            Value::UnixMs => write_number(self.unix_ms(), out),
            Value::UnixUs => write_number(self.unix_us, out),
            Value::Captured(_) | Value::Column(..) => out.extend_from_slice(self.text(value)),
        }
    }

    /// A value as a number, if it is one.
    pub(super) fn number(&mut self, value: &Value) -> Option<u64> {
        match value {
            Value::Sequence => Some(self.sequence),
            Value::Random(from, to) => Some(self.random.random_range(*from..=*to)),
            Value::User => Some(self.user),
            Value::UnixMs => Some(self.unix_ms()),
            Value::UnixUs => Some(self.unix_us),
            Value::Uuid => None,
            Value::Captured(_) | Value::Column(..) => {
                let text = std::str::from_utf8(self.text(value)).ok()?;
                text.trim().parse().ok()
            }
        }
    }

    /// Rounded, so that an age has no bias.
    fn unix_ms(&self) -> u64 {
        (self.unix_us + 500) / 1_000
    }

    /// A value that is a text; empty if there is none.
    fn text(&self, value: &Value) -> &[u8] {
        let text = match value {
            Value::Captured(index) => self.captured.get(*index),
            Value::Column(feed, column) => {
                let row = self.rows.get(*feed).copied().unwrap_or(0);
                let rows = self.feeds.get(*feed).map(|feed| &feed.rows);
                rows.and_then(|rows| rows.get(row)?.get(*column))
            }
            _ => None,
        };
        text.map_or(b"", Vec::as_slice)
    }
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A UUID of version 4 (RFC 9562, section 5.4) from 128 random bits.
fn write_uuid(random: u128, out: &mut Vec<u8>) {
    let bits = (random & !(0xF << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    for digit in 0..32 {
        if [8, 12, 16, 20].contains(&digit) {
            out.push(b'-');
        }
        let nibble = (bits >> (124 - 4 * digit)) & 0xF;
        out.push(HEX[nibble as usize]);
    }
}

/// The values of a first request, for tests.
#[cfg(test)]
pub(crate) fn first_values<'a>(
    random: &'a mut SmallRng,
    captured: &'a [Vec<u8>],
    feeds: &'a [Feed],
) -> Values<'a> {
    Values {
        sequence: 7,
        user: 0,
        unix_us: 0,
        random,
        captured,
        feeds,
        rows: &[0],
    }
}
