use super::*;
use rand::SeedableRng;

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
    template.write(&mut values, &mut out);
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
