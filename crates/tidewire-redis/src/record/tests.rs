//! Tests of the records.

use super::*;
use proptest::prelude::*;

fn sample() -> Record<'static> {
    Record {
        mark: Mark {
            node: NodeId(7),
            batch: (1 << 48) - 1,
            index: 127,
        },
        category: Category::Snapshot,
        priority: Priority::High,
        published_redis_ms: Some(1_799_999_990_000),
        expires_redis_ms: Some(1_800_000_000_000),
        excluded: Some(Excluded {
            node: NodeId(9),
            shard: 3,
            number: u64::MAX,
        }),
        also_excluded: b"",
        t: "trade",
        id: Some("id-1"),
        key: Some("ключ"),
        volatile: false,
        binary: false,
        payload: br#"{"price":12.5}"#,
    }
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_record_reads_what_it_writes() {
    let full = sample();
    let bare = Record {
        published_redis_ms: None,
        expires_redis_ms: None,
        excluded: None,
        id: None,
        key: None,
        payload: b"",
        ..full
    };
    let binary = |record| Record {
        binary: true,
        payload: br#""AAH/""#,
        ..record
    };
    let also = [3, 4].map(|number| Excluded {
        node: NodeId(9),
        shard: u32::MAX,
        number,
    });
    let mut list = Vec::new();
    also.iter().for_each(|one| one.write(&mut list));
    let more = Record {
        also_excluded: &list,
        ..full
    };
    let all: Vec<_> = full.excluded.into_iter().chain(also).collect();
    assert_eq!(more.all_excluded().collect::<Vec<_>>(), all);
    let volatile = Record {
        volatile: true,
        ..bare
    };
    assert_eq!(encoded(&volatile)[FLAGS_AT + 1], 128 | Priority::High as u8);
    for record in [
        full,
        bare,
        more,
        volatile,
        binary(full),
        binary(bare),
        binary(more),
    ] {
        let bytes = encoded(&record);
        assert_eq!(Record::decode(&bytes), Ok(record));
        assert_eq!(Mark::of(&bytes), Some(record.mark));
        let published = Record::published_redis_ms_of(&bytes);
        assert_eq!(published, record.published_redis_ms);
    }
}

/// An older server knows six flags, and treats the excluded connection as one of another process.
#[test]
fn an_older_server_reads_a_binary_payload_as_a_text() {
    let excluded = sample().excluded;
    for (excluded, node) in [(None, 0), (excluded, 9)] {
        let record = Record {
            excluded,
            binary: true,
            payload: br#""AAH/""#,
            ..sample()
        };
        let bytes = encoded(&record);
        assert_eq!((bytes[0], bytes[FLAGS_AT]), (1, 63));
        let (at, end) = (PUBLISHED_AT + 16, PUBLISHED_AT + 36);
        assert_eq!(bytes[at..at + 8], u64::to_be_bytes(node));
        assert!(bytes[at + 8] & 0x80 != 0);
        assert_eq!(bytes[end..end + 7], *b"\0\x05trade");
        assert!(bytes.ends_with(br#""AAH/""#));
    }
}

#[test]
fn the_time_can_be_written_last_if_there_is_one() {
    let bare = Record {
        published_redis_ms: None,
        ..sample()
    };
    for record in [sample(), bare] {
        let mut bytes = encoded(&record);
        Record::write_published(&mut bytes, 5);
        let published_redis_ms = record.published_redis_ms.map(|_| 5);
        let written = Record {
            published_redis_ms,
            ..record
        };
        assert_eq!(Record::decode(&bytes), Ok(written));
    }
    Record::write_published(&mut [], 5);
    assert_eq!(Record::published_redis_ms_of(&[]), None);
}

#[test]
fn the_mark_can_be_written_last() {
    let mut bytes = encoded(&sample());
    let mark = Mark {
        node: NodeId(u64::MAX),
        batch: 5,
        index: 2,
    };
    mark.write(&mut bytes);
    assert_eq!(Record::decode(&bytes), Ok(Record { mark, ..sample() }));
}

#[test]
fn every_part_of_the_head_is_needed() {
    let record = Record {
        payload: b"",
        also_excluded: &[7; 40],
        ..sample()
    };
    let bytes = encoded(&record);
    for length in 0..bytes.len() {
        assert_eq!(
            Record::decode(&bytes[..length]),
            Err(RecordError::Short),
            "{length}"
        );
    }
}

#[test]
fn other_versions_flags_and_long_names_are_refused() {
    let mut bytes = encoded(&sample());
    bytes[17] |= 128;
    assert_eq!(Record::decode(&bytes), Err(RecordError::Unknown));
    bytes[0] = 2;
    assert_eq!(Record::decode(&bytes), Err(RecordError::Version(2)));
    let long = "x".repeat(65_536);
    let record = Record {
        id: Some(&long),
        ..sample()
    };
    assert_eq!(record.encode(&mut Vec::new()), Err(RecordError::LongName));
    let payload = vec![b'1'; RECORD_BYTES_MAX];
    let mut out = b"before".to_vec();
    let record = Record {
        payload: &payload,
        ..sample()
    };
    assert!(matches!(record.encode(&mut out), Err(RecordError::Long(_))));
    assert_eq!(out, b"before");
}

proptest! {
    #[test]
    fn garbage_is_an_error_or_a_record_that_writes_the_same(bytes in prop::collection::vec(any::<u8>(), 0..80), good in any::<bool>()) {
        let mut bytes = bytes;
        if good && bytes.len() > 19 {
            bytes[0] = VERSION;
            bytes[17] &= KNOWN_FLAGS;
            bytes[18] %= 5;
        }
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(encoded(&record), bytes);
        }
    }
}
