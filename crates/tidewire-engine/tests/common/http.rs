//! A small blocking HTTP client.

use super::tcp;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection that goes on after an answer.
pub struct Http {
    stream: BufReader<TcpStream>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub set_cookies: Vec<String>,
    pub body: String,
}

impl Http {
    pub fn connect(address: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(tcp(address)),
        }
    }

    pub fn send(&mut self, text: &str) {
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .expect("the listener reads");
    }

    /// Sends a request whose further header lines end in CRLF.
    pub fn ask(&mut self, method: &str, path: &str, lines: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        ));
        self.receive()
    }

    pub fn receive(&mut self) -> Answer {
        let line = self.line();
        let status = line.strip_prefix("HTTP/1.1 ").expect(&line)[..3]
            .parse()
            .expect("a status");
        let mut headers = HashMap::new();
        let mut set_cookies = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            if name.eq_ignore_ascii_case("set-cookie") {
                set_cookies.push(value.to_owned());
            }
            // Of several lines the first one.
            let name = name.to_ascii_lowercase();
            headers.entry(name).or_insert_with(|| value.to_owned());
        }
        let length = headers
            .get("content-length")
            .map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        Answer {
            status,
            headers,
            set_cookies,
            body: String::from_utf8(body).expect("UTF-8"),
        }
    }

    pub fn expect_end(&mut self) {
        match self.stream.read(&mut [0]) {
            Ok(bytes) => assert_eq!(bytes, 0, "more came"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }

    /// The code of an error.
    #[track_caller]
    pub fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .expect("a code")
            .to_owned()
    }
}
