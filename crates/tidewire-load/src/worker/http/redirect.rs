//! Redirects: the target of a response, and the request that follows it (RFC 9110, section 15.4).

use crate::worker::request_line::{after_scheme, parts, split_query, split_target};
use crate::worker::service::order::Forwarding;
use crate::worker::service::user::WholeRequest;

/// The consequence of a redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Detour {
    /// This request, on the same server or on that with this number.
    Follow(Option<u16>, WholeRequest),
    /// Another origin, which must not be loaded.
    Elsewhere,
    /// A request that cannot be derived from the previous one.
    Impossible,
}

/// Whether the status is a redirect.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Whether a request may be sent again when its outcome is not known (RFC 9110, section 9.2.2).
pub(super) fn is_idempotent(request: &WholeRequest) -> bool {
    let method = request.bytes.split(|byte| *byte == b' ').next();
    let methods: [&[u8]; 6] = [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"];
    method.is_some_and(|method| methods.contains(&method))
}

/// The server of a request, and the others of the load.
#[derive(Clone, Copy)]
pub(super) struct Servers<'a> {
    pub(super) is_secure: bool,
    pub(super) find: &'a Find<'a>,
}

/// A server of the load over HTTP, by whether it speaks TLS, and by its host and port: its number, and what a proxy needs.
type Find<'a> = dyn Fn(bool, &[u8]) -> Option<(u16, &'a Forwarding)> + 'a;

/// The request that follows a redirect with this status from `request` to `location`, to the same server or to another
/// one of the load. Its headers are the same, but another server gets only those that are about the content or the client,
/// so that no secret goes there. Method and body change as in browsers: after 303 it is a GET without a body, unless it was a HEAD; after
/// 301 and 302 the same applies to a POST; all others keep both.
pub(super) fn follow(
    request: &[u8],
    head_bytes: usize,
    (status, location): (u16, &[u8]),
    servers: Servers<'_>,
) -> Detour {
    let (head, body) = request.split_at(head_bytes.min(request.len()));
    let Some((method, target, rest)) = parts(head) else {
        return Detour::Impossible;
    };
    let (prefix, path) = split_target(target);
    let place = resolve(location, path, host(rest), servers.is_secure);
    let (server, prefix, next_path) = match &place {
        None => return Detour::Elsewhere,
        Some(Place::Here(path)) => (None, prefix, path),
        Some(Place::There(is_secure, authority, path)) => {
            let Some((server, forwarding)) = (servers.find)(*is_secure, authority) else {
                return Detour::Elsewhere;
            };
            let prefix = forwarding.prefix.as_bytes();
            (Some((server, authority, forwarding)), prefix, path)
        }
    };
    let becomes_get = match status {
        303 => method != b"GET" && method != b"HEAD",
        301 | 302 => method == b"POST",
        _ => false,
    };
    let mut next = Vec::with_capacity(request.len() + next_path.len());
    next.extend_from_slice(if becomes_get { b"GET" } else { method });
    next.push(b' ');
    next.extend_from_slice(prefix);
    push_encoded(next_path, &mut next);
    for line in rest.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(b"");
        let is_one_of = |names: &[&str]| {
            let mut names = names.iter();
            names.any(|header| name.eq_ignore_ascii_case(header.as_bytes()))
        };
        let is_header = name.len() < line.len();
        match server {
            _ if becomes_get && is_one_of(&BODY_HEADERS) => {}
            Some((_, authority, forwarding)) if is_one_of(&["host"]) => {
                next.extend_from_slice(b"Host: ");
                next.extend_from_slice(authority);
                next.extend_from_slice(b"\r\n");
                next.extend_from_slice(&forwarding.headers);
            }
            Some(_) if is_header && !is_one_of(&BODY_HEADERS) && !is_one_of(&OF_THE_CLIENT) => {}
            _ => next.extend_from_slice(line),
        }
    }
    let head_bytes = next.len();
    if !becomes_get {
        next.extend_from_slice(body);
    }
    let request = WholeRequest {
        bytes: next,
        head_bytes,
    };
    Detour::Follow(server.map(|(number, ..)| number), request)
}

fn host(rest: &[u8]) -> &[u8] {
    let name = b"\r\nHost: ";
    let start = rest
        .windows(name.len())
        .position(|window| window.eq_ignore_ascii_case(name));
    let Some(start) = start.map(|at| at + name.len()) else {
        return b"";
    };
    let length = rest[start..].iter().position(|byte| *byte == b'\r');
    &rest[start..start + length.unwrap_or(0)]
}

/// A location: its path and query, on the same origin or on another one over HTTP: whether over TLS, host and port.
enum Place {
    Here(Vec<u8>),
    There(bool, Vec<u8>, Vec<u8>),
}

/// The place of a location; `None` if it is not of HTTP. A relative location is resolved against the target's folder (RFC
/// 3986, section 5.2).
fn resolve(location: &[u8], target: &[u8], host: &[u8], is_secure: bool) -> Option<Place> {
    let location = location.split(|byte| *byte == b'#').next().unwrap_or(b"");
    let absolute = match location.strip_prefix(b"//") {
        Some(rest) => Some((is_secure, rest)),
        None => after_scheme(location),
    };
    let mut elsewhere = None;
    let (path, query) = match absolute {
        Some((scheme, rest)) => {
            let end = rest.iter().position(|byte| b"/?".contains(byte));
            let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
            let is_same = with_port(authority, scheme) == with_port(host, is_secure);
            if scheme != is_secure || !is_same {
                elsewhere = Some((scheme, authority.to_vec()));
            }
            split_query(rest)
        }
        None if has_scheme(location) => return None,
        None => split_query(location),
    };
    let (base, base_query) = split_query(target);
    let is_empty = absolute.is_none() && path.is_empty();
    let whole = match path.first() {
        Some(b'/') => path.to_vec(),
        None if is_empty => base.to_vec(),
        None => b"/".to_vec(),
        Some(_) => {
            let folder = base.iter().rposition(|byte| *byte == b'/');
            let folder = folder.map_or(&b"/"[..], |at| &base[..=at]);
            [folder, path].concat()
        }
    };
    let query = if is_empty && query.is_empty() {
        base_query
    } else {
        query
    };
    let path = [&without_dots(&whole), query].concat();
    Some(match elsewhere {
        None => Place::Here(path),
        Some((is_secure, authority)) => Place::There(is_secure, authority, path),
    })
}

/// Whether a reference begins with the name of a scheme (RFC 3986, section 3.1), such as `mailto:`.
fn has_scheme(reference: &[u8]) -> bool {
    let end = reference.iter().position(|byte| b":/?".contains(byte));
    end.is_some_and(|end| end > 0 && reference[end] == b':')
}

/// Host and port in lower case, the port of the scheme if there is none.
pub(super) fn with_port(authority: &[u8], is_secure: bool) -> Vec<u8> {
    let mut authority = authority.to_ascii_lowercase();
    let colon = authority.iter().rposition(|byte| *byte == b':');
    let bracket = authority.iter().rposition(|byte| *byte == b']');
    if colon.is_none() || colon < bracket {
        let port: &[u8] = if is_secure { b":443" } else { b":80" };
        authority.extend_from_slice(port);
    }
    authority
}

/// A path without `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            segment => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in kept {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Appends a path; characters that are not valid in a URL are percent-encoded, as browsers do.
fn push_encoded(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        if byte.is_ascii_graphic() {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

/// Headers about the client, which another server may get, too.
const OF_THE_CLIENT: [&str; 5] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "connection",
    "user-agent",
];

const BODY_HEADERS: [&str; 6] = [
    "content-length",
    "content-type",
    "content-encoding",
    "content-language",
    "content-location",
    "transfer-encoding",
];

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const REST: &str = " HTTP/1.1\r\nHost: h.example:80\r\nAccept: */*\r\n\r\n";

    fn alone<'a>(is_secure: bool) -> Servers<'a> {
        Servers {
            is_secure,
            find: &|_, _| None,
        }
    }

    #[test]
    fn another_server_of_the_load_gets_no_secret() {
        let head = "POST /in?a=b HTTP/1.1\r\nHost: h.example\r\nAuthorization: Basic eA==\r\nCookie: a=b\r\n\
                    Proxy-Authorization: Basic eA==\r\nX-Key: k\r\nAccept: */*\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n";
        let request = format!("{head}body");
        let through = Forwarding {
            prefix: "http://through".into(),
            headers: b"Proxy-Authorization: Basic eQ==\r\n".to_vec(),
        };
        let find = |is_secure: bool, authority: &[u8]| {
            let is_it = is_secure && with_port(authority, true) == b"login.example:443";
            is_it.then_some((3, &through))
        };
        let servers = Servers {
            is_secure: false,
            find: &find,
        };
        let next = |status: u16, location: &str| {
            let location = (status, location.as_bytes());
            match follow(request.as_bytes(), head.len(), location, servers) {
                Detour::Follow(server, next) => (server, String::from_utf8(next.bytes).unwrap()),
                other => panic!("{other:?}"),
            }
        };
        let get = "GET http://through/x HTTP/1.1\r\nHost: Login.example\r\n\
                   Proxy-Authorization: Basic eQ==\r\nAccept: */*\r\n\r\n";
        let found = next(302, "https://Login.example/x");
        assert_eq!(found, (Some(3), get.to_owned()));
        let (server, post) = next(307, "https://login.example:443/?c");
        let expected = "POST http://through/?c HTTP/1.1\r\nHost: login.example:443\r\n\
                        Proxy-Authorization: Basic eQ==\r\nAccept: */*\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!((server, &*post), (Some(3), expected));
        let back = follow(
            request.as_bytes(),
            head.len(),
            (302, b"http://login.example/"),
            servers,
        );
        assert_eq!(back, Detour::Elsewhere, "another scheme");
    }

    /// The target that follows from this location.
    fn led(request: &str, location: &str, is_secure: bool) -> String {
        let next = follow(
            request.as_bytes(),
            request.len(),
            (302, location.as_bytes()),
            alone(is_secure),
        );
        match next {
            Detour::Follow(server, next) => {
                assert_eq!(server, None);
                let text = String::from_utf8(next.bytes).unwrap();
                assert_eq!(next.head_bytes, text.len());
                text.split(' ').nth(1).unwrap().to_owned()
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_location_leads_to_a_path_of_the_same_origin() {
        let target = |location: &str| led(&format!("GET /a/b?c=d{REST}"), location, false);
        assert_eq!(target("/x?y=z#part"), "/x?y=z");
        assert_eq!(target("http://H.example:80/x"), "/x");
        assert_eq!(target("HTTP://h.example/x"), "/x");
        assert_eq!(target("//h.example:80?q"), "/?q");
        assert_eq!(target("c"), "/a/c");
        assert_eq!(target("./c/."), "/a/c/");
        assert_eq!(target("../../c"), "/c");
        assert_eq!(target(".."), "/");
        assert_eq!(target("?e"), "/a/b?e");
        assert_eq!(target("#part"), "/a/b?c=d");
        assert_eq!(target("c?at=12:30"), "/a/c?at=12:30");
        assert_eq!(target("/a b/ü"), "/a%20b/%C3%BC");
    }

    #[test]
    fn another_scheme_host_or_port_is_elsewhere() {
        let request = format!("GET /{REST}");
        for location in [
            "http://other.example/x",
            "http://h.example:81/",
            "https://h.example:80/",
            "https://h.example/",
            "//h.example.evil/",
            "mailto:a@h.example",
            "ftp://h.example:80/",
        ] {
            assert_eq!(led(&request, location, false), "Elsewhere", "{location}");
        }
        let secure = "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n";
        assert_eq!(led(secure, "https://[::1]:443/x", true), "/x");
        assert_eq!(led(secure, "//[::1]/x", true), "/x");
        assert_eq!(led(secure, "http://[::1]/x", true), "Elsewhere");
    }

    #[test]
    fn a_proxy_is_still_told_the_whole_url() {
        let request = format!("GET http://h.example:80/a/b?c{REST}");
        assert_eq!(led(&request, "/x", false), "http://h.example:80/x");
        assert_eq!(led(&request, "d", false), "http://h.example:80/a/d");
        let root = format!("GET http://h.example:80{REST}");
        assert_eq!(led(&root, "d", false), "http://h.example:80/d");
        assert_eq!(led(&root, "", false), "http://h.example:80/");
        let options = format!("OPTIONS *{REST}");
        assert_eq!(led(&options, "d", false), "/d");
    }

    #[test]
    fn no_location_breaks_the_request() {
        let mut random = SmallRng::seed_from_u64(1);
        let alphabet = b"//..??##::@[]ah htps\xc3\t%2";
        let targets = ["/a/b?c", "http://h:80/a/b", "http://h:80", "*", "/"];
        for _ in 0..50_000 {
            let length = random.random_range(0..12);
            let mut location = Vec::new();
            if random.random_bool(0.3) {
                location.extend_from_slice(b"http://h:80");
            }
            location.extend((0..length).map(|_| alphabet[random.random_range(0..alphabet.len())]));
            let target = targets[random.random_range(0..targets.len())];
            let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            let found = follow(
                request.as_bytes(),
                request.len(),
                (302, &location),
                alone(false),
            );
            let Detour::Follow(_, next) = found else {
                continue;
            };
            let text = String::from_utf8(next.bytes).unwrap();
            let (line, rest) = text.split_once("\r\n").unwrap();
            assert_eq!(rest, "Host: h\r\n\r\n");
            assert_eq!(line.split(' ').count(), 3, "{location:?}: {line}");
            assert!(
                line.bytes()
                    .all(|byte| byte == b' ' || byte.is_ascii_graphic())
            );
            let path = line.split(' ').nth(1).unwrap();
            let path = path.strip_prefix("http://h:80").unwrap_or(path);
            assert!(path.starts_with('/'), "{location:?}: {line}");
        }
    }

    #[test]
    fn method_and_body_are_what_browsers_make_of_them() {
        let head =
            "HTTP/1.1\r\nHost: h\r\ncontent-type: text/plain\r\nX: y\r\nContent-Length: 4\r\n\r\n";
        let next = |method: &str, status: u16| {
            let request = format!("{method} /a {head}body");
            let found = follow(
                request.as_bytes(),
                request.len() - 4,
                (status, b"/x"),
                alone(false),
            );
            let Detour::Follow(_, next) = found else {
                panic!("{found:?}");
            };
            let idempotent = is_idempotent(&next);
            let (head, body) = next.bytes.split_at(next.head_bytes);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(head), text(body), idempotent)
        };
        let get = "GET /x HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n".to_owned();
        for (method, status) in [("POST", 301), ("POST", 302), ("POST", 303), ("PUT", 303)] {
            let expected = (get.clone(), String::new(), true);
            assert_eq!(next(method, status), expected, "{method} {status}");
        }
        for (method, status) in [
            ("POST", 307),
            ("POST", 308),
            ("PUT", 301),
            ("PATCH", 302),
            ("HEAD", 303),
            ("GET", 303),
        ] {
            let (next_head, body, idempotent) = next(method, status);
            assert_eq!(next_head, format!("{method} /x {head}"), "{status}");
            assert_eq!(body, "body", "{method} {status}");
            assert_eq!(idempotent, !method.starts_with("PO") && method != "PATCH");
        }
    }
}
