//! Late answers of a broker as promises: JavaScript's event loop runs meanwhile.

use super::NativeServer;
use super::inquiries::written;
use super::publishing::{NewPublicationOptions, PackedPayloads, Published, close_code, shown};
use crate::content::content_of;
use crate::errors::{Failure, argument};
use napi::bindgen_prelude::{AsyncTask, BufferSlice, Either, Object};
use napi::{Env, Task};
use napi_derive::napi;
use tidewire_bindings::server::publishing::{PendingPublication, PublishStart, publish};
use tidewire_bindings::server::queries;
use tidewire_engine::{ConnectionKey, Handle, HistoryQuery, NewPublication, TopicQuery};

#[napi]
impl NativeServer {
    /// Publishes to a topic: gives the result, or a promise of it if a broker answers later.
    #[napi(ts_return_type = "Published | Promise<Published>")]
    pub fn publish_later<'env>(
        &self,
        env: &'env Env,
        topic: String,
        name: String,
        payload: String,
        options: Option<NewPublicationOptions>,
    ) -> napi::Result<Either<Published, Object<'env>>> {
        let mut new = NewPublication::new(name, content_of(payload)?);
        if let Some(options) = options {
            new = self.with_options(new, options)?;
        }
        Ok(match publish(self.handle()?, &topic, &new) {
            PublishStart::Done(result) => Either::A(shown(&result.map_err(Failure::from)?)),
            PublishStart::Pending(pending) => Either::B(promise(env, pending)?),
        })
    }

    /// Publishes payloads to one topic, in their order, as `publishMany` does, but stops at the first that a broker
    /// answers later: then the third result is a promise for it, and the first is where it begins.
    #[napi(ts_return_type = "[number, number, Promise<Published> | undefined]")]
    pub fn publish_many_later<'env>(
        &self,
        env: &'env Env,
        topic: String,
        name: String,
        priority_number: u32,
        payloads: BufferSlice<'_>,
        at: u32,
    ) -> napi::Result<(u32, u32, Option<Object<'env>>)> {
        let handle = self.handle()?;
        let mut payloads = PackedPayloads::new(name, priority_number, &payloads, at)?;
        let mut published = 0;
        while let Some(new) = payloads.first()? {
            match publish(handle, &topic, &new) {
                PublishStart::Done(result) => match payloads.published(result)? {
                    Some(is_new) => published += u32::from(is_new),
                    None => break,
                },
                PublishStart::Pending(pending) => {
                    let promise = promise(env, pending)?;
                    return Ok((payloads.at(), published, Some(promise)));
                }
            }
        }
        Ok((payloads.at(), published, None))
    }

    /// `history` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn history_later(
        &self,
        topic: String,
        since: Option<f64>,
        limit: u32,
        newest_first: bool,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        let query = HistoryQuery {
            since: since.map(|since| since as u64),
            limit: limit as usize,
            newest_first,
        };
        self.inquire(move |handle| Ok(queries::history(handle, &topic, query)?.to_string()))
    }

    /// `presence` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn presence_later(&self, topic: String, limit: u32) -> napi::Result<AsyncTask<Inquiry>> {
        self.inquire(move |handle| {
            Ok(queries::presence(handle, &topic, limit as usize)?.to_string())
        })
    }

    /// `forgetHistory` on another thread: `true` or `false`.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn forget_history_later(&self, topic: String) -> napi::Result<AsyncTask<Inquiry>> {
        self.inquire(move |handle| Ok(handle.forget_history(&topic)?.to_string()))
    }

    /// `listConnections` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn list_connections_later(
        &self,
        user: Option<String>,
        topic: Option<String>,
        after: Option<String>,
        limit: u32,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        self.inquire(move |handle| {
            let limit = limit as usize;
            let items = queries::list_connections(handle, user, topic, after.as_deref(), limit);
            Ok(written(&items?))
        })
    }

    /// `listTopics` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn list_topics_later(
        &self,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        let query = TopicQuery {
            prefix,
            after,
            limit: limit as usize,
        };
        self.inquire(move |handle| Ok(written(&queries::list_topics(handle, &query)?)))
    }

    /// `subscribeUser` and `unsubscribeUser` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn subscribe_user_later(
        &self,
        user: String,
        topic: String,
        is_wanted: bool,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        self.inquire(move |handle| {
            match is_wanted {
                true => handle.subscribe_user(&user, &topic)?,
                false => handle.unsubscribe_user(&user, &topic)?,
            }
            Ok(NOTHING.to_owned())
        })
    }

    /// `disconnectUser` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn disconnect_user_later(
        &self,
        user: String,
        code: u32,
        reason: String,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        let code = close_code(code)?;
        self.inquire(move |handle| {
            handle.close_user(&user, code, &reason)?;
            Ok(NOTHING.to_owned())
        })
    }

    /// `disconnect` on another thread.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn disconnect_later(
        &self,
        id: String,
        code: u32,
        reason: String,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        let (key, code): (ConnectionKey, _) = (id.parse().map_err(argument)?, close_code(code)?);
        self.inquire(move |handle| {
            handle.close_with(key, code, &reason)?;
            Ok(NOTHING.to_owned())
        })
    }
}

impl NativeServer {
    fn inquire(
        &self,
        ask: impl FnOnce(&Handle) -> Result<String, tidewire_bindings::Failure> + Send + 'static,
    ) -> napi::Result<AsyncTask<Inquiry>> {
        let handle = self.handle()?.clone();
        let ask = move || Ok(ask(&handle).map_err(Failure::from)?);
        Ok(AsyncTask::new(Inquiry(Some(Box::new(ask)))))
    }
}

/// A call that waits on a thread of Node. Its result is JSON text.
pub struct Inquiry(Option<Ask>);

type Ask = Box<dyn FnOnce() -> napi::Result<String> + Send>;

impl Task for Inquiry {
    type Output = String;
    type JsValue = String;

    fn compute(&mut self) -> napi::Result<String> {
        match self.0.take() {
            Some(ask) => ask(),
            None => Ok(NOTHING.to_owned()),
        }
    }

    fn resolve(&mut self, _env: Env, text: String) -> napi::Result<String> {
        Ok(text)
    }
}

fn promise(env: &Env, pending: PendingPublication) -> napi::Result<Object<'_>> {
    let (deferred, promise) = env.create_deferred::<Published, _>()?;
    pending.on_answer(move |result| match result {
        Ok(published) => deferred.resolve(move |_env| Ok(shown(&published))),
        Err(error) => deferred.reject(Failure::from(error).into()),
    });
    Ok(promise)
}

const NOTHING: &str = "null";
