//! The messages of a WebSocket load in the form of the user's options.

use std::path::PathBuf;

use super::OptionError;
use super::conversation::{ConversationFile, Envelope};
use super::request::RequestOptions;
use crate::worker::inputs;
use crate::worker::messages::{Matching, Pointer};
use crate::worker::script::{Encoded, Script, Step};
use crate::worker::template::{Feed, Names, Syntax, Template};
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::profile::Profile;

/// The parameters of a session of a WebSocket load.
#[derive(Debug, Clone, Default)]
pub struct MessageOptions {
    /// The message, as a template; [`DEFAULT_MESSAGE`] if neither this nor a file is given.
    pub message: Option<String>,
    /// A file with one message per line, sent in turn.
    pub file: Option<PathBuf>,
    /// Messages that each connection sends once, before anything else.
    pub subscribe: Vec<String>,
    /// The evidence that a message has arrived.
    pub matching: Matching,
    /// The field of the server's messages that contains the time of their creation.
    pub stamp: Option<Pointer>,
    /// Messages are binary, not text.
    pub is_binary: bool,
    /// Messages are compressed by permessage-deflate, without memory between them; a server that
    /// does not accept this fails the connection.
    pub deflate: bool,
    /// Messages are encrypted under a key of each connection, as protocol version 1 does; the profile
    /// is then that version.
    pub encrypt: bool,
    /// The protocol of a session besides its messages; only RFC 6455 by default.
    pub profile: Option<Profile>,
    /// The protocol of another server around the messages.
    pub conversation: Option<ConversationFile>,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
}

impl MessageOptions {
    /// The script of all users.
    ///
    /// # Errors
    /// A template or a file is wrong.
    pub fn script(&self, syntax: &Syntax) -> Result<Script, OptionError> {
        let names = self.names(self.written(syntax));
        let envelope = self.envelope()?;
        let Some(path) = &self.file else {
            let usual = self
                .conversation
                .as_ref()
                .and_then(|all| all.message.as_deref());
            let text = self.message.as_deref().or(usual).unwrap_or(DEFAULT_MESSAGE);
            let message = template(text.as_bytes(), &names)?;
            return Ok(Script {
                variables: names.captured,
                ..Script::of(step("message", envelope.around(&message)))
            });
        };
        let shown = path.display();
        let lines = inputs::read(path).map_err(|error| OptionError::unreadable(path, &error))?;
        let rows: Vec<Vec<Vec<u8>>> = lines
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.is_empty())
            .map(|line| vec![line.to_vec()])
            .collect();
        if rows.is_empty() {
            return Err(OptionError::new(format_args!(
                "{shown} contains no message: write one per line"
            )));
        }
        let names = Names {
            columns: vec![vec![LINE.to_owned()]],
            syntax: Syntax::Braces,
            ..names
        };
        Ok(Script {
            feeds: vec![Feed {
                columns: vec![LINE.to_owned()],
                rows,
                ..Feed::default()
            }],
            variables: names.captured.clone(),
            ..Script::of(step(
                "message",
                envelope.around(&template(b"{{line}}", &names)?),
            ))
        })
    }

    /// The protocol of a session, and the coding of its messages.
    ///
    /// # Errors
    /// Options exclude each other.
    pub fn session(&self) -> Result<(Profile, Layer), OptionError> {
        match (self.encrypt, self.profile) {
            (true, _) if self.deflate => Err(OptionError::new(
                "--encrypt and --deflate exclude each other: encrypted messages cannot be compressed",
            )),
            (true, _) if self.conversation.is_some() => Err(OptionError::new(
                "--encrypt is the encryption of protocol version 1: remove the other --profile",
            )),
            (true, Some(Profile::Raw)) => Err(OptionError::new(
                "--encrypt is the encryption of protocol version 1: remove --profile raw",
            )),
            (true, _) => Ok((Profile::V1, Layer::Encryption)),
            (false, profile) => {
                let layer = match self.deflate {
                    true => Layer::Deflate,
                    false => Layer::Plain,
                };
                Ok((profile.unwrap_or(Profile::Raw), layer))
            }
        }
    }

    /// The first messages of each connection, with these values.
    ///
    /// # Errors
    /// A template is wrong.
    pub fn first_messages(&self, names: &Names) -> Result<Vec<Template>, OptionError> {
        let conversation = self.conversation.as_ref();
        let around = conversation.map(ConversationFile::subscription);
        let around = around.transpose()?.unwrap_or_default();
        let texts = self.subscribe.iter();
        texts
            .map(|text| Ok(around.around(&template(text.as_bytes(), names)?)))
            .collect()
    }

    /// What surrounds each message.
    ///
    /// # Errors
    /// A template is wrong.
    pub(super) fn envelope(&self) -> Result<Envelope, OptionError> {
        let conversation = self.conversation.as_ref();
        let envelope = conversation.map(ConversationFile::envelope).transpose()?;
        Ok(envelope.unwrap_or_default())
    }

    /// The values that messages may use.
    pub(super) fn names(&self, syntax: &Syntax) -> Names {
        let of_conversation = self.conversation.as_ref().map(ConversationFile::names);
        Names {
            syntax: syntax.clone(),
            ..of_conversation.unwrap_or_default()
        }
    }

    /// The values that texts of a script's users may have.
    pub(super) fn names_of(&self, script: &Script, syntax: &Syntax) -> Names {
        Names {
            known: self.names(syntax).known,
            ..script.names(syntax)
        }
    }

    /// The syntax of the message: the default message has values in any case.
    fn written<'s>(&self, syntax: &'s Syntax) -> &'s Syntax {
        match self.message {
            Some(_) => syntax,
            None => &Syntax::Braces,
        }
    }
}

impl RequestOptions {
    /// The step of a message: its body, with what surrounds it.
    ///
    /// # Errors
    /// There is no body, or it is a wrong template.
    pub(super) fn message_step(
        &self,
        envelope: &Envelope,
        names: &Names,
    ) -> Result<Step, OptionError> {
        if let Some(name) = self.of_http_alone() {
            return Err(OptionError::new(format_args!(
                "a WebSocket message has no `{name}`: remove it"
            )));
        }
        let body = self.body.as_ref().ok_or_else(|| {
            OptionError::new("a message needs content: give body, body_file or json")
        })?;
        let message = body.template(names).map_err(OptionError::new)?;
        let name = self.name.as_deref().unwrap_or("message");
        Ok(Step {
            think: self.think.clone(),
            ..step(name, envelope.around(&message))
        })
    }

    /// A part of a request of a scenario that no message has.
    fn of_http_alone(&self) -> Option<&'static str> {
        let given = [
            (self.method.is_some(), "method"),
            (self.path.is_some(), "path"),
            (!self.headers.is_empty(), "headers"),
            (!self.cookies.is_empty(), "cookies"),
            (self.statuses.is_some(), "expect_status"),
            (self.body_contains.is_some(), "expect_body"),
            (self.body_bytes.is_some(), "expect_bytes"),
            (!self.captures.is_empty(), "capture"),
            (self.credentials.is_some(), "basic_auth"),
        ];
        given.into_iter().find(|(is, _)| *is).map(|(_, name)| name)
    }
}

fn step(name: &str, message: Template) -> Step {
    Step::of(name, Encoded::Message(message))
}

fn template(text: &[u8], names: &Names) -> Result<Template, OptionError> {
    Template::message(text, names).map_err(OptionError::new)
}

/// The default message.
pub const DEFAULT_MESSAGE: &str =
    r#"{"type":"message","seq":{{seq}},"user":{{user}},"at":{{now_ms}}}"#;

const LINE: &str = "line";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_message_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.txt");
        std::fs::write(&path, "one\r\n\ntwo {{seq}}\n").unwrap();
        let options = MessageOptions {
            file: Some(path.clone()),
            ..MessageOptions::default()
        };
        let script = options.script(&Syntax::Braces).unwrap();
        assert_eq!(script.feeds[0].rows.len(), 2);
        // A line is sent unchanged.
        assert_eq!(script.feeds[0].rows[1][0], b"two {{seq}}");
        std::fs::write(&path, "\n").unwrap();
        assert!(
            options
                .script(&Syntax::Braces)
                .unwrap_err()
                .0
                .contains("no message")
        );
    }
}
