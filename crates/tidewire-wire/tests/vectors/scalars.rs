//! Times and ids.

use tidewire_testkit::vectors::load;
use tidewire_testkit::vectors::scalars::Case;
use tidewire_wire::timestamp::{parse_rfc3339_ms, write_rfc3339_ms};
use tidewire_wire::uuid::{Uuid, uuid_v7};

pub(crate) fn run(file: &str) {
    for case in load::<Case>(file) {
        match case {
            Case::Time {
                name,
                timestamp,
                unix_ms,
                written,
            } => {
                assert_eq!(parse_rfc3339_ms(&timestamp), unix_ms, "{name}");
                if written {
                    let mut out = Vec::new();
                    write_rfc3339_ms(unix_ms.expect("a time"), &mut out);
                    assert_eq!(out, timestamp.as_bytes(), "{name}");
                }
            }
            Case::Id {
                name,
                uuid,
                bytes,
                unix_ms,
                random,
            } => {
                let expected = bytes.map(|bytes| Uuid(bytes[..].try_into().expect("16 bytes")));
                assert_eq!(Uuid::parse(&uuid), expected, "{name}");
                if let Some((unix_ms, random)) = unix_ms.zip(random) {
                    let made = uuid_v7(unix_ms, random[..].try_into().expect("10 bytes"));
                    assert_eq!((Some(made), made.to_string()), (expected, uuid), "{name}");
                }
            }
        }
    }
}
