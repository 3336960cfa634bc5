//! Requests as a server reads them.

use crate::{pieces, ways_to_cut};
use tidewire_http::BodyLength;
use tidewire_http::server::{Event, Limits, Received, RequestError, RequestHeads, RequestReader};
use tidewire_testkit::vectors::http::{Request, RequestCase};
use tidewire_testkit::vectors::{latin_1, load};

/// The events of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) requests: Vec<Request>,
    pub(crate) error: Option<RequestError>,
    pub(crate) incomplete: bool,
}

/// Reads as an event loop does: what is left unread comes again in front of the next piece.
pub(crate) fn read(heads: &mut RequestHeads, pieces: &[&[u8]], ends: bool) -> Found {
    let mut connection = Connection::default();
    let mut unread = Vec::new();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let consumed = connection.read(heads, &unread);
        unread.drain(..consumed);
        if connection.found.error.is_some() {
            return connection.found;
        }
    }
    if ends {
        connection.found.error = connection.reader.finish().err();
    } else {
        connection.found.incomplete =
            !connection.reader.is_between() || connection.found.requests.is_empty();
    }
    connection.found
}

#[derive(Default)]
struct Connection {
    reader: RequestReader,
    found: Found,
    request: Option<Request>,
    body: Vec<u8>,
    wire_bytes: u64,
}

impl Connection {
    fn read(&mut self, heads: &mut RequestHeads, data: &[u8]) -> usize {
        let mut consumed = 0;
        loop {
            let step = match self.reader.read(heads, &data[consumed..]) {
                Ok(step) => step,
                Err(error) => {
                    let again = self.reader.read(heads, &data[consumed..]);
                    assert_eq!(again.err(), Some(error), "an error stays");
                    self.found.error = Some(error);
                    return consumed;
                }
            };
            consumed += step.consumed;
            self.wire_bytes += step.consumed as u64;
            match step.event {
                Event::More => return consumed,
                Event::Head(head) => {
                    self.request = Some(Request {
                        method: head.method.to_owned(),
                        target: head.target.to_owned(),
                        path: Some(head.path().to_owned()),
                        framing: match head.body {
                            BodyLength::None => "none".to_owned(),
                            BodyLength::Bytes(_) => "length".to_owned(),
                            BodyLength::Chunked => "chunked".to_owned(),
                        },
                        body: String::new(),
                        keeps_alive: head.keeps_alive,
                        expects_continue: head.expects_continue,
                    });
                }
                Event::Body(bytes) => {
                    assert!(!bytes.is_empty());
                    self.body.extend_from_slice(bytes);
                }
                Event::Done(received) => self.done(received),
            }
        }
    }

    fn done(&mut self, received: Received) {
        assert_eq!(received.body_bytes, self.body.len() as u64);
        assert_eq!(received.wire_bytes, std::mem::take(&mut self.wire_bytes));
        let mut request = self.request.take().expect("a head comes first");
        request.body = self.body.drain(..).map(char::from).collect();
        self.found.requests.push(request);
    }
}

#[test]
fn vectors() {
    for case in load::<RequestCase>("http-requests") {
        let bytes = latin_1(&case.bytes);
        for cuts in ways_to_cut(bytes.len()) {
            let mut found = read(&mut heads(&case), &pieces(&bytes, &cuts), case.end);
            for (found, expected) in found.requests.iter_mut().zip(&case.requests) {
                if expected.path.is_none() {
                    found.path = None;
                }
            }
            let name = format!("{}, cut at {cuts:?}", case.name);
            assert_eq!(found.requests, case.requests, "{name}");
            let error = found
                .error
                .map(|error| (error.name().to_owned(), error.status()));
            let expected = case.error.clone().map(|error| (error.name, error.status));
            assert_eq!(error, expected, "{name}");
            assert_eq!(found.incomplete, case.incomplete, "{name}");
        }
    }
}

fn heads(case: &RequestCase) -> RequestHeads {
    RequestHeads::new(Limits {
        head_bytes_max: case.head_bytes_max,
        request_line_bytes_max: case.request_line_bytes_max,
        body_bytes_max: case.body_bytes_max,
        trailer_bytes_max: case.trailer_bytes_max,
    })
}
