//! A request in the form of the user's options, translated into a step of a script.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidewire_http::request::{BodyLength, RequestHead};
use tidewire_http::response::Expected;

use super::OptionError;
use super::body::BodyOptions;
use super::credentials::{basic, template};
use crate::worker::script::{Capture, Checks, Encoded, Step};
use crate::worker::template::{Escape, Names, Syntax, Template};

/// A request and the checks of its response.
#[derive(Debug, Clone, Default)]
pub struct RequestOptions {
    /// Its name in a report; the method and the path by default.
    pub name: Option<String>,
    /// The method, as it is sent; `GET` by default, `POST` with a body.
    pub method: Option<String>,
    /// Path and query; those of the URL by default.
    pub path: Option<String>,
    /// Headers in their order.
    pub headers: Vec<(String, String)>,
    /// Cookies, sent in one header.
    pub cookies: Vec<(String, String)>,
    /// `name:password` of Basic authentication (RFC 7617).
    pub credentials: Option<String>,
    /// The body.
    pub body: Option<BodyOptions>,
    /// Statuses that count as a success; up to 399 by default.
    pub statuses: Option<Vec<RangeInclusive<u16>>>,
    /// A text that the body must contain.
    pub body_contains: Option<String>,
    /// The required length of the body.
    pub body_bytes: Option<u64>,
    /// The values to capture from the response.
    pub captures: Vec<Capture>,
    /// How long the user waits after the response.
    pub think: Option<RangeInclusive<Duration>>,
}

/// The properties that all requests of a load share.
#[derive(Debug, Clone)]
pub struct RequestFrame<'a> {
    /// The value of `Host`.
    pub host: &'a str,
    /// Path and query of requests that name none.
    pub path: &'a str,
    /// The prefix of the path for a proxy, such as `http://host:port`.
    pub prefix: &'a str,
    /// Whether the connection is reused.
    pub keeps_alive: bool,
    /// Headers that every request has, such as a proxy's credentials.
    pub headers: &'a [(String, String)],
    /// Whether the requests ask for compressed responses.
    pub accepts_encoded: bool,
}

impl RequestOptions {
    /// The step of a script.
    ///
    /// # Errors
    /// A part that is not valid in a request, or a wrong template.
    pub fn step(&self, frame: &RequestFrame<'_>, names: &Names) -> Result<Step, OptionError> {
        let body = self.body.as_ref().map(|body| body.http_template(names));
        let body = body.transpose()?;
        let method = self.method.clone().unwrap_or_else(|| {
            let method = if body.is_some() { "POST" } else { "GET" };
            method.to_owned()
        });
        let path = self.path.as_deref().unwrap_or(frame.path);
        if !path.starts_with('/') && path != "*" && !path.starts_with("{{") {
            return Err(OptionError::new(format_args!(
                "the path `{path}` does not begin with `/`"
            )));
        }
        let credentials = self.credentials(names)?;
        let mut headers = self.all_headers(frame);
        let is_it = |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
        let mut secret = None;
        if let Some(credentials) = credentials.filter(|_| !self.headers.iter().any(is_it)) {
            headers.retain(|header| !is_it(header));
            match credentials.as_fixed() {
                Some(fixed) => headers.push(("Authorization".to_owned(), basic(fixed))),
                None => secret = Some(credentials),
            }
        }
        let target = (frame.prefix, path);
        let request = encode(&method, target, frame.host, (&headers, secret), body, names)?;
        let mut checks = Checks {
            body_contains: self.body_contains.clone().map(String::into_bytes),
            body_bytes: self.body_bytes,
            ..Checks::default()
        };
        if let Some(statuses) = &self.statuses {
            checks.statuses.clone_from(statuses);
        }
        Ok(Step {
            name: self.name.clone().unwrap_or(format!("{method} {path}")),
            target: 0,
            expected: match method.as_str() {
                "HEAD" => Expected::Head,
                _ => Expected::Ordinary,
            },
            is_idempotent: IDEMPOTENT.contains(&method.as_str()),
            request,
            checks,
            captures: self.captures.clone(),
            think: self.think.clone(),
            when: None,
            repeat: None,
        })
    }

    /// The given headers and the default ones.
    fn all_headers(&self, frame: &RequestFrame<'_>) -> Vec<(String, String)> {
        let has = |headers: &[(String, String)], name: &str| {
            headers
                .iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(name))
        };
        let shared = frame.headers.iter();
        let shared = shared.filter(|(name, _)| !has(&self.headers, name));
        let mut headers: Vec<(String, String)> = shared.chain(&self.headers).cloned().collect();
        let mut add = |name: &str, value: String| {
            if !has(&headers, name) {
                headers.push((name.to_owned(), value));
            }
        };
        add("User-Agent", USER_AGENT.to_owned());
        add("Accept", "*/*".to_owned());
        if frame.accepts_encoded {
            add("Accept-Encoding", "gzip, deflate".to_owned());
        }
        if let Some(body) = &self.body {
            add("Content-Type", body.content_type());
        }
        if let Some(cookies) = self.cookie_header() {
            add("Cookie", cookies);
        }
        if !frame.keeps_alive {
            add("Connection", "close".to_owned());
        }
        headers
    }
}

impl RequestOptions {
    /// The value of `Cookie`, if there are cookies.
    fn cookie_header(&self) -> Option<String> {
        let cookies = self.cookies.iter();
        let cookies: Vec<String> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        (!cookies.is_empty()).then(|| cookies.join("; "))
    }

    /// Name and password, with their values.
    fn credentials(&self, names: &Names) -> Result<Option<Template>, OptionError> {
        let credentials = self.credentials.as_deref();
        credentials.map(|text| template(text, names)).transpose()
    }

    /// The headers and cookies of a WebSocket upgrade.
    ///
    /// # Errors
    /// The credentials are wrong.
    pub(super) fn upgrade_headers(&self) -> Result<Vec<(String, String)>, OptionError> {
        let cookies = self.cookie_header();
        let cookies = cookies.map(|value| ("Cookie".to_owned(), value));
        let shared = self.shared_headers()?;
        Ok(shared.into_iter().chain(cookies).collect())
    }

    /// The headers of all requests of a scenario, with the credentials.
    ///
    /// # Errors
    /// The credentials are wrong.
    pub(super) fn shared_headers(&self) -> Result<Vec<(String, String)>, OptionError> {
        let credentials = match self.credentials(&Names::default())? {
            None => None,
            Some(template) => {
                let fixed = template.as_fixed().ok_or_else(|| {
                    OptionError::new(
                        "these credentials are sent as they are: values such as {{user}} are for `basic_auth` of a request",
                    )
                })?;
                Some(("Authorization".to_owned(), basic(fixed)))
            }
        };
        Ok(self.headers.iter().cloned().chain(credentials).collect())
    }
}

/// Encodes the constant parts of a request. The secret is a name and a password with values.
fn encode(
    method: &str,
    target: (&str, &str),
    host: &str,
    (headers, secret): (&[(String, String)], Option<Template>),
    body: Option<Template>,
    names: &Names,
) -> Result<Encoded, OptionError> {
    let shown: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut target_template = Template::default();
    push_target(&mut target_template, target, names)?;
    // The constant parts of the target are checked here, with a digit for each value: the escapes
    // keep the values valid in their places. The braces of a value are valid in a header.
    let checked_target = String::from_utf8_lossy(&target_template.with_digits()).into_owned();
    let content = body.as_ref().map(Template::as_fixed);
    let length = match content {
        // The length of a body with values follows when they are known.
        Some(fixed) => BodyLength::Bytes(fixed.map_or(0, <[u8]>::len) as u64),
        None => BodyLength::None,
    };
    let mut bytes = Vec::new();
    let head = RequestHead {
        method,
        target: &checked_target,
        host,
        headers: &shown,
        body: length,
    };
    head.write(&mut bytes).map_err(OptionError::new)?;
    let has_braces = |(_, value): &(&str, &str)| value.contains("{{");
    let header_has_values = names.syntax == Syntax::Braces && shown.iter().any(has_braces);
    if target_template.is_fixed()
        && !header_has_values
        && secret.is_none()
        && let Some(fixed) = content.unwrap_or(Some(&[]))
    {
        let head_bytes = bytes.len();
        bytes.extend_from_slice(fixed);
        return Ok(Encoded::Fixed { bytes, head_bytes });
    }
    let says_length = body.is_some() || ["POST", "PUT", "PATCH"].contains(&method);
    let mut head = head_template(method, target, host, &shown, names)?;
    if let Some(secret) = secret {
        head.push_fixed(b"Authorization: Basic ");
        head.push_base64(secret);
        head.push_fixed(b"\r\n");
    }
    Ok(Encoded::Patched {
        head,
        body: body.unwrap_or_default(),
        says_length,
    })
}

/// The head without its last line and without the length of the body.
fn head_template(
    method: &str,
    target: (&str, &str),
    host: &str,
    headers: &[(&str, &str)],
    names: &Names,
) -> Result<Template, OptionError> {
    let mut head = Template::fixed(method.as_bytes());
    head.push_fixed(b" ");
    push_target(&mut head, target, names)?;
    // An index is replaced in the target and in the body alone.
    let names = &match names.syntax {
        Syntax::Index(_) => Names {
            syntax: Syntax::Literal,
            ..Names::default()
        },
        _ => names.clone(),
    };
    head.push_fixed(b" HTTP/1.1\r\nHost: ");
    let given = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("host"));
    match given {
        Some((_, value)) => head
            .push(value.as_bytes(), names, Escape::Header)
            .map_err(OptionError::new)?,
        None => head.push_fixed(host.as_bytes()),
    }
    for (name, value) in headers {
        if name.eq_ignore_ascii_case("host") {
            continue;
        }
        head.push_fixed(b"\r\n");
        head.push_fixed(name.as_bytes());
        head.push_fixed(b": ");
        head.push(value.as_bytes(), names, Escape::Header)
            .map_err(OptionError::new)?;
    }
    head.push_fixed(b"\r\n");
    Ok(head)
}

/// Appends the prefix for a proxy, and the path with its values.
fn push_target(
    template: &mut Template,
    (prefix, path): (&str, &str),
    names: &Names,
) -> Result<(), OptionError> {
    template.push_fixed(prefix.as_bytes());
    template
        .push_target(path.as_bytes(), names)
        .map_err(OptionError::new)
}

/// A header as `name: value`.
///
/// # Errors
/// There is no colon, or no name.
pub fn header(text: &str) -> Result<(String, String), OptionError> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(OptionError::new(format_args!(
            "`{text}` is not a header: write a name, a colon and a value, such as 'Accept: text/html'"
        ))),
    }
}

/// A cookie or a field of a form as `name=value`.
///
/// # Errors
/// There is no equals sign, or no name.
pub fn pair(text: &str) -> Result<(String, String), OptionError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(OptionError::new(format_args!(
            "`{text}` has no name and value: write them with `=` between them"
        ))),
    }
}

/// Statuses such as `200`, `2xx,301` or `200-299`; `any` for all.
///
/// # Errors
/// A part is not a status.
pub fn statuses(text: &str) -> Result<Vec<RangeInclusive<u16>>, OptionError> {
    let wrong = |part: &str| {
        OptionError::new(format_args!(
            "`{part}` is not a status: write 200, 2xx, 200-299 or any, with commas between them"
        ))
    };
    let number = |part: &str| {
        let number: u16 = part.parse().ok()?;
        (100..1000).contains(&number).then_some(number)
    };
    text.split(',')
        .map(str::trim)
        .map(|part| {
            if part == "any" {
                return Ok(100..=999);
            }
            if let Some(class) = part.strip_suffix("xx") {
                let class: u16 = class.parse().map_err(|_| wrong(part))?;
                return match (1..=9).contains(&class) {
                    true => Ok(class * 100..=class * 100 + 99),
                    false => Err(wrong(part)),
                };
            }
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            match (number(from), number(to)) {
                (Some(from), Some(to)) if from <= to => Ok(from..=to),
                _ => Err(wrong(part)),
            }
        })
        .collect()
}

/// Methods of requests that may be sent twice (RFC 9110, section 9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/// The lab's `User-Agent`.
pub const USER_AGENT: &str = concat!("tidewire-load/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> RequestFrame<'static> {
        RequestFrame {
            host: "a.example:8080",
            path: "/p?q=1",
            prefix: "",
            keeps_alive: true,
            headers: &[],
            accepts_encoded: false,
        }
    }

    fn text(options: &RequestOptions) -> String {
        let step = options.step(&frame(), &Names::default()).unwrap();
        match step.request {
            Encoded::Fixed { bytes, .. } => String::from_utf8(bytes).unwrap(),
            other => panic!("it has values: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_whole() {
        let get = text(&RequestOptions::default());
        assert!(get.starts_with("GET /p?q=1 HTTP/1.1\r\nHost: a.example:8080\r\n"));
        assert!(get.ends_with("Accept: */*\r\n\r\n") && !get.contains("Content-Length"));
        let post = text(&RequestOptions {
            body: Some(BodyOptions::Form(vec![("a b".into(), "c&d".into())])),
            cookies: vec![("k".into(), "v".into()), ("l".into(), "w".into())],
            headers: vec![("user-agent".into(), "mine".into())],
            ..RequestOptions::default()
        });
        assert!(post.starts_with("POST "));
        assert!(post.contains("user-agent: mine") && !post.contains("tidewire"));
        assert!(post.contains("Content-Type: application/x-www-form-urlencoded\r\n"));
        assert!(post.contains("Cookie: k=v; l=w\r\n") && post.contains("Content-Length: 9\r\n"));
        assert!(post.ends_with("\r\n\r\na+b=c%26d"));
    }

    #[test]
    fn a_template_is_patched_and_its_length_is_left_open() {
        let options = RequestOptions {
            path: Some("/users/{{seq}}".into()),
            body: Some(BodyOptions::Json(r#"{"n":{{rand:1:9}}}"#.into())),
            ..RequestOptions::default()
        };
        let step = options.step(&frame(), &Names::default()).unwrap();
        assert!(matches!(
            step.request,
            Encoded::Patched {
                says_length: true,
                ..
            }
        ));
        assert_eq!(step.name, "POST /users/{{seq}}");
        assert!(!step.is_idempotent);
    }

    /// The request as the first user sends it.
    fn rendered(options: &RequestOptions) -> String {
        use crate::worker::script::Script;
        use crate::worker::template::{Feed, first_values};
        use rand::SeedableRng;
        let names = Names {
            captured: Vec::new(),
            columns: vec![vec!["name".into()]],
            ..Names::default()
        };
        let script = Script::of(options.step(&frame(), &names).unwrap());
        let feed = Feed {
            columns: names.columns[0].clone(),
            rows: vec![vec![br#"A "B" & C"#.to_vec()]],
            ..Feed::default()
        };
        let mut random = rand::rngs::SmallRng::seed_from_u64(1);
        let feeds = [feed];
        let mut values = first_values(&mut random, &[], &feeds);
        let mut out = Vec::new();
        let written = script.write(0, &mut values, &mut Vec::new(), &mut out);
        written.unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn credentials_are_encoded_with_their_values() {
        let with = |credentials: &str| {
            let text = rendered(&RequestOptions {
                credentials: Some(credentials.to_owned()),
                body: Some(BodyOptions::Json("{{seq}}".into())),
                ..RequestOptions::default()
            });
            let mut lines = text.lines().map(str::to_owned);
            lines
                .find(|line| line.starts_with("Authorization"))
                .unwrap()
        };
        // Examples of RFC 7617, section 2.
        let expected = "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(with("Aladdin:open sesame"), expected);
        let encoded = "QSAiQiIgJiBDOjc=";
        assert_eq!(
            with("{{name}}:{{seq}}"),
            format!("Authorization: Basic {encoded}")
        );
        let own = RequestOptions {
            credentials: Some("a:b".into()),
            headers: vec![("authorization".into(), "Bearer x".into())],
            ..RequestOptions::default()
        };
        assert!(!text(&own).contains("Basic"));
    }

    #[test]
    fn values_of_a_body_are_escaped_for_their_place() {
        let body = |body: BodyOptions| {
            let text = rendered(&RequestOptions {
                body: Some(body),
                ..RequestOptions::default()
            });
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let length = format!("Content-Length: {}", body.len());
            assert!(head.contains(&length), "{head}");
            body.to_owned()
        };
        let json = BodyOptions::Json(r#"{"n":"{{name}}","s":{{seq}}}"#.into());
        assert_eq!(body(json), r#"{"n":"A \"B\" & C","s":7}"#);
        let fields = [("a b", "{{name}}!"), ("n{{seq}}", "&")];
        let form = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expected = "a+b=A+%22B%22+%26+C%21&n7=%26";
        assert_eq!(body(BodyOptions::Form(form.to_vec())), expected);
        let text = BodyOptions::Bytes(b"{{name}}".to_vec());
        assert_eq!(body(text), r#"A "B" & C"#, "a text is sent as it is");
    }

    #[test]
    fn values_work_in_the_host_and_not_beside_a_wrong_target() {
        let host = RequestOptions {
            headers: vec![("Host".into(), "shard-{{seq}}.example".into())],
            ..RequestOptions::default()
        };
        assert!(rendered(&host).contains("\r\nHost: shard-7.example\r\n"));
        let path = |path: &str| {
            let options = RequestOptions {
                path: Some(path.into()),
                ..RequestOptions::default()
            };
            options.step(&frame(), &Names::default())
        };
        assert!(path("/a b/{{seq}}").is_err(), "a space ends the target");
        assert!(path("/a/{{ seq }}").is_ok());
    }

    #[test]
    fn headers_of_all_requests_yield_to_those_of_one() {
        let shared = [
            ("A".to_owned(), "all".to_owned()),
            ("B".to_owned(), "all".to_owned()),
        ];
        let frame = RequestFrame {
            headers: &shared,
            ..frame()
        };
        let one = RequestOptions {
            headers: vec![("b".into(), "one".into())],
            ..RequestOptions::default()
        };
        let step = one.step(&frame, &Names::default()).unwrap();
        let Encoded::Fixed { bytes, .. } = step.request else {
            panic!("it has no values");
        };
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.contains("A: all\r\n") && text.contains("b: one\r\n"),
            "{text}"
        );
        assert!(!text.contains("B: all"), "{text}");
    }

    #[test]
    fn what_would_break_a_request_is_refused() {
        let error = |options: RequestOptions| {
            options
                .step(&frame(), &Names::default())
                .unwrap_err()
                .to_string()
        };
        let header = |name: &str, value: &str| RequestOptions {
            headers: vec![(name.into(), value.into())],
            ..RequestOptions::default()
        };
        assert!(error(header("A", "b\r\nC: d")).contains("line end"));
        assert!(error(header("Content-Length", "5")).contains("follows from the body"));
        let path = RequestOptions {
            path: Some("x".into()),
            ..RequestOptions::default()
        };
        assert!(error(path).contains("does not begin with `/`"));
    }

    #[test]
    fn statuses_are_numbers_classes_and_ranges() {
        assert_eq!(
            statuses("200, 3xx,410-412").unwrap(),
            [200..=200, 300..=399, 410..=412]
        );
        assert_eq!(statuses("any").unwrap(), [100..=999]);
        for wrong in ["", "20", "0xx", "2x", "299-200", "abc"] {
            assert!(statuses(wrong).is_err(), "{wrong}");
        }
    }
}
