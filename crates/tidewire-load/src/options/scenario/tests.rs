//! Files, and the scripts or the errors that they are.

use std::path::PathBuf;

use super::*;
use crate::worker::kinds::Repeat;
use crate::worker::script::Encoded;

fn frame() -> RequestFrame<'static> {
    RequestFrame {
        host: "h",
        path: "/",
        prefix: "",
        keeps_alive: true,
        headers: &[],
        accepts_encoded: false,
    }
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn a_journey_in_toml_captures_and_uses_values() {
    let (folder, path) = file(
        "shop.toml",
        r#"
        data = { people = "people.csv" }
        [[request]]
        name = "log in"
        path = "/login"
        json = { user = "{{name}}" }
        capture = { token = "json:/token" }
        think = "10ms..20ms"
        [[request]]
        path = "/me"
        headers = { Authorization = "Bearer {{token}}" }
        expect_status = 200
        "#,
    );
    std::fs::write(
        folder.path().join("people.csv"),
        "name,age\nAda,36\n\"B, b\",1\n",
    )
    .unwrap();
    let script = Scenario::read(&path)
        .unwrap()
        .script(&[StepFrame::Http(frame())], Names::default())
        .unwrap();
    assert!(script.is_journey());
    assert_eq!(script.variables, ["token"]);
    assert_eq!(script.feeds[0].rows[1][0], b"B, b");
    assert_eq!(script.steps[0].name, "log in");
    assert!(matches!(script.steps[1].request, Encoded::Patched { .. }));
    assert_eq!(script.steps[1].checks.statuses, [200..=200]);
}

#[test]
fn json_lines_have_a_request_each() {
    let (_folder, path) = file(
        "mix.jsonl",
        "{\"path\":\"/a\",\"weight\":3}\n\n{\"path\":\"/b\",\"weight\":1}\n",
    );
    let script = Scenario::read(&path)
        .unwrap()
        .script(&[StepFrame::Http(frame())], Names::default())
        .unwrap();
    assert_eq!(script.kinds[0].order, StepOrder::Weighted(vec![3, 4]));
}

/// A file, its text, and what the error must say.
const WRONG: &[(&str, &str, &str)] = &[
    ("a.toml", "", "no request"),
    ("a.toml", "[[request]]\npth = \"/\"", "unknown field `pth`"),
    (
        "a.toml",
        "[[request]]\npath = \"/{{x}}\"",
        "request 1 : `{{x}}` stands for nothing",
    ),
    (
        "a.toml",
        "[[request]]\nbody = \"a\"\njson = 1",
        "several bodies",
    ),
    (
        "a.toml",
        "order = \"journey\"\n[[request]]\nweight = 1",
        "no weights",
    ),
    (
        "a.toml",
        "[[request]]\ncapture = { a = \"x\" }",
        "header:Location, cookie:session, json:/a/b",
    ),
    (
        "a.toml",
        "[[request]]\nthink = \"3s..1s\"",
        "less than the first",
    ),
    (
        "a.toml",
        "data = { d = \"none.csv\" }\n[[request]]",
        "none.csv",
    ),
    (
        "a.toml",
        "[[request]]\nhost = \"b\"",
        "no host `b`: write [hosts] with b =",
    ),
    (
        "a.toml",
        "hosts = { a = \"http://a\" }\n[[request]]\nhost = \"b\"",
        "no host `b`, only a",
    ),
    ("a.jsonl", "{\"path\":\"/\"}\nnope", "line 2"),
    ("a.toml", "[[setup]]", "no request"),
    (
        "a.toml",
        "[[setup]]\nweight = 1\n[[request]]",
        "setup 1 : it has no weight",
    ),
    (
        "a.toml",
        "[[user]]\nname = \"a\"",
        "the user `a` has no request",
    ),
    (
        "a.toml",
        "[[request]]\n[[user]]\nname = \"a\"\n[[user.request]]",
        "belong to a [[user]]",
    ),
    (
        "a.toml",
        "[[user]]\nname = \"a\"\nweight = 0\n[[user.request]]",
        "weight 0",
    ),
    (
        "a.toml",
        "[[user]]\nname = \"a\"\n[[user.request]]\nname = \"b\"\npath = \"c\"",
        "user `a`: request 1 b: the path `c`",
    ),
    (
        "a.toml",
        "[[request]]\nwhen = \"{{a}}\"",
        "the condition `{{a}}`: `{{a}}` stands for nothing",
    ),
    (
        "a.toml",
        "[[request]]\nwhen = \"{{seq}} < 5\"",
        "`{{seq}}` belongs to a request",
    ),
    (
        "a.toml",
        "[[request]]\nrepeat = \"5..2\"",
        "not a number of times",
    ),
    (
        "a.toml",
        "[[request]]\nrepeat = 2\nwhile = \"{{user}}\"",
        "exclude each other",
    ),
    (
        "a.toml",
        "[[request]]\nrepeat = 2\nweight = 1",
        "requests of a journey",
    ),
    (
        "a.toml",
        "[[request]]\ncapture = { a = \"regex:(\" }",
        "the capture `a`: `(` is not a regular expression",
    ),
    (
        "a.toml",
        "[[request]]\nmultipart = [{ name = \"a\" }]",
        "the part `a` needs either a value or a file",
    ),
    (
        "a.toml",
        "[[request]]\nbasic_auth = \"name\"",
        "write a name, a colon and a password",
    ),
    (
        "a.toml",
        "[[request]]\npath = \"/{{env:TIDEWIRE_NO_SUCH}}\"",
        "the environment has no variable TIDEWIRE_NO_SUCH",
    ),
];

#[test]
fn a_wrong_scenario_says_where_and_what() {
    let error = |name: &str, text: &str| {
        let (_folder, path) = file(name, text);
        let scenario = Scenario::read(&path);
        let script = scenario
            .and_then(|scenario| scenario.script(&[StepFrame::Http(frame())], Names::default()));
        script.unwrap_err().to_string()
    };
    for &(name, text, expected) in WRONG {
        let error = error(name, text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn users_have_a_setup_conditions_repeats_and_a_teardown() {
    let (folder, path) = file(
        "shop.toml",
        r#"
        data = { people = { file = "people.csv", unique = true } }
        [[setup]]
        path = "/login"
        form = { token = "{{token}}" }
        capture = { token = { from = "form:csrf", default = "" }, id = 'regex:id=(\d+)', sid = "cookie:sid" }
        [[user]]
        name = "reader"
        weight = 9
        order = "weighted"
        [[user.request]]
        path = "/a"
        [[user.request]]
        path = "/b"
        [[user]]
        name = "buyer"
        [[user.setup]]
        path = "/cart"
        [[user.request]]
        path = "/{{token}}?a={{name}}"
        when = "{{token}} != a<b"
        while = "{{token}}"
        [[user.request]]
        path = "/pay"
        repeat = "2..5"
        [[teardown]]
        path = "/logout"
        "#,
    );
    std::fs::write(folder.path().join("people.csv"), "name\nAda\nBob\n").unwrap();
    let script = Scenario::read(&path)
        .unwrap()
        .script(&[StepFrame::Http(frame())], Names::default())
        .unwrap();
    let names: Vec<&str> = script.steps.iter().map(|step| &*step.name).collect();
    let expected = [
        "reader: POST /login",
        "reader: GET /a",
        "reader: GET /b",
        "reader: GET /logout",
        "buyer: POST /login",
        "buyer: GET /cart",
        "buyer: GET /{{token}}?a={{name}}",
        "buyer: GET /pay",
        "buyer: GET /logout",
    ];
    assert_eq!(names, expected);
    let [reader, buyer] = &script.kinds[..] else {
        panic!("{:?}", script.kinds);
    };
    assert_eq!((reader.weight, buyer.weight), (9, 1));
    assert_eq!((&reader.setup, &reader.teardown), (&(0..1), &(3..4)));
    assert_eq!((&buyer.setup, &buyer.steps), (&(4..6), &(6..8)));
    assert!(script.feeds[0].is_unique && script.feeds[0].name.ends_with("people.csv"));
    let when = script.steps[6].when.as_ref().unwrap();
    assert_eq!(when.right.as_ref().unwrap().1.as_fixed(), Some(&b"a<b"[..]));
    assert_eq!(script.steps[7].repeat, Some(Repeat::Times(2..=5)));
    assert!((script.share_of("reader: GET /a") - 0.45).abs() < 1e-9);
}
