//! The cookies of a user: what a server sets comes back with later requests of the same user, as in a browser
//! (RFC 6265).

use cookie::Cookie;
use cookie::time::OffsetDateTime;

use super::request_line::path_of;

/// A server whose cookies are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieOrigin {
    /// The host of the URL, without the port.
    pub host: String,
    /// Whether cookies with `Secure` are sent: over TLS, and to this machine, as browsers do.
    pub is_trustworthy: bool,
}

/// The cookies of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Jar {
    /// Those with longer paths first (section 5.4).
    cookies: Vec<Kept>,
    /// How many were ever kept.
    count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    name: String,
    value: String,
    path: String,
    /// The host that set it, or the domain that it names.
    domain: String,
    /// It goes to the hosts of its domain, too.
    is_of_domain: bool,
    is_secure: bool,
    /// Seconds since 1970; `None` for one that lives as long as the user.
    expires_s: Option<i64>,
    number: u64,
}

impl CookieOrigin {
    /// The origin of a URL with this host.
    #[must_use]
    pub fn new(host: &str, is_secure: bool) -> Self {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        let address = host.parse::<std::net::IpAddr>();
        let is_local = address.is_ok_and(|address| address.is_loopback())
            || host == "localhost"
            || host.ends_with(".localhost");
        Self {
            host,
            is_trustworthy: is_secure || is_local,
        }
    }

    /// Whether requests to the host contain a cookie (section 5.4).
    fn gets(&self, kept: &Kept) -> bool {
        let is_its_host = kept.domain == self.host;
        (is_its_host || (kept.is_of_domain && self.is_in(&kept.domain)))
            && (self.is_trustworthy || !kept.is_secure)
    }

    /// Whether the host belongs to a domain that a cookie names (section 5.1.3).
    fn is_in(&self, domain: &str) -> bool {
        // A domain without a dot, such as `com`, belongs to no server.
        let above = self
            .host
            .strip_suffix(domain)
            .filter(|above| above.is_empty() || domain.contains('.'));
        let is_name = self.host.parse::<std::net::IpAddr>().is_err();
        above.is_some_and(|above| above.is_empty() || (is_name && above.ends_with('.')))
    }
}

impl Jar {
    pub(crate) fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// The value of the cookie with this name that a server gets.
    pub(crate) fn value(&self, name: &str, origin: &CookieOrigin) -> Option<&str> {
        let mut cookies = self.cookies.iter();
        let found = cookies.find(|kept| kept.name == name && origin.gets(kept));
        found.map(|kept| &*kept.value)
    }

    /// Keeps the cookie of a `Set-Cookie` in the response to a request, replaces an earlier one, or removes it if it has expired. A cookie that
    /// is not valid, or that this server must not set, is ignored, as in browsers.
    pub(crate) fn store(
        &mut self,
        header: &[u8],
        request: &[u8],
        origin: &CookieOrigin,
        now_s: i64,
    ) {
        let text = std::str::from_utf8(header).ok();
        let Some(cookie) = text.and_then(|text| Cookie::parse(text).ok()) else {
            return;
        };
        let domain = cookie
            .domain()
            .map(|name| name.trim_start_matches('.').to_ascii_lowercase());
        let is_foreign = domain.as_ref().is_some_and(|name| !origin.is_in(name));
        let is_secure = cookie.secure() == Some(true);
        let is_too_secure = is_secure && !origin.is_trustworthy;
        let bytes = cookie.name().len() + cookie.value().len();
        if is_foreign || is_too_secure || bytes > COOKIE_BYTES_MAX {
            return;
        }
        let path = match cookie.path() {
            Some(path) if path.starts_with('/') => path.to_owned(),
            _ => folder_of(path_of(request)),
        };
        let is_of_domain = domain.is_some();
        let domain = domain.unwrap_or_else(|| origin.host.clone());
        let is_same =
            |kept: &Kept| kept.name == cookie.name() && kept.path == path && kept.domain == domain;
        // A cookie that was set over TLS is not replaced without it.
        let is_weaker = |kept: &Kept| kept.is_secure && !origin.is_trustworthy && is_same(kept);
        if self.cookies.iter().any(is_weaker) {
            return;
        }
        self.cookies.retain(|kept| !is_same(kept));
        let expires_s = match cookie.max_age() {
            Some(age) => Some(now_s.saturating_add(age.whole_seconds())),
            None => cookie
                .expires_datetime()
                .map(OffsetDateTime::unix_timestamp),
        };
        if expires_s.is_some_and(|at| at <= now_s) {
            return;
        }
        if self.cookies.len() == COOKIES_MAX {
            let oldest = self.cookies.iter().map(|kept| kept.number).min();
            self.cookies.retain(|kept| Some(kept.number) != oldest);
        }
        self.count += 1;
        let at = self
            .cookies
            .partition_point(|kept| kept.path.len() >= path.len());
        let kept = Kept {
            name: cookie.name().to_owned(),
            value: cookie.value().to_owned(),
            path,
            domain,
            is_of_domain,
            is_secure,
            expires_s,
            number: self.count,
        };
        self.cookies.insert(at, kept);
    }

    /// Appends a request with the cookies that belong to its server and its path; returns the length of its head. Its
    /// own cookies stay, and win over those of the jar with the same name.
    pub(crate) fn write(
        &self,
        (request, head_bytes): (&[u8], usize),
        origin: &CookieOrigin,
        now_s: i64,
        out: &mut Vec<u8>,
    ) -> usize {
        let head = &request[..head_bytes];
        let own = own_cookies(head);
        let own_names: Vec<&[u8]> = own
            .map_or(&b""[..], |(start, end)| &head[start..end])
            .split(|byte| *byte == b';')
            .map(|pair| pair.split(|byte| *byte == b'=').next().unwrap_or(pair))
            .map(<[u8]>::trim_ascii)
            .collect();
        let path = path_of(head);
        let fitting = self.cookies.iter().filter(|kept| {
            is_below(path, kept.path.as_bytes())
                && origin.gets(kept)
                && kept.expires_s.is_none_or(|at| at > now_s)
                && !own_names.contains(&kept.name.as_bytes())
        });
        let (place, mut separator): (usize, &[u8]) = match own {
            Some((_, end)) => (end, b"; "),
            None => (head.len() - LINE_END.len(), b"Cookie: "),
        };
        let start = out.len();
        out.extend_from_slice(&head[..place]);
        let before = out.len();
        for kept in fitting {
            out.extend_from_slice(separator);
            out.extend_from_slice(kept.name.as_bytes());
            out.push(b'=');
            out.extend_from_slice(kept.value.as_bytes());
            separator = b"; ";
        }
        if own.is_none() && out.len() > before {
            out.extend_from_slice(LINE_END);
        }
        out.extend_from_slice(&head[place..]);
        let head_bytes_new = out.len() - start;
        out.extend_from_slice(&request[head_bytes..]);
        head_bytes_new
    }
}

/// Where the value of `Cookie` lies in a head.
fn own_cookies(head: &[u8]) -> Option<(usize, usize)> {
    const NAME: &[u8] = b"cookie:";
    let mut start = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let is_it = line
            .get(..NAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME));
        if is_it {
            let end = start + line.trim_ascii_end().len();
            return Some((start + NAME.len(), end));
        }
        start += line.len();
    }
    None
}

/// The path of a cookie that names none: that of the request up to its last slash (section 5.1.4).
fn folder_of(path: &[u8]) -> String {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    match slash {
        0 => "/".to_owned(),
        slash => String::from_utf8_lossy(&path[..slash]).into_owned(),
    }
}

/// Whether a path is that of a cookie, or below it (section 5.1.4).
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || folder.ends_with(b"/") || rest[0] == b'/')
}

const LINE_END: &[u8] = b"\r\n";

/// Section 6.1 asks for at least 50 cookies of a domain, here of all servers of a load, and 4096 bytes of each.
const COOKIES_MAX: usize = 50;
const COOKIE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_800_000_000;

    fn jar(set: &[(&str, &str)], url_host: &str, is_secure: bool) -> Jar {
        let origin = CookieOrigin::new(url_host, is_secure);
        let mut jar = Jar::default();
        for (target, header) in set {
            let request = format!("GET {target} HTTP/1.1\r\n\r\n");
            jar.store(header.as_bytes(), request.as_bytes(), &origin, NOW_S);
        }
        jar
    }

    fn sent(jar: &Jar, target: &str, headers: &str) -> Vec<String> {
        sent_to(&CookieOrigin::new("h", false), jar, target, headers)
    }

    fn sent_to(origin: &CookieOrigin, jar: &Jar, target: &str, headers: &str) -> Vec<String> {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        let request = format!("{head}body");
        let mut out = b"before".to_vec();
        let length = jar.write((request.as_bytes(), head.len()), origin, NOW_S, &mut out);
        let text = String::from_utf8(out.split_off(6)).unwrap();
        let (head, body) = text.split_at(length);
        assert!(head.ends_with("\r\n\r\n") && body == "body", "{text}");
        let lines = head.lines().filter(|line| line.starts_with("Cookie:"));
        lines.map(|line| line[7..].trim().to_owned()).collect()
    }

    #[test]
    fn what_was_set_comes_back() {
        let jar = jar(
            &[
                ("/login?next=/", "sid=abc; Path=/; HttpOnly"),
                ("/", "theme=\"dark\""),
                ("/", "sid=def; path=/"),
            ],
            "h",
            false,
        );
        assert_eq!(sent(&jar, "/me", ""), ["theme=\"dark\"; sid=def"]);
        assert_eq!(
            sent(&jar, "http://h:80/me?a=/b", ""),
            ["theme=\"dark\"; sid=def"]
        );
        let origin = |host: &str| CookieOrigin::new(host, false);
        assert_eq!(jar.value("sid", &origin("h")), Some("def"));
        assert_eq!(jar.value("sid", &origin("other")), None);
        assert_eq!(sent(&Jar::default(), "/", ""), [""; 0]);
    }

    #[test]
    fn a_cookie_belongs_to_its_host_or_its_domain() {
        let jar = jar(
            &[
                ("/", "own=1"),
                ("/", "all=2; Domain=.Example.com"),
                ("/", "secret=3; Domain=example.com; Secure"),
            ],
            "login.example.com",
            true,
        );
        for (host, is_secure, expected) in [
            ("login.example.com", true, "own=1; all=2; secret=3"),
            ("login.example.com", false, "own=1; all=2"),
            ("chat.example.com", true, "all=2; secret=3"),
            ("example.com", false, "all=2"),
            ("badexample.com", true, ""),
        ] {
            let origin = CookieOrigin::new(host, is_secure);
            let sent = sent_to(&origin, &jar, "/", "").join("");
            assert_eq!(sent, expected, "{host}");
        }
    }

    #[test]
    fn a_cookie_belongs_to_its_path() {
        let jar = jar(
            &[
                ("/a/b/c", "folder=1"),
                ("/", "deep=2; Path=/a/b/c"),
                ("/", "all=3; Path=/"),
                ("/x", "wrong=4; Path=relative"),
            ],
            "h",
            false,
        );
        for (target, expected) in [
            ("/a/b/c/d", "deep=2; folder=1; all=3; wrong=4"),
            ("/a/b", "folder=1; all=3; wrong=4"),
            ("/a/bc", "all=3; wrong=4"),
            ("*", "all=3; wrong=4"),
            ("http://h", "all=3; wrong=4"),
        ] {
            assert_eq!(sent(&jar, target, ""), [expected], "{target}");
        }
    }

    #[test]
    fn an_expired_cookie_is_gone() {
        let set = |second: &str| jar(&[("/", "a=1"), ("/", second)], "h", false);
        for gone in [
            "a=; Max-Age=0",
            "a=; Max-Age=-5",
            "a=2; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "a=2; Expires=Thu, 01-Jan-1970 00:00:00 GMT",
        ] {
            assert!(set(gone).is_empty(), "{gone}");
        }
        let kept = set("a=2; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:00 GMT");
        let origin = CookieOrigin::new("h", false);
        assert_eq!(kept.value("a", &origin), Some("2"), "Max-Age wins");
        let mut out = Vec::new();
        let head = b"GET / HTTP/1.1\r\n\r\n";
        kept.write((head, head.len()), &origin, NOW_S + 10, &mut out);
        assert_eq!(out, head, "it has expired since");
    }

    #[test]
    fn own_cookies_of_a_request_win() {
        let jar = jar(&[("/", "a=1"), ("/", "b=2")], "h", false);
        assert_eq!(sent(&jar, "/", "Cookie: b=own\r\nX: y\r\n"), ["b=own; a=1"]);
        assert_eq!(sent(&jar, "/", "Cookie: a=1;b=2\r\n"), ["a=1;b=2"]);
    }

    #[test]
    fn a_server_sets_cookies_for_itself_alone() {
        let kept = |host: &str, is_secure: bool, header: &str| {
            !jar(&[("/", header)], host, is_secure).is_empty()
        };
        for (host, domain, is_kept) in [
            ("api.example.com", "example.com", true),
            ("api.example.com", ".Example.com", true),
            ("example.com", "example.com", true),
            ("example.com", "api.example.com", false),
            ("badexample.com", "example.com", false),
            ("a.com", "com", false),
            ("10.0.0.1", "0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
        ] {
            let header = format!("a=1; Domain={domain}");
            assert_eq!(kept(host, false, &header), is_kept, "{host} {domain}");
        }
        for (host, is_secure, is_kept) in [
            ("h.example", true, true),
            ("h.example", false, false),
            ("127.0.0.1", false, true),
            ("[::1]", false, true),
            ("localhost", false, true),
        ] {
            assert_eq!(kept(host, is_secure, "a=1; Secure"), is_kept, "{host}");
        }
        let mut jar = jar(&[("/", "a=1; Secure")], "h.example", true);
        let plain = CookieOrigin::new("h.example", false);
        jar.store(b"a=2", b"GET / HTTP/1.1\r\n\r\n", &plain, NOW_S);
        let secure = CookieOrigin::new("h.example", true);
        assert_eq!(jar.value("a", &secure), Some("1"));
    }

    #[test]
    fn a_jar_is_bounded() {
        let origin = CookieOrigin::new("h", false);
        let mut jar = Jar::default();
        for number in 0..1_000 {
            let header = format!("c{number}=1");
            jar.store(header.as_bytes(), b"GET / HTTP/1.1\r\n\r\n", &origin, NOW_S);
        }
        assert_eq!(jar.cookies.len(), COOKIES_MAX);
        let of = |number: u64| jar.value(&format!("c{number}"), &origin);
        assert_eq!((of(949), of(950), of(999)), (None, Some("1"), Some("1")));
        let long = format!("long={}", "x".repeat(COOKIE_BYTES_MAX));
        jar.store(long.as_bytes(), b"GET / HTTP/1.1\r\n\r\n", &origin, NOW_S);
        jar.store(b"\xff=1", b"GET / HTTP/1.1\r\n\r\n", &origin, NOW_S);
        jar.store(b"", b"GET / HTTP/1.1\r\n\r\n", &origin, NOW_S);
        assert_eq!(jar.value("long", &origin), None);
    }
}
