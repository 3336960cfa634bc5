//! The operations listener of a server, asked over HTTP/1.1.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tidewire_http::response::{Event, Expected, Limits, ResponseError};
use tidewire_http::{BodyLength, RequestHead, ResponseHeads, ResponseReader};

/// The reason for which there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum OperationsError {
    /// No connection, or it broke or was silent for too long.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server's answer is not HTTP.
    #[error("the answer is not HTTP: {0}")]
    NotHttp(#[from] ResponseError),
    /// Another status than 200.
    #[error("the status is {0}, not 200")]
    Status(u16),
    /// An answer that no server of Tidewire has.
    #[error("the answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

/// The body of the answer to `GET path` at `host:port`. `patience` limits the time to connect, and the wait
/// of each read and write.
///
/// # Errors
/// [`OperationsError`].
pub fn get(authority: &str, path: &str, patience: Duration) -> Result<Vec<u8>, OperationsError> {
    let mut stream = connect(authority, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let head = RequestHead {
        method: "GET",
        target: path,
        host: authority,
        headers: &[("Connection", "close")],
        body: BodyLength::None,
    };
    let mut request = Vec::new();
    head.write(&mut request)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    stream.write_all(&request)?;
    read_body(&mut stream)
}

fn connect(authority: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read_body(stream: &mut impl Read) -> Result<Vec<u8>, OperationsError> {
    let mut heads = ResponseHeads::new(Limits::default());
    let mut reader = ResponseReader::new();
    let (mut received, mut body) = (Vec::new(), Vec::new());
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        if count == 0 {
            return match reader.finish(true)? {
                Some(_) => Ok(body),
                None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            };
        }
        received.extend_from_slice(&piece[..count]);
        loop {
            let step = reader.read(&mut heads, &received, Expected::Ordinary)?;
            let (consumed, mut goes_on) = (step.consumed, true);
            match step.event {
                Event::More => goes_on = false,
                Event::Interim { .. } => {}
                Event::Head(head) if head.status == 200 => {}
                Event::Head(head) => return Err(OperationsError::Status(head.status)),
                Event::Body(bytes) => {
                    goes_on = !bytes.is_empty() || consumed > 0;
                    body.extend_from_slice(bytes);
                }
                Event::Done(_) => return Ok(body),
            }
            received.drain(..consumed);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(OperationsError::TooLong);
            }
            if !goes_on {
                break;
            }
        }
    }
}

/// Larger than any answer of a Tidewire server.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of a length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn a_body_of_any_framing_is_read_in_any_pieces() {
        let answers: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        ];
        for answer in answers {
            for length in [1, 7, 1_000] {
                assert_eq!(read_body(&mut Pieces(answer, length)).unwrap(), b"hello");
            }
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        let error = |answer: &[u8]| read_body(&mut Pieces(answer, 3)).unwrap_err().to_string();
        assert_eq!(
            error(b"HTTP/1.1 404 Not Found\r\n\r\n"),
            "the status is 404, not 200"
        );
        assert!(error(b"SSH-2.0-OpenSSH\r\n\r\n").contains("not HTTP"));
        assert!(error(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut").contains("not HTTP"));
        assert!(!error(b"").is_empty());
    }
}
