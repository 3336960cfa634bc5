use super::*;
use proptest::prelude::*;
use std::ops::ControlFlow;

/// The values, however the bytes were cut, and the error at the end.
fn read(pieces: &[&[u8]], limits: Limits) -> (Vec<String>, Option<RespError>) {
    let mut frames = Frames::new(limits);
    let mut values = Vec::new();
    for piece in pieces {
        let result = frames.read(piece, |value| {
            values.push(shown(value));
            ControlFlow::Continue(())
        });
        if let Err(error) = result {
            return (values, Some(error));
        }
    }
    (values, None)
}

fn shown(value: Value<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = |items: Items<'_>| items.map(shown).collect::<Vec<_>>().join(" ");
    match value {
        Value::Null => "null".to_owned(),
        Value::Text(bytes) => format!("'{}'", text(bytes)),
        Value::Error(bytes) => format!("!{}", text(bytes)),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(boolean) => boolean.to_string(),
        Value::Number(bytes) => text(bytes),
        Value::Array(items) => format!("[{}]", all(items)),
        Value::Map(items) => format!("{{{}}}", all(items)),
        Value::Push(items) => format!("<{}>", all(items)),
    }
}

fn one(bytes: &[u8]) -> Result<Vec<String>, RespError> {
    let (values, error) = read(&[bytes], Limits::default());
    error.map_or(Ok(values), Err)
}

const EVERYTHING: &[u8] = b"+OK\r\n-ERR no\r\n:-12\r\n_\r\n$-1\r\n*-1\r\n#t\r\n,1.5\r\n(123\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n\
    =7\r\ntxt:abc\r\n!3\r\nERR\r\n*2\r\n*0\r\n*1\r\n:1\r\n~1\r\n$1\r\nx\r\n%1\r\n+a\r\n:1\r\n\
    |1\r\n+ttl\r\n:3\r\n*2\r\n|1\r\n+x\r\n*1\r\n:9\r\n:1\r\n:2\r\n|0\r\n+z\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n";

const SHOWN: &[&str] = &[
    "'OK'",
    "!ERR no",
    "-12",
    "null",
    "null",
    "null",
    "true",
    "1.5",
    "123",
    "'a\r\nbc'",
    "''",
    "'abc'",
    "!ERR",
    "[[] [1]]",
    "['x']",
    "{'a' 1}",
    "[1 2]",
    "'z'",
    "<'message' 'c' 'p'>",
];

#[test]
fn every_type_is_read_in_whole_and_in_single_bytes_and_in_two_pieces() {
    assert_eq!(one(EVERYTHING).unwrap(), SHOWN);
    let single: Vec<&[u8]> = EVERYTHING.chunks(1).collect();
    assert_eq!(
        read(&single, Limits::default()),
        (one(EVERYTHING).unwrap(), None)
    );
    for cut in 0..EVERYTHING.len() {
        let pieces = [&EVERYTHING[..cut], &EVERYTHING[cut..]];
        assert_eq!(read(&pieces, Limits::default()).0, SHOWN, "{cut}");
    }
}

#[test]
fn malformed_bytes_are_refused() {
    for (bytes, error) in [
        (&b"HTTP/1.1 400\r\n"[..], RespError::Type(b'H')),
        (b"H", RespError::Type(b'H')),
        (b"\x16\x03", RespError::Type(0x16)),
        (b":x\r\n", RespError::Malformed),
        (b":9223372036854775808\r\n", RespError::Malformed),
        (b"+a\n", RespError::Malformed),
        (b"\r\n", RespError::Type(b'\r')),
        (b"$-2\r\n", RespError::Malformed),
        (b"$1\r\nab\r\n", RespError::Malformed),
        (b"#x\r\n", RespError::Malformed),
        (b"_x\r\n", RespError::Malformed),
        (b"=2\r\ntx\r\n", RespError::Malformed),
        (b"$?\r\n", RespError::Streamed),
        (b"*?\r\n", RespError::Streamed),
        (b"*99999999999\r\n", RespError::Large),
        (b"%18446744073709551615\r\n", RespError::Large),
        (b"$99999999999\r\n", RespError::Large),
    ] {
        let shown = String::from_utf8_lossy(bytes);
        let (values, found) = read(&[bytes], Limits::default());
        assert!(values.is_empty(), "{shown:?}");
        assert_eq!(found, Some(error), "{shown:?}");
    }
}

#[test]
fn levels_strings_values_and_lines_have_limits() {
    let deep = |levels| [b"*1\r\n".repeat(levels), b":1\r\n".to_vec()].concat();
    assert!(one(&deep(DEPTH_MAX)).is_ok());
    assert_eq!(one(&deep(DEPTH_MAX + 1)), Err(RespError::Deep));
    let limits = Limits {
        string_bytes_max: 4,
        value_bytes_max: 30,
    };
    let error = |bytes: &[u8]| read(&[bytes], limits).1;
    assert_eq!(error(b"$4\r\nabcd\r\n"), None);
    assert_eq!(error(b"$5\r\n"), Some(RespError::Large));
    assert_eq!(
        error(b"*3\r\n$4\r\nabcd\r\n$4\r\nabcd\r\n$4\r\n"),
        Some(RespError::Large)
    );
    assert_eq!(
        error(b"*9\r\n:1000\r\n:1000\r\n:1000\r\n:1000\r\n:1000\r\n"),
        Some(RespError::Large)
    );
    let endless = [b"+".to_vec(), vec![b'x'; LINE_BYTES_MAX + 1]].concat();
    assert_eq!(error(&endless), Some(RespError::Large));
}

#[test]
fn commands_are_arrays_of_strings() {
    let mut out = Vec::new();
    command(&mut out, &[b"SET", b"k", b"a\r\nb"]);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    assert_eq!(one(&out).unwrap(), ["['SET' 'k' 'a\r\nb']"]);
}

#[test]
fn reading_stops_where_it_is_told_to() {
    let mut frames = Frames::new(Limits::default());
    let mut count = 0;
    let result = frames.read(b":1\r\n:2\r\n:3\r\n", |_| {
        count += 1;
        if count == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!((result, count), (Ok(()), 2));
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        "[a-z ]{0,9}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
            let mut out = Vec::new();
            reply::text(&mut out, &bytes);
            out
        }),
        Just(b"_\r\n".to_vec()),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        (prop::collection::vec(inner, 0..5), 0..3_u8).prop_map(|(items, kind)| {
            let head = match kind {
                0 => format!("*{}\r\n", items.len()),
                1 => format!(">{}\r\n", items.len()),
                _ => format!("%{}\r\n", items.len() / 2),
            };
            let kept = if kind == 2 {
                items.len() / 2 * 2
            } else {
                items.len()
            };
            [head.into_bytes(), items[..kept].concat()].concat()
        })
    })
}

proptest! {
    #[test]
    fn values_are_the_same_however_they_are_cut(
        values in prop::collection::vec(value(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let bytes = values.concat();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let whole = read(&[&bytes], Limits::default());
        prop_assert_eq!(whole.0.len(), values.len());
        prop_assert_eq!(&read(&pieces, Limits::default()), &whole);
        for (value, shown) in values.iter().zip(&whole.0) {
            prop_assert_eq!(&read(&[value], Limits::default()).0, std::slice::from_ref(shown));
        }
    }

    #[test]
    fn garbage_never_panics_and_reads_the_same_however_it_is_cut(bytes in "[-+:_#,($=!*~>%|0-9a\r\n]{0,60}") {
        let bytes = bytes.as_bytes();
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&[bytes], Limits::default()), read(&single, Limits::default()));
    }
}
