//! Another token for a session whose own is about to expire.

use super::Session;
use super::codec::Signed;
use crate::clock::Moment;
use crate::config::Token;
use crate::error::Ending;
use crate::error::Error;

/// A session that ends with its token unless it gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenRefresh {
    /// When the session ends, on the monotonic clock.
    ends_ms: u64,
    /// When the application is asked for a token.
    next_ms: u64,
}

impl Session {
    /// The server has warned of the end. Without a function that gives tokens there is nothing to be done.
    pub(super) fn handle_expiry_warning(&mut self, ends_in_ms: u64, moment: Moment) {
        let has_provider = matches!(self.config.token, Token::Provider(_));
        if let Some(link) = self.link.as_mut().filter(|_| has_provider) {
            link.refresh = Some(TokenRefresh {
                ends_ms: moment.ms().saturating_add(ends_in_ms),
                next_ms: moment.ms(),
            });
        }
    }

    /// The server has accepted a token. If that token prolongs the session by less than `PROLONGED_MS`, such as
    /// the same token again, the application is asked again.
    pub(super) fn handle_refreshed(&mut self, ends_in_ms: Option<u64>, moment: Moment) {
        let Some(link) = &mut self.link else { return };
        link.refresh = link.refresh.filter(|refresh| {
            let ends_ms = ends_in_ms.map(|ends_in_ms| moment.ms().saturating_add(ends_in_ms));
            ends_ms.is_some_and(|ends_ms| ends_ms < refresh.ends_ms.saturating_add(PROLONGED_MS))
        });
    }

    /// Whether the application is to be asked for a token, to be given to [`Self::handle_token`].
    pub(crate) fn wants_token(&self, moment: Moment) -> bool {
        let refresh = self.link.as_ref().and_then(|link| link.refresh);
        refresh.is_some_and(|refresh| refresh.next_ms <= moment.ms())
    }

    /// When [`Self::wants_token`] changes.
    pub(super) fn next_token_ms(&self, moment: Moment) -> Option<u64> {
        let refresh = self.link.as_ref()?.refresh?;
        (refresh.next_ms > moment.ms()).then_some(refresh.next_ms)
    }

    /// Sends the token that the application has given. If it has given none, or the server does not accept this one,
    /// the application is asked again after half of the time that is left.
    pub(crate) fn handle_token(
        &mut self,
        token: Result<Option<String>, Error>,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let id = self.id(moment);
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.refresh = link.refresh.and_then(|refresh| {
            let left_ms = refresh.ends_ms.saturating_sub(moment.ms());
            (left_ms > 0).then_some(TokenRefresh {
                next_ms: moment.ms() + (left_ms / 2).max(RETRY_MS_MIN),
                ..refresh
            })
        });
        let token = token.ok().flatten().filter(|token| !token.is_empty());
        let Some(token) = token else { return Ok(()) };
        link.write_system(Signed::Yes, moment, out, |wire, out| {
            wire.write_auth_refresh(&token, None, id, moment.now, out)
        })
    }
}

/// A session that ends so much later than before has been prolonged, in milliseconds: the times of two messages differ
/// by their way.
const PROLONGED_MS: u64 = 1_000;

/// An application is asked again after so long at least, in milliseconds.
const RETRY_MS_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::event::BatchBuilder;
    use crate::outbox::Outbox;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use std::sync::Arc;
    use tidewire_wire::message::Event;

    fn session(config: Config) -> Session {
        let outbox = Arc::new(Outbox::new(1_000));
        let mut session = Session::new(Arc::new(config), outbox, StdRng::seed_from_u64(1));
        session
            .handle_connected("ws://a".to_owned(), None, at(0))
            .expect("nothing is to be signed");
        for text in [
            r#"{"t":"server_ready","p":{}}"#,
            r#"{"t":"server_hello","p":{}}"#,
        ] {
            receive(&mut session, 0, text);
        }
        session
    }

    fn with_function() -> Session {
        session(Config::new("ws://a").with_token_provider(|| async { Ok(String::new()) }))
    }

    fn at(monotonic_ms: u64) -> Moment {
        let mut moment = Moment::default();
        moment.now.monotonic_ms = monotonic_ms;
        moment
    }

    /// The kind of a message of the server's, some seconds into the session, for the application: 0 for nothing.
    fn receive(session: &mut Session, seconds: u64, text: &str) -> usize {
        let (mut out, mut batch) = (Vec::new(), BatchBuilder::default());
        let event = Event::Binary(text.as_bytes());
        let heard = session.handle_event(event, at(seconds * 1_000), &mut out, &mut batch);
        heard.expect("the session goes on");
        batch.bytes()
    }

    fn warn(session: &mut Session, seconds: u64) {
        let text = r#"{"t":"auth_expiry_warning","p":{"expires_in_ms":60000,"ends_in_ms":70000}}"#;
        assert_eq!(receive(session, seconds, text), 0);
    }

    fn refreshed(session: &mut Session, seconds: u64, ends_in_ms: u64) {
        let payload = format!(r#"{{"expires_in_ms":0,"ends_in_ms":{ends_in_ms}}}"#);
        let text = format!(r#"{{"t":"auth_refresh_response","p":{payload}}}"#);
        assert_eq!(receive(session, seconds, &text), 0);
    }

    /// Gives a token; whether it was sent.
    fn give(session: &mut Session, seconds: u64, token: Result<&str, ()>) -> bool {
        let mut out = Vec::new();
        let token = token.map(|token| Some(token.to_owned()));
        let token = token.map_err(|()| Error::connect("no token"));
        let given = session.handle_token(token, at(seconds * 1_000), &mut out);
        given.expect("nothing is to be signed");
        !out.is_empty()
    }

    /// The seconds at which a token is wanted first, from some on.
    fn wanted_from(session: &Session, seconds: u64) -> Option<u64> {
        (seconds..200).find(|seconds| session.wants_token(at(seconds * 1_000)))
    }

    #[test]
    fn a_warning_asks_for_one_token() {
        let mut session = with_function();
        assert_eq!(wanted_from(&session, 0), None);
        warn(&mut session, 10);
        assert_eq!(wanted_from(&session, 10), Some(10));
        assert!(give(&mut session, 10, Ok("h.c.s")));
        assert_eq!(session.next_token_ms(at(44_999)), Some(45_000));
        assert!(session.poll_deadline_ms(at(44_999)) <= 45_000);
        refreshed(&mut session, 11, 3_600_000);
        assert_eq!(wanted_from(&session, 11), None);
        // The next token has a warning of its own.
        warn(&mut session, 50);
        assert_eq!(wanted_from(&session, 50), Some(50));
    }

    #[test]
    fn it_is_asked_again_until_the_end() {
        for token in [Err(()), Ok(""), Ok("h.c.s")] {
            let mut session = with_function();
            warn(&mut session, 10);
            let mut seconds = 10;
            let mut asked = Vec::new();
            while let Some(next) = wanted_from(&session, seconds) {
                asked.push(next);
                let is_sent = give(&mut session, next, token);
                assert_eq!(is_sent, token == Ok("h.c.s"));
                if is_sent {
                    // The server accepts the same token, which prolongs nothing.
                    refreshed(&mut session, next, (80 - next) * 1_000 + 500);
                }
                seconds = next;
            }
            assert_eq!(asked, [10, 45, 63, 72, 76, 78, 79, 80], "{token:?}");
        }
    }

    #[test]
    fn a_server_that_does_not_end_sessions_ends_the_asking() {
        let mut session = with_function();
        warn(&mut session, 10);
        assert!(give(&mut session, 10, Ok("h.c.s")));
        let text = r#"{"t":"auth_refresh_response","p":{"expires_in_ms":1}}"#;
        assert_eq!(receive(&mut session, 10, text), 0);
        assert_eq!(wanted_from(&session, 10), None);
    }

    #[test]
    fn without_a_function_nothing_is_asked() {
        for config in [
            Config::new("ws://a"),
            Config::new("ws://a").with_token("h.c.s"),
        ] {
            let mut session = session(config);
            warn(&mut session, 10);
            assert_eq!(wanted_from(&session, 0), None);
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_the_asking() {
        let mut session = with_function();
        warn(&mut session, 10);
        session.handle_disconnected();
        assert_eq!(wanted_from(&session, 10), None);
        assert!(!give(&mut session, 10, Ok("h.c.s")));
    }
}
