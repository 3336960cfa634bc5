//! A Markdown page without its code: lines, headings and their anchors.

use std::collections::HashMap;

/// The parts of a page that the rules need.
pub(super) struct Page<'a> {
    /// The lines of the page from 1; `None` for the lines of a fenced code block.
    pub(super) lines: Vec<Option<&'a str>>,
    /// The names that a link to this page may have after `#`.
    pub(super) anchors: Vec<String>,
    /// The text with spaces in place of code; line breaks stay.
    pub(super) prose: String,
}

impl<'a> Page<'a> {
    /// Finds code blocks, headings and code spans.
    pub(super) fn parse(text: &'a str) -> Self {
        let lines = outside_fences(text);
        let anchors = anchors(&lines);
        let prose = lines
            .iter()
            .map(|line| line.unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        Self {
            lines,
            anchors,
            prose: without_code_spans(&prose),
        }
    }
}

fn outside_fences(text: &str) -> Vec<Option<&str>> {
    let mut fence: Option<&str> = None;
    text.lines()
        .map(|line| {
            let start = line.trim_start();
            match fence {
                None => {
                    fence = opening_fence(start);
                    if fence.is_some() { None } else { Some(line) }
                }
                Some(open) => {
                    let is_end = start.starts_with(open)
                        && start
                            .trim_end()
                            .bytes()
                            .all(|byte| open.starts_with(char::from(byte)));
                    if is_end {
                        fence = None;
                    }
                    None
                }
            }
        })
        .collect()
}

/// The run of marks that opens a fenced code block and that its last line begins with.
fn opening_fence(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| "`~".contains(*mark))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    // A code span may begin a line, but its closing marks are on the same line.
    let is_fence = length >= 3 && !(mark == '`' && line[length..].contains('`'));
    is_fence.then(|| &line[..length])
}

fn anchors(lines: &[Option<&str>]) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut anchors = Vec::new();
    for line in lines.iter().flatten() {
        if let Some(heading) = heading(line) {
            let slug = slug(heading);
            let count = seen.entry(slug.clone()).or_default();
            anchors.push(match *count {
                0 => slug,
                n => format!("{slug}-{n}"),
            });
            *count += 1;
        }
        for start in ["id=\"", "name=\""] {
            let rest = line.split(start).skip(1);
            anchors.extend(
                rest.filter_map(|rest| rest.split('"').next())
                    .map(str::to_owned),
            );
        }
    }
    anchors
}

fn heading(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let is_heading = (1..=6).contains(&level) && rest.starts_with(' ');
    is_heading.then(|| rest.trim())
}

/// The anchor that GitHub gives a heading: lower case, without punctuation, `-` for each space.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Of a link only its text counts.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.chars()
        .filter(|mark| mark.is_alphanumeric() || " -_".contains(*mark))
        .flat_map(char::to_lowercase)
        .map(|mark| if mark == ' ' { '-' } else { mark })
        .collect()
}

/// Puts spaces in place of code spans. A span ends at as many backquotes as begin it, in the same
/// paragraph.
fn without_code_spans(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('`') {
        let length = run(&rest[start..]);
        let (before, span) = rest.split_at(start);
        prose.push_str(before);
        let inside = &span[length..];
        let paragraph = &inside[..inside.find("\n\n").unwrap_or(inside.len())];
        let end = closing(paragraph, length).map_or(length, |end| length + end + length);
        let blank = |mark| if mark == '\n' { '\n' } else { ' ' };
        prose.extend(span[..end].chars().map(blank));
        rest = &span[end..];
    }
    prose.push_str(rest);
    prose
}

/// Where the next run of exactly `length` backquotes begins.
fn closing(text: &str, length: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text[from..].find('`') {
        let start = from + found;
        let found_length = run(&text[start..]);
        if found_length == length {
            return Some(start);
        }
        from = start + found_length;
    }
    None
}

fn run(text: &str) -> usize {
    text.len() - text.trim_start_matches('`').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors_as_on_github() {
        let page = Page::parse(
            "# The `tidewire` program\n## Shut-down, _in_ steps\n### 7.1 `server_ready` → client\n\
             ## Order\n## Order\n## A [link](x.md) here\n#no heading\n<a id=\"kept\"></a>\n",
        );
        assert_eq!(
            page.anchors,
            [
                "the-tidewire-program",
                "shut-down-_in_-steps",
                "71-server_ready--client",
                "order",
                "order-1",
                "a-link-here",
                "kept",
            ]
        );
    }

    #[test]
    fn code_blocks_are_left_out() {
        let page = Page::parse("a\n```sh\n# no heading\n```\nb\n~~~~\n```\n~~~\n~~~~\nc\n");
        let kept: Vec<&str> = page.lines.iter().flatten().copied().collect();
        assert_eq!(kept, ["a", "b", "c"]);
        assert_eq!(page.lines.len(), 10);
        assert_eq!(page.anchors, [""; 0]);
    }

    #[test]
    fn code_spans_become_spaces_and_keep_the_lines() {
        assert_eq!(without_code_spans("a `[b](c)` d"), "a          d");
        assert_eq!(without_code_spans("``x ` y`` z"), "          z");
        assert_eq!(without_code_spans("`a\nb` c"), "  \n   c");
        assert_eq!(
            without_code_spans("one ` here\n\nand ` there"),
            "one   here\n\nand   there"
        );
    }
}
