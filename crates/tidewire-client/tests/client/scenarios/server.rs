//! The server's side of a scenario: an interpreter of its steps, byte by byte.

use crate::common::DEADLINE;
use crate::websocket::{accept, frame, next, read_head};
use serde_json::Value;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use tidewire_testkit::websocket::{Incoming, Said};
use tidewire_wire::frame::OpCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The log of the servers of one scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<SeenState>>);

#[derive(Debug, Default)]
struct SeenState {
    connections: usize,
    /// The types of the messages that were read; `close` for a close frame.
    types: Vec<String>,
}

impl Seen {
    pub(crate) fn connections(&self) -> usize {
        self.lock().connections
    }

    pub(crate) fn has_read(&self, t: &str) -> bool {
        self.lock().types.iter().any(|seen| seen == t)
    }

    fn lock(&self) -> MutexGuard<'_, SeenState> {
        self.0.lock().expect("no server panicked with it")
    }

    fn add(&self, t: &str) {
        self.lock().types.push(t.to_owned());
    }
}

/// Starts a server that does on its connections what `scripts` say, until the returned set is dropped.
pub(crate) async fn start(scripts: Vec<Value>, seen: Seen, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        let mut index = 0;
        while let Ok((stream, _)) = listener.accept().await {
            seen.lock().connections += 1;
            let script = scripts[index.min(scripts.len() - 1)].clone();
            index += 1;
            let mut connection = Connection {
                stream: Some(stream),
                incoming: Incoming::of_client(),
                seen: seen.clone(),
                cid: String::new(),
                has_closed: false,
            };
            connections.spawn(async move {
                // A client that has gone is the end of the script.
                if connection.run(&script).await.is_ok() {
                    connection.hold().await;
                }
            });
            while connections.try_join_next().is_some() {}
        }
    });
    address
}

/// The client has gone.
struct Gone;

struct Connection {
    /// `None` after a cut.
    stream: Option<TcpStream>,
    incoming: Incoming,
    seen: Seen,
    /// The last correlation id that was read.
    cid: String,
    has_closed: bool,
}

type Step<'a> = Pin<Box<dyn Future<Output = Result<(), Gone>> + Send + 'a>>;

impl Connection {
    fn run<'a>(&'a mut self, script: &'a Value) -> Step<'a> {
        Box::pin(async move {
            for step in script.as_array().expect("a script is a list") {
                self.step(step).await?;
            }
            Ok(())
        })
    }

    async fn step(&mut self, step: &Value) -> Result<(), Gone> {
        if let Some(word) = step.as_str() {
            return self.word(word).await;
        }
        let (name, value) = single(step);
        match name {
            "answer" => {
                read_head(self.stream()?).await.ok_or(Gone)?;
                let text = with_date(value.as_str().expect("an answer is a text"));
                self.write(text.as_bytes()).await
            }
            "text" => {
                let text = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let text = text.replace("$cid", &self.cid);
                self.frame(OpCode::Text, text.as_bytes()).await
            }
            "frames" => {
                let bytes = from_hex(value.as_str().expect("frames are hex"));
                self.write(&bytes).await
            }
            "read" => self.read(value.as_str().expect("a type is a text")).await,
            "close" => {
                self.has_closed = true;
                let list = value.as_array().expect("a close is a list");
                let mut payload = Vec::new();
                if let Some(code) = list.first() {
                    let code = u16::try_from(code.as_u64().expect("a code")).expect("16 bits");
                    payload.extend_from_slice(&code.to_be_bytes());
                }
                if let Some(reason) = list.get(1) {
                    payload.extend_from_slice(reason.as_str().expect("a reason").as_bytes());
                }
                self.frame(OpCode::Close, &payload).await
            }
            "repeat" => {
                for _ in 0..value[0].as_u64().expect("how often") {
                    self.run(&value[1]).await?;
                }
                Ok(())
            }
            other => panic!("no server does {other}"),
        }
    }

    async fn word(&mut self, word: &str) -> Result<(), Gone> {
        match word {
            "accept" => accept(self.stream()?).await.ok_or(Gone),
            "ready" => self.frame(OpCode::Text, READY.as_bytes()).await,
            "hello" => self.frame(OpCode::Text, HELLO.as_bytes()).await,
            "let_in" => {
                accept(self.stream()?).await.ok_or(Gone)?;
                self.frame(OpCode::Text, READY.as_bytes()).await
            }
            "welcome" => {
                accept(self.stream()?).await.ok_or(Gone)?;
                self.frame(OpCode::Text, READY.as_bytes()).await?;
                self.read("client_hello").await?;
                self.frame(OpCode::Text, HELLO.as_bytes()).await
            }
            "cut" => {
                self.stream = None;
                Err(Gone)
            }
            "half_close" => self.stream()?.shutdown().await.map_err(|_| Gone),
            "freeze" => {
                self.freeze().await;
                Err(Gone)
            }
            other => panic!("no server does {other}"),
        }
    }

    fn stream(&mut self) -> Result<&mut TcpStream, Gone> {
        self.stream.as_mut().ok_or(Gone)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.stream()?.write_all(bytes).await.map_err(|_| Gone)
    }

    async fn frame(&mut self, opcode: OpCode, payload: &[u8]) -> Result<(), Gone> {
        self.write(&frame(opcode, payload)).await
    }

    /// Reads up to a message of this type.
    async fn read(&mut self, wanted: &str) -> Result<(), Gone> {
        loop {
            if self.next().await? == wanted {
                return Ok(());
            }
        }
    }

    /// The type of the next message, `close` for a close frame, nothing for other frames.
    async fn next(&mut self) -> Result<String, Gone> {
        let stream = self.stream.as_mut().ok_or(Gone)?;
        let t = match next(stream, &mut self.incoming).await.ok_or(Gone)? {
            Said::Close(..) => "close".to_owned(),
            Said::Text(text) => {
                // Older types carry the category in front of the envelope.
                let envelope = text.find('{').map_or("", |start| &text[start..]);
                let envelope: Value = serde_json::from_str(envelope).unwrap_or_default();
                if let Some(cid) = envelope["cid"].as_str() {
                    cid.clone_into(&mut self.cid);
                }
                envelope["t"].as_str().unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        self.seen.add(&t);
        Ok(t)
    }

    /// Reads and discards, and answers a close, until the client ends the connection.
    async fn hold(&mut self) {
        while let Ok(t) = self.next().await {
            if t == "close" {
                if !self.has_closed {
                    let _ = self.frame(OpCode::Close, &1_000u16.to_be_bytes()).await;
                }
                self.stream = None;
            }
        }
    }

    /// Reads nothing. What is not read hides the client's end behind it, so that there is nothing to wait for but time.
    async fn freeze(&mut self) {
        tokio::time::sleep(DEADLINE).await;
    }
}

/// The one field of an object.
pub(super) fn single(step: &Value) -> (&str, &Value) {
    let fields = step.as_object().expect("a step is a word or an object");
    let (name, value) = fields.iter().next().expect("a step has a field");
    (name, value)
}

/// `$date+7` stands for the HTTP date 7 s from now.
fn with_date(text: &str) -> String {
    let Some((before, rest)) = text.split_once("$date+") else {
        return text.to_owned();
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let seconds = rest[..digits].parse().expect("seconds");
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
    format!("{before}{date}{}", &rest[digits..])
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hex digit") as u8;
    let byte = |pair: &[u8]| digit(pair[0]) << 4 | digit(pair[1]);
    digits.chunks_exact(2).map(byte).collect()
}

const READY: &str = r#"{"c":"WSE","t":"server_ready","p":{"details":{"connection_id":"c1"}}}"#;
const HELLO: &str = r#"{"c":"WSE","t":"server_hello","p":{"connection_id":"c1"}}"#;
