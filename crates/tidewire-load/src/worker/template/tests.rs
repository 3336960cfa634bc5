use super::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// The text as one user writes it, with these captured values and one row of a feed.
fn rendered(template: &Template, captured: &[Vec<u8>], feed: Feed) -> String {
    rendered_at(1_000_000, template, captured, feed)
}

fn rendered_at(unix_us: u64, template: &Template, captured: &[Vec<u8>], feed: Feed) -> String {
    let mut random = SmallRng::seed_from_u64(1);
    let mut values = Values {
        sequence: 17,
        user: 3,
        unix_us,
        random: &mut random,
        captured,
        feeds: &[feed],
        rows: &[0],
    };
    let mut out = Vec::new();
    template.write(&mut values, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn written(text: &str, escape: Escape) -> String {
    let names = Names {
        captured: vec!["token".into()],
        columns: vec![vec!["name".into(), "city".into()]],
        ..Names::default()
    };
    let mut template = Template::default();
    template.push(text.as_bytes(), &names, escape).unwrap();
    let feed = Feed {
        columns: names.columns[0].clone(),
        rows: vec![vec![b"Ada".to_vec(), b"New York\r\n".to_vec()]],
        ..Feed::default()
    };
    rendered(&template, &[b"abc".to_vec()], feed)
}

#[test]
fn values_stand_in_their_places() {
    let text =
        r#"{"id":{{seq}},"user":{{ user }},"at":{{now_ms}},"name":"{{name}}","token":"{{token}}"}"#;
    assert_eq!(
        written(text, Escape::None),
        r#"{"id":17,"user":3,"at":1000,"name":"Ada","token":"abc"}"#
    );
    assert_eq!(written("no value } {x}", Escape::None), "no value } {x}");
}

#[test]
fn a_time_is_the_nearest_millisecond_so_that_an_age_has_no_bias() {
    let mut template = Template::default();
    let text = b"{{now_ms}} {{now_us}}";
    template
        .push(text, &Names::default(), Escape::None)
        .unwrap();
    for (unix_us, expected) in [
        (1_000_499, "1000 1000499"),
        (1_000_500, "1001 1000500"),
        (1_000_999, "1001 1000999"),
    ] {
        let feed = Feed::default();
        assert_eq!(rendered_at(unix_us, &template, &[], feed), expected);
    }
}

#[test]
fn random_values_are_within_their_bounds_and_of_their_form() {
    let number: u64 = written("{{rand:5:7}}", Escape::None).parse().unwrap();
    assert!((5..=7).contains(&number));
    let uuid = written("{{uuid}}", Escape::None);
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert_eq!(&uuid[14..15], "4");
    assert!("89ab".contains(&uuid[19..20]), "{uuid}");
}

#[test]
fn a_value_is_encoded_for_its_place_in_a_target() {
    let target = |text: &str, value: &str| {
        with(value, |template, names| {
            template.push_target(text.as_bytes(), names)
        })
    };
    for (text, value, expected) in [
        ("/s?q={{v}}", "a&b=c", "/s?q=a%26b%3Dc"),
        ("/s?q={{v}}", "a+b 100%/#?", "/s?q=a%2Bb%20100%25%2F%23%3F"),
        ("/s?q={{v}}&r={{v}}", "é", "/s?q=%C3%A9&r=%C3%A9"),
        ("/a/{{v}}/b", "x?y=1#z", "/a/x%3Fy=1%23z/b"),
        ("/a/{{v}}", "dir/file 50%.txt", "/a/dir/file%2050%25.txt"),
        ("/a/{{v}}?x=1", "b&c", "/a/b&c?x=1"),
        // A captured Location is a target of its own, and what follows it goes on with it.
        (
            "{{v}}",
            "/next?page=2&sort=a%20b",
            "/next?page=2&sort=a%20b",
        ),
        ("{{v}}&q={{v}}", "/n?p=2", "/n?p=2&q=%2Fn%3Fp%3D2"),
        ("{{v}}", "/a b\r\nX: y", "/a%20b%0D%0AX:%20y"),
    ] {
        assert_eq!(target(text, value), expected, "{text} with {value}");
    }
}

#[test]
fn two_braces_can_be_written_in_every_place() {
    assert_eq!(
        written("Dear {{'{{'}}user}}, {{seq}}", Escape::None),
        "Dear {{user}}, 17"
    );
    assert_eq!(written("{{ \"{{\" }}", Escape::Header), "{{");
    let json = |text: &str| {
        with("\"", |template, names| {
            template.push_json(text.as_bytes(), names)
        })
    };
    assert_eq!(json(r#"{"a":"{{'{{'}}x}} {{v}}"}"#), r#"{"a":"{{x}} \""}"#);
    let form = |text: &str| {
        with("&", |template, names| {
            template.push_escaped(text.as_bytes(), names, Escape::Form)
        })
    };
    assert_eq!(form("{{'{{'}}a}}{{v}}"), "%7B%7Ba%7D%7D%26");
    let open = Template::default().push(b"{{", &Names::default(), Escape::None);
    assert!(open.unwrap_err().to_string().ends_with("write `{{'{{'}}`"));
}

#[test]
fn literal_texts_have_no_values_and_an_index_is_a_number() {
    let pushed = |syntax: Syntax, text: &str| {
        let names = Names {
            syntax,
            ..Names::default()
        };
        let mut template = Template::default();
        template.push_json(text.as_bytes(), &names).unwrap();
        rendered(&template, &[], Feed::default())
    };
    let text = "Dear {{user}} {{ [<id>] [<id>]";
    assert_eq!(pushed(Syntax::Literal, text), text);
    assert_eq!(
        pushed(Syntax::Index("[<id>]".into()), text),
        "Dear {{user}} {{ 17 17"
    );
    assert_eq!(pushed(Syntax::Index(String::new()), text), text);
}

#[test]
fn a_value_cannot_break_out_of_its_place() {
    assert_eq!(written("{{city}}", Escape::Header), "New York  ");
}

/// The text as it is written with this value in the column `v`.
fn with(value: &str, push: impl Fn(&mut Template, &Names) -> Result<(), TemplateError>) -> String {
    let names = Names {
        captured: Vec::new(),
        columns: vec![vec!["v".into()]],
        ..Names::default()
    };
    let mut template = Template::default();
    push(&mut template, &names).unwrap();
    let feed = Feed {
        columns: names.columns[0].clone(),
        rows: vec![vec![value.as_bytes().to_vec()]],
        ..Feed::default()
    };
    rendered(&template, &[], feed)
}

#[test]
fn a_value_within_the_quotes_of_json_stays_a_string() {
    let json = |text: &str, value: &str| {
        with(value, |template, names| {
            template.push_json(text.as_bytes(), names)
        })
    };
    for value in [
        "plain",
        "a \"b\" \\ c",
        "line\nend\t\u{1}",
        "Zoë\u{7f}",
        "\\",
    ] {
        let text = json(r#"{"a \" {{v}}":1,"b":"x{{v}}","c":["{{v}}"]}"#, value);
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["c"][0], value, "{text}");
        assert_eq!(parsed["b"], format!("x{value}"), "{text}");
        assert_eq!(parsed[format!("a \" {value}")], 1, "{text}");
    }
    // Outside of quotes it is JSON itself.
    assert_eq!(json(r#"{"a":{{v}}}"#, r#"{"b":1}"#), r#"{"a":{"b":1}}"#);
    assert_eq!(json(r#"["\\",{{v}}]"#, r#""q""#), r#"["\\","q"]"#);
}

#[test]
fn a_value_in_a_form_stays_in_its_field() {
    let form = with("a&b=c d%é", |template, names| {
        template.push_escaped(b"x y{{v}}&", names, Escape::Form)
    });
    assert_eq!(form, "x+ya%26b%3Dc+d%25%C3%A9%26");
}

#[test]
fn a_name_with_two_meanings_is_refused() {
    let names = Names {
        captured: vec!["token".into(), "uuid".into()],
        columns: vec![
            vec!["user".into(), "id".into()],
            vec!["id".into(), "token".into(), "city".into()],
        ],
        ..Names::default()
    };
    let error = |name: &str| {
        let text = format!("{{{{{name}}}}}");
        let mut template = Template::default();
        let pushed = template.push(text.as_bytes(), &names, Escape::None);
        pushed.unwrap_err().to_string()
    };
    for name in ["user", "uuid", "id", "token"] {
        let error = error(name);
        assert!(
            error.contains(&format!("`{{{{{name}}}}}` is a ")),
            "{error}"
        );
        assert!(error.contains("rename the column"), "{error}");
        assert!(
            error.contains("seq, user, uuid, now_ms, now_us, rand:"),
            "{error}"
        );
    }
    let mut template = Template::default();
    assert!(template.push(b"{{city}}", &names, Escape::None).is_ok());
}

#[test]
fn a_wrong_template_says_what_is_possible() {
    let error = |text: &str| {
        let mut template = Template::default();
        let error = template.push(text.as_bytes(), &Names::default(), Escape::None);
        error.unwrap_err().to_string()
    };
    assert!(error("{{nope}}").contains("`{{nope}}` stands for nothing"));
    assert!(error("a {{seq").contains("has no `}}`"));
    assert!(error("{{rand:9:1}}").contains("{{rand:1:100}}"));
}

#[test]
fn a_fixed_template_is_one_piece() {
    let mut template = Template::fixed(b"ab");
    template.push_fixed(b"cd");
    assert_eq!(template.as_fixed(), Some(&b"abcd"[..]));
    assert_eq!(template.pieces.len(), 1);
}

#[test]
fn a_variable_of_the_environment_is_constant_and_escaped_for_its_place() {
    // Cargo sets it for tests.
    let name = env!("CARGO_PKG_NAME");
    let mut template = Template::default();
    let text = br#"{"a":"{{env:CARGO_PKG_NAME}}"}"#;
    template.push_json(text, &Names::default()).unwrap();
    let expected = format!(r#"{{"a":"{name}"}}"#);
    assert_eq!(template.as_fixed(), Some(expected.as_bytes()));
    let mut target = Template::default();
    target
        .push_target(b"/?q={{ env: CARGO_PKG_DESCRIPTION }}", &Names::default())
        .unwrap();
    let target = String::from_utf8(target.as_fixed().unwrap().to_vec()).unwrap();
    assert!(target.contains("%20") && !target.contains(' '), "{target}");
    for missing in ["{{env:TIDEWIRE_NO_SUCH_VARIABLE}}", "{{env:}}"] {
        let mut template = Template::default();
        let error = template.push(missing.as_bytes(), &Names::default(), Escape::None);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the environment has no variable"), "{error}");
    }
}

/// Names of a message with a captured number and values of a profile.
fn names_of_a_profile() -> Names {
    let known = |name: &str, text: &str| {
        let text = Template::of(text.as_bytes(), &Names::default(), Escape::None);
        (name.to_owned(), text.unwrap())
    };
    Names {
        captured: vec!["id".into()],
        known: vec![
            known("topic", "a/b"),
            known("who", "u{{user}}"),
            known("number", "300"),
            known("row", "{{user}}"),
            known("none", ""),
        ],
        ..Names::default()
    }
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let template = Template::message(text.as_bytes(), &names_of_a_profile());
    written_bytes(&template.map_err(|error| error.to_string())?, b"258")
}

fn written_bytes(template: &Template, captured: &[u8]) -> Result<Vec<u8>, String> {
    let mut random = SmallRng::seed_from_u64(1);
    let captured = [captured.to_vec()];
    let mut values = Values {
        user: 3,
        ..first_values(&mut random, &captured, &[])
    };
    let mut out = Vec::new();
    let written = template.write(&mut values, &mut out);
    written
        .map(|()| out)
        .map_err(|error| error.name().to_owned())
}

#[test]
fn parts_of_a_message_make_bytes() {
    for (text, expected) in [
        ("{{hex:10 04 ff}}", &[0x10, 4, 0xff][..]),
        ("a{{ hex: 0AfF }}b", &[b'a', 0x0a, 0xff, b'b']),
        ("{{size:u8}}", &[0]),
        ("{{size:u8}}abc", &[3, b'a', b'b', b'c']),
        ("{{size:u16}}ab{{end}}c", &[0, 2, b'a', b'b', b'c']),
        ("{{size:u16le}}ab", &[2, 0, b'a', b'b']),
        ("{{size:u32}}{{end}}", &[0, 0, 0, 0]),
        ("{{size:u32le}}a", &[1, 0, 0, 0, b'a']),
        ("{{size:u8}}{{size:u8}}a{{end}}{{hex:00}}", &[3, 1, b'a', 0]),
        ("{{size:u8}}{{size:u8}}{{seq}}", &[2, 1, b'7']),
        ("{{size:u8}}{{seq}}{{end}}{{user}}", &[1, b'7', b'3']),
        ("{{u8:seq}}{{u16:seq}}{{u32:user}}", &[7, 0, 7, 0, 0, 0, 3]),
        ("{{u16le:seq}}{{varint:id}}", &[7, 0, 0x82, 2]),
        ("{{u16:id}}{{u8:id}}", &[1, 2, 3]),
        ("{{u8:rand:5:5}}", &[5]),
        ("{{u16:number}}{{varint:number}}", &[1, 44, 0xac, 2]),
        ("{{u8:row}}", &[3]),
        ("{{size:u8}}{{topic}}{{end}}{{who}}", b"\x03a/bu3"),
        ("{{with:topic}}+{{topic}}{{end}}.", b"+a/b."),
        ("{{with:none}}-{{end}}{{without:none}}+{{end}}.", b"+."),
        ("{{without:topic}}{{with:none}}-{{end}}-{{end}}.", b"."),
        ("{{with:topic}}a", b"a"),
        ("{{size:u8}}{{with:topic}}ab{{end}}c{{end}}d", b"\x03abcd"),
    ] {
        assert_eq!(bytes(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn constant_parts_are_one_piece() {
    let text = b"{{hex:82}}{{size:varint}}{{size:u16}}{{topic}}{{end}}{{u16:number}}{{with:none}}{{seq}}{{end}}";
    let template = Template::message(text, &names_of_a_profile()).unwrap();
    assert_eq!(
        template.as_fixed(),
        Some(&b"\x82\x07\x00\x03a/b\x01\x2c"[..])
    );
}

#[test]
fn a_wrong_part_says_what_to_write() {
    let nested = "{{size:u8}}".repeat(NESTED_MAX + 1);
    let long = format!("{{{{size:u8}}}}{}", "a".repeat(256));
    for (text, expected) in [
        ("{{hex:}}", "two hexadecimal digits"),
        ("{{hex:1}}", "two hexadecimal digits"),
        ("{{hex:1g}}", "two hexadecimal digits"),
        ("{{size:u24}}", "use varint, u8"),
        ("{{size:}}", "use varint, u8"),
        ("{{u24:seq}}", "use varint, u8"),
        ("{{i16:seq}}", "use varint, u8"),
        ("{{u16:}}", "needs a number"),
        ("{{u16:uuid}}", "needs a number"),
        ("{{u16:topic}}", "needs a number"),
        ("{{u16:who}}", "needs a number"),
        ("{{u16:nobody}}", "`{{nobody}}` stands for nothing"),
        ("{{u16:rand:9:1}}", "{{rand:1:100}}"),
        (
            "{{u8:number}}",
            "300 does not fit into u8, whose largest number is 255",
        ),
        (&*long, "256 does not fit into u8"),
        ("a{{end}}", "ends nothing"),
        ("{{size:u8}}{{end}}{{end}}", "ends nothing"),
        ("{{with:id}}", "name of a value of the profile"),
        (&*nested, "within each other"),
    ] {
        let error = bytes(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    let names = names_of_a_profile();
    let message = |text: &str| Template::message(text.as_bytes(), &names).unwrap();
    let sized = message("{{size:u8}}{{id}}");
    assert_eq!(written_bytes(&sized, &[b'a'; 255]).unwrap().len(), 256);
    let error = written_bytes(&sized, &[b'a'; 256]).unwrap_err();
    assert_eq!(error, "message-exceeds-its-size");
    let number = message("{{size:u8}}{{u16:id}}");
    for captured in [&b""[..], b"a", b"-1", b"\xff"] {
        assert_eq!(
            written_bytes(&number, captured).unwrap_err(),
            "value-is-no-number"
        );
    }
    for (text, may) in [
        ("{{size:varint}}{{id}}{{u16:seq}}", false),
        ("{{size:u32}}{{seq}}", false),
        ("{{size:u16}}{{seq}}", true),
        ("{{size:u32}}{{u16:id}}", true),
        ("{{size:u16}}{{topic}}", false),
    ] {
        assert_eq!(message(text).may_be_unwritable(), may, "{text}");
    }
}

#[test]
fn bytes_have_no_place_in_texts() {
    let names = names_of_a_profile();
    for text in [
        "{{hex:41}}",
        "{{size:u8}}",
        "{{u8:seq}}",
        "{{varint:number}}",
    ] {
        let mut template = Template::default();
        let pushed = [
            template.push_json(text.as_bytes(), &names),
            template.push_target(text.as_bytes(), &names),
            template.push(text.as_bytes(), &names, Escape::Header),
            template.push_escaped(text.as_bytes(), &names, Escape::Form),
        ];
        for pushed in pushed {
            let error = pushed.unwrap_err().to_string();
            assert!(error.contains("makes bytes"), "{text}: {error}");
        }
    }
    // Values are escaped, and conditions are for every text.
    let mut json = Template::default();
    let quoted = Template::of(b"\"{{user}}\"", &Names::default(), Escape::None);
    let names = Names {
        known: vec![("v".into(), quoted.unwrap())],
        ..Names::default()
    };
    json.push_json(br#"{"a":"{{with:v}}{{v}}{{end}}"}"#, &names)
        .unwrap();
    assert_eq!(written_bytes(&json, b"").unwrap(), br#"{"a":"\"3\""}"#);
}

#[test]
fn an_end_outside_of_a_section_may_be_a_column() {
    let names = Names {
        captured: vec!["end".into()],
        ..Names::default()
    };
    let message = Template::message(b"{{size:u8}}a{{end}}{{end}}", &names).unwrap();
    assert_eq!(written_bytes(&message, b"b").unwrap(), b"\x01ab");
}

#[test]
fn a_hole_is_filled_within_sizes() {
    let mut names = names_of_a_profile();
    names.known.push(("message".into(), Template::hole()));
    let whole = b"{{size:u8}}{{topic}}{{size:u8}}{{message}}{{end}}{{end}}.{{message}}";
    let whole = Template::message(whole, &names).unwrap();
    assert!(whole.has_hole());
    let filled = |text: &str| {
        let content = Template::message(text.as_bytes(), &names_of_a_profile()).unwrap();
        whole.filled(&content)
    };
    let constant = filled("x{{hex:00}}");
    assert_eq!(constant.as_fixed(), Some(&b"\x06a/b\x02x\x00.x\x00"[..]));
    assert!(!constant.has_hole() && constant.check().is_ok());
    assert_eq!(
        written_bytes(&filled("{{u16:seq}}"), b"").unwrap(),
        b"\x06a/b\x02\x00\x07.\x00\x07"
    );
    let long = filled(&"a".repeat(256));
    let error = long.check().unwrap_err().to_string();
    assert!(error.contains("256 does not fit into u8"), "{error}");
    assert_eq!(
        written_bytes(&long, b"").unwrap_err(),
        "message-exceeds-its-size"
    );
}

#[test]
fn text_is_known_as_such() {
    let is_text = |text: &str| {
        let message = Template::message(text.as_bytes(), &names_of_a_profile());
        message.unwrap().is_text()
    };
    for (text, expected) in [
        ("é {{seq}}", true),
        ("{{hex:e2 82 ac}}", true),
        ("{{hex:e2 82}}", false),
        ("{{hex:e2 82}}{{seq}}{{hex:ac}}", false),
        ("{{u8:seq}}", false),
        ("{{size:u8}}{{seq}}", false),
        ("{{size:u8}}{{topic}}", true),
    ] {
        assert_eq!(is_text(text), expected, "{text}");
    }
}
