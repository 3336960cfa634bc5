//! Redirects: where a response leads, and the request that follows it (RFC 9110, section 15.4).

/// What a redirect asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Detour {
    /// This request, on the same server.
    Follow(Vec<u8>),
    /// Another server, which is not loaded.
    Elsewhere,
    /// A request that cannot be made of the one before.
    Impossible,
}

/// Whether the status sends a user on.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The request that follows a redirect from `request` to `location`: the same one for another path. Only of
/// requests without a body, which is what they become anyway after a 303.
pub(super) fn follow(request: &[u8], head_bytes: usize, location: &[u8]) -> Detour {
    if request.len() > head_bytes {
        return Detour::Impossible;
    }
    let Some((method, target, rest)) = parts(request) else {
        return Detour::Impossible;
    };
    let Some(path) = path_of(location, target, host(rest)) else {
        return Detour::Elsewhere;
    };
    if path.is_empty() || !path.iter().all(u8::is_ascii_graphic) {
        return Detour::Impossible;
    }
    let mut next = Vec::with_capacity(request.len() + path.len());
    next.extend_from_slice(method);
    next.push(b' ');
    next.extend_from_slice(&path);
    next.extend_from_slice(rest);
    Detour::Follow(next)
}

/// Method, target, and everything from the version on.
fn parts(request: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = request.iter().position(|byte| *byte == b' ')?;
    let second = first + 1 + request[first + 1..].iter().position(|byte| *byte == b' ')?;
    Some((
        &request[..first],
        &request[first + 1..second],
        &request[second..],
    ))
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

/// The path and query of a location on the same host; `None` if it is on another one. A relative one counts
/// from the target's folder.
fn path_of(location: &[u8], target: &[u8], host: &[u8]) -> Option<Vec<u8>> {
    let location = location.split(|byte| *byte == b'#').next().unwrap_or(b"");
    let rest = ["http://", "https://", "//"].iter().find_map(|scheme| {
        let (start, rest) = location.split_at_checked(scheme.len())?;
        start
            .eq_ignore_ascii_case(scheme.as_bytes())
            .then_some(rest)
    });
    if let Some(rest) = rest {
        let end = rest
            .iter()
            .position(|byte| b"/?".contains(byte))
            .unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        return authority.eq_ignore_ascii_case(host).then(|| match path {
            [b'/', ..] => path.to_vec(),
            _ => [b"/", path].concat(),
        });
    }
    if location.first() == Some(&b'/') {
        return Some(location.to_vec());
    }
    let path = target.split(|byte| *byte == b'?').next().unwrap_or(b"/");
    let folder = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    Some([&path[..=folder.min(path.len().saturating_sub(1))], location].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"GET /a/b?c=d HTTP/1.1\r\nHost: h.example:80\r\nAccept: */*\r\n\r\n";

    fn target(location: &str) -> String {
        match follow(REQUEST, REQUEST.len(), location.as_bytes()) {
            Detour::Follow(next) => {
                let text = String::from_utf8(next).unwrap();
                assert!(text.ends_with(" HTTP/1.1\r\nHost: h.example:80\r\nAccept: */*\r\n\r\n"));
                text.split(' ').nth(1).unwrap().to_owned()
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_location_leads_to_a_path_of_the_same_server() {
        assert_eq!(target("/x?y=z#part"), "/x?y=z");
        assert_eq!(target("http://H.example:80/x"), "/x");
        assert_eq!(target("//h.example:80?q"), "/?q");
        assert_eq!(target("c"), "/a/c");
        assert_eq!(target("http://other.example/x"), "Elsewhere");
        assert_eq!(target("/a b"), "Impossible");
    }

    #[test]
    fn a_body_is_not_sent_on() {
        let post = b"POST / HTTP/1.1\r\nHost: h\r\n\r\nbody";
        assert_eq!(follow(post, post.len() - 4, b"/x"), Detour::Impossible);
    }
}
