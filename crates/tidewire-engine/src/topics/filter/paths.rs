//! The paths of a filter as one tree, so that one reading of a payload finds all its fields.

use tidewire_wire::json::{Cursor, Found};

/// The fields below a place.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Where in the list of fields the value of this place is put, if a condition asks for it.
    slot: Option<usize>,
    below: Vec<(Segment, Paths)>,
}

#[derive(Debug)]
struct Segment {
    name: Box<[u8]>,
    /// The name as the index of an array, if it is one.
    index: Option<usize>,
}

impl Paths {
    /// The slot of the field at this path, which is `next_slot` if nobody has asked for it before.
    pub(super) fn slot(&mut self, path: &str, next_slot: usize) -> usize {
        let mut place = self;
        for name in path.split('.') {
            let known = place
                .below
                .iter()
                .position(|(other, _)| *other.name == *name.as_bytes());
            let at = known.unwrap_or_else(|| {
                place.below.push((Segment::new(name), Self::default()));
                place.below.len() - 1
            });
            place = &mut place.below[at].1;
        }
        *place.slot.get_or_insert(next_slot)
    }

    /// Reads the fields of this payload into their slots; those that are not there stay as they
    /// were.
    pub(super) fn read<'a>(&self, payload: &'a [u8], found: &mut [Found<'a>]) {
        let mut cursor = Cursor::new(payload);
        // Fields after malformed text count as missing.
        let _ = self.read_here(&mut cursor, true, found);
    }

    /// Reads the value at the cursor and goes past it, unless nothing is left to be found, when
    /// `is_last` is set for the last place. Recurses as deep as the paths are long.
    fn read_here<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        is_last: bool,
        found: &mut [Found<'a>],
    ) -> Option<()> {
        let value = cursor.value()?;
        let bracket = match value {
            Found::Object(_) | Found::Array(_) => cursor.peek(),
            _ => None,
        };
        if let Some(slot) = self.slot {
            found[slot] = value;
        }
        match bracket {
            Some(b'{') if !self.below.is_empty() => self.read_members(cursor, is_last, found),
            Some(b'[') if !self.below.is_empty() => self.read_elements(cursor, is_last, found),
            Some(_) if !is_last => cursor.pass_value(),
            _ => Some(()),
        }
    }

    fn read_members<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        is_last: bool,
        found: &mut [Found<'a>],
    ) -> Option<()> {
        cursor.enter();
        let mut is_seen = 0_u128;
        let mut wanted = self.below.len();
        while let Some(name) = cursor.next_name() {
            let known = self
                .below
                .iter()
                .position(|(segment, _)| *segment.name == *name);
            let Some(index) = known.filter(|index| is_seen >> index & 1 == 0) else {
                cursor.pass_value()?;
                continue;
            };
            is_seen |= 1 << index;
            wanted -= 1;
            self.below[index]
                .1
                .read_here(cursor, is_last && wanted == 0, found)?;
            if wanted == 0 {
                return if is_last { Some(()) } else { cursor.leave() };
            }
        }
        Some(())
    }

    fn read_elements<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        is_last: bool,
        found: &mut [Found<'a>],
    ) -> Option<()> {
        cursor.enter();
        let mut wanted = self
            .below
            .iter()
            .filter(|(segment, _)| segment.index.is_some())
            .count();
        let mut at = 0;
        while wanted > 0 && cursor.next_element().is_some() {
            match self
                .below
                .iter()
                .find(|(segment, _)| segment.index == Some(at))
            {
                Some((_, paths)) => {
                    wanted -= 1;
                    paths.read_here(cursor, is_last && wanted == 0, found)?;
                }
                None => cursor.pass_value()?,
            }
            at += 1;
        }
        if wanted > 0 || is_last {
            Some(())
        } else {
            cursor.leave()
        }
    }
}

impl Segment {
    fn new(name: &str) -> Self {
        // The way back excludes `01` and `+1`, which are names only.
        let index = name
            .parse::<usize>()
            .ok()
            .filter(|index| index.to_string() == name);
        Self {
            name: name.as_bytes().into(),
            index,
        }
    }
}
