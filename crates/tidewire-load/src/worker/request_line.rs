//! The first line of a request that is already encoded: its parts, and the path in its target.

/// Method, target, and everything from the version on.
pub(super) fn parts(request: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = request.iter().position(|byte| *byte == b' ')?;
    let second = first + 1 + request[first + 1..].iter().position(|byte| *byte == b' ')?;
    Some((
        &request[..first],
        &request[first + 1..second],
        &request[second..],
    ))
}

/// The prefix for a proxy, and the path.
pub(super) fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let Some(authority) = after_scheme(target) else {
        return (b"", target);
    };
    let authority_bytes = authority.1.iter().position(|byte| b"/?".contains(byte));
    let path_bytes = authority.1.len() - authority_bytes.unwrap_or(authority.1.len());
    target.split_at(target.len() - path_bytes)
}

/// Whether an absolute URL is of HTTPS, and the part after its scheme.
pub(super) fn after_scheme(url: &[u8]) -> Option<(bool, &[u8])> {
    [("http://", false), ("https://", true)]
        .into_iter()
        .find_map(|(scheme, is_secure)| {
            let (start, rest) = url.split_at_checked(scheme.len())?;
            start
                .eq_ignore_ascii_case(scheme.as_bytes())
                .then_some((is_secure, rest))
        })
}

/// A path, and its query with the question mark.
pub(super) fn split_query(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'?');
    text.split_at(end.unwrap_or(text.len()))
}

/// The path of a request, without its query and without the prefix for a proxy; `/` if there is none.
pub(super) fn path_of(request: &[u8]) -> &[u8] {
    let target = parts(request).map_or(&b"/"[..], |(_, target, _)| target);
    let (path, _) = split_query(split_target(target).1);
    match path.first() {
        Some(b'/') => path,
        _ => b"/",
    }
}
