//! The trait that users of the engine implement.

use crate::model::call_types::{Call, call_error};
use crate::model::queries::SyncRequest;
use crate::model::{CloseReason, ConnectionKey, Message, Peer, ShardWaker};
use crate::session::context::Context;
use crate::state::connect_request::ConnectRequest;
use crate::state::open_calls::Responder;
use crate::topics::decided::{DecidedTopics, PublicationRequest};
use std::cell::Cell;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::Format;
use tidewire_wire::session::PublishRequest;

/// The part of a server that is not the protocol. One value per shard, called on the shard's
/// thread, so that no call may block.
pub trait Application: Send + 'static {
    /// The shard starts. `shard` wakes it from other threads.
    fn on_start(&mut self, shard: ShardWaker) {
        let _ = shard;
    }

    /// True if this application decides who may connect. Asked for each request that nothing forbids so far. Default: the token
    /// decides, and the backend.
    fn decides_connections(&self) -> bool {
        false
    }

    /// A client wants to connect to a server that [decides](Self::decides_connections): let it in, or refuse it, by the
    /// [responder](ConnectRequest::responder), here or later from any thread. Default: its token decides.
    fn on_connect_request(&mut self, request: ConnectRequest) {
        request.responder.decide(None, None);
    }

    /// A session is ready to receive.
    fn on_connect(&mut self, context: &mut Context<'_>, peer: &Peer) {
        let (_, _) = (context, peer);
    }

    /// True if the application, or a receiver to which it passes messages, reads their content. The engine
    /// then refuses a message that some reader could not read (PROTOCOL 4.2 (3)), which costs about a
    /// nanosecond for each two bytes. Default true; false is for applications that only count messages, or
    /// send them back to their sender.
    fn reads_messages(&self) -> bool {
        true
    }

    /// A message that is not the protocol's own arrived.
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>);

    /// A client asks something and waits for the answer (`call_request`). It is answered by
    /// [`Context::respond`] at once, or by [`Responder::respond`] later from any thread. Default:
    /// `NOT_FOUND`.
    ///
    /// ```
    /// use tidewire_engine::{Application, Call, CallError, Context, Message, Responder};
    ///
    /// struct Clock;
    ///
    /// impl Application for Clock {
    ///     fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
    ///
    ///     fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
    ///         match call.t {
    ///             "zone" => {
    ///                 context.respond(&responder, Ok(r#""UTC""#.into()));
    ///             }
    ///             // What takes long is done elsewhere.
    ///             "easter" => {
    ///                 std::thread::spawn(move || responder.respond(Ok(r#"{"month":4,"day":5}"#.into())));
    ///             }
    ///             _ => {
    ///                 let error = CallError { code: "NO_CLUE".into(), message: call.t.into() };
    ///                 context.respond(&responder, Err(error));
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let words = format!("nothing answers to {}", call.t);
        context.respond(&responder, Err(call_error(ErrorCode::NotFound, words)));
    }

    /// The topics about whose publications by clients this application decides. Default: none.
    fn decided_topics(&self) -> Option<&DecidedTopics> {
        None
    }

    /// A client publishes to one of the [decided topics](Self::decided_topics), and may. The responder lets it go on
    /// ([`Responder::accept`]), with another payload ([`Responder::respond_with`]), or refuses it with an error. The
    /// connection is not read before that, so that its messages keep their order. Default: it goes on.
    fn on_publication(
        &mut self,
        context: &mut Context<'_>,
        publication: PublicationRequest<'_>,
        responder: Responder,
    ) {
        let (_, _) = (context, publication);
        responder.accept();
    }

    /// A client asks for the state of topics (`sync_request`). Gives whether it is or will be
    /// answered with snapshots; if not, the client gets `INVALID_ACTION`. Default: what the topics
    /// keep, by [`Context::send_newest`].
    fn on_sync(&mut self, context: &mut Context<'_>, request: &SyncRequest<'_>) -> bool {
        context.send_newest(request)
    }

    /// A session that was announced by [`on_connect`](Self::on_connect) is over.
    fn on_close(&mut self, connection: ConnectionKey, reason: CloseReason) {
        let (_, _) = (connection, reason);
    }

    /// True if the application accepts another message. While it is `false` the shard reads from no
    /// connection, so that TCP holds the senders back; up to one read buffer of messages still arrives. Asked
    /// before each read, and again when the shard is woken.
    fn is_ready(&self) -> bool {
        true
    }

    /// Once per turn of the event loop, after its messages.
    fn on_turn(&mut self) {}
}

/// An application, and whether it is being called.
#[derive(Debug)]
pub(crate) struct Marked<A> {
    application: A,
    pub(crate) is_called: Cell<bool>,
}

impl<A: Application> Marked<A> {
    pub(crate) fn new(application: A) -> Self {
        Self {
            application,
            is_called: Cell::new(false),
        }
    }

    #[inline(always)]
    fn call<T>(&mut self, call: impl FnOnce(&mut A) -> T) -> T {
        self.is_called.set(true);
        let result = call(&mut self.application);
        self.is_called.set(false);
        result
    }

    #[inline(always)]
    pub(crate) fn reads_messages(&self) -> bool {
        self.application.reads_messages()
    }

    pub(crate) fn on_start(&mut self, shard: ShardWaker) {
        self.call(|application| application.on_start(shard));
    }

    pub(crate) fn decides_connections(&self) -> bool {
        self.application.decides_connections()
    }

    pub(crate) fn on_connect_request(&mut self, request: ConnectRequest) {
        self.call(|application| application.on_connect_request(request));
    }

    pub(crate) fn on_connect(&mut self, context: &mut Context<'_>, peer: &Peer) {
        self.call(|application| application.on_connect(context, peer));
    }

    #[inline(always)]
    pub(crate) fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        self.call(|application| application.on_message(context, message));
    }

    pub(crate) fn on_call(
        &mut self,
        context: &mut Context<'_>,
        call: Call<'_>,
        responder: Responder,
    ) {
        self.call(|application| application.on_call(context, call, responder));
    }

    /// Whether the application decides about any publication.
    #[inline]
    fn decides(&self) -> bool {
        let topics = self.application.decided_topics();
        topics.is_some_and(DecidedTopics::is_any)
    }

    /// Whether the application decides about this `publish_request`.
    #[inline]
    pub(crate) fn decides_about(&self, format: Format, bytes: &[u8]) -> bool {
        self.decides() && self.place_of_request(format, bytes).is_some()
    }

    #[cold]
    fn place_of_request(&self, format: Format, bytes: &[u8]) -> Option<usize> {
        let mut scratch = Vec::new();
        let (request, _) = PublishRequest::parse(format, bytes, &mut scratch).ok()?;
        self.place_of(&request.topic)
    }

    /// The place of the pattern by which the application decides about publications to a topic.
    pub(crate) fn place_of(&self, topic: &str) -> Option<usize> {
        self.application.decided_topics()?.place(topic)
    }

    pub(crate) fn on_publication(
        &mut self,
        context: &mut Context<'_>,
        publication: PublicationRequest<'_>,
        responder: Responder,
    ) {
        self.call(|application| application.on_publication(context, publication, responder));
    }

    pub(crate) fn on_sync(&mut self, context: &mut Context<'_>, request: &SyncRequest<'_>) -> bool {
        self.call(|application| application.on_sync(context, request))
    }

    pub(crate) fn on_close(&mut self, connection: ConnectionKey, reason: CloseReason) {
        self.call(|application| application.on_close(connection, reason));
    }

    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.is_called.set(true);
        let is_ready = self.application.is_ready();
        self.is_called.set(false);
        is_ready
    }

    #[inline(always)]
    pub(crate) fn on_turn(&mut self) {
        self.call(Application::on_turn);
    }
}
