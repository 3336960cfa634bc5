//! The upgrade of a connection to WebSocket.

use std::sync::Arc;

use rand::Rng;
use tidewire_net::Io;
use tidewire_wire::frame::Role;
use tidewire_wire::handshake::client::{HEAD_BYTES_MAX, Offer, RequestHead, parse_response};
use tidewire_wire::message::MessageReader;

use super::{MESSAGE_BYTES_MAX, Messages, MessagesUser, unix_s};
use crate::accounting::failure::Failure;
use crate::worker::service::Core;
use crate::worker::target::TokenPlace;
use crate::worker::template::Template;
use crate::worker::websocket::layer::Layer;

impl Messages {
    pub(super) fn upgrade(&mut self, core: &mut Core, io: &mut Io, user: &mut MessagesUser) {
        let setup = Arc::clone(&self.setup);
        // The values of the last connection are not those of this one.
        let captured = user.script.captured.iter_mut();
        captured.take(setup.captured).for_each(Vec::clear);
        let target = rendered(core, user, &setup.path);
        let given: Vec<(&str, String)> = setup
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), rendered(core, user, value)))
            .collect();
        let token = setup
            .token
            .token(user.number)
            .map(|token| match &setup.token_place {
                TokenPlace::Bearer => ("Authorization", format!("Bearer {token}")),
                TokenPlace::Cookie(name) => ("Cookie", format!("{name}={token}")),
            });
        let token = token.as_ref().map(|(name, value)| (*name, value.as_str()));
        let given = given.iter().map(|(name, value)| (*name, value.as_str()));
        let extensions = setup.layer.offer_header();
        let extensions = extensions.map(|value| ("Sec-WebSocket-Extensions", value));
        let headers = token.into_iter().chain(extensions).chain(given);
        let headers: Vec<(&str, &str)> = headers.collect();
        user.link.session.key = core.random.random();
        let protocols: Vec<&str> = setup.protocols.iter().map(String::as_str).collect();
        let head = RequestHead {
            host: &setup.host,
            target: &target,
            // The header of extensions is among the others.
            offer: offer(&user.link.session.key, &protocols, Layer::Plain),
            headers: &headers,
        };
        let mut bytes = Vec::new();
        let is_written = head.write(&mut bytes).is_ok();
        if let Some(origin) = &core.target(user).cookies
            && is_written
            && !user.jar.is_empty()
        {
            let head = std::mem::take(&mut bytes);
            user.jar
                .write((&head, head.len()), origin, unix_s(), &mut bytes);
        }
        match user.link.socket.filter(|_| is_written) {
            Some(id) => {
                core.tally.traffic.sent.wire += bytes.len() as u64;
                core.tally.traffic.sent.head += bytes.len() as u64;
                io.send(id, &bytes);
            }
            None => core.refuse(io, user, "bad-header"),
        }
    }

    /// Handles the answer to the upgrade, and returns the number of used bytes.
    pub(super) fn handle_response(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut MessagesUser,
        data: &[u8],
    ) -> usize {
        let key = user.link.session.key;
        let layer = self.setup.layer;
        let protocols: Vec<&str> = self.setup.protocols.iter().map(String::as_str).collect();
        match parse_response(data, &offer(&key, &protocols, layer), HEAD_BYTES_MAX) {
            Ok(None) => 0,
            Ok(Some(response)) if !layer.is_agreed(response.deflate) => {
                core.refuse(io, user, Failure::NoDeflate.name());
                data.len()
            }
            Ok(Some(response)) => {
                core.tally.traffic.received.head += response.head_bytes as u64;
                if core.tally.server.is_none() && user.link.target == 0 {
                    core.tally.server = response.server;
                }
                user.link.session.is_upgraded = true;
                let reader = MessageReader::new(Role::Client, MESSAGE_BYTES_MAX);
                user.link.session.reader = Some(match layer {
                    Layer::Deflate => reader.with_compression(),
                    _ => reader,
                });
                self.begin(core, io, user);
                response.head_bytes
            }
            Err(error) => {
                core.refuse(io, user, upgrade_error(&error));
                data.len()
            }
        }
    }
}

/// A part of the upgrade with its values.
fn rendered(core: &mut Core, user: &MessagesUser, template: &Template) -> String {
    let mut text = Vec::new();
    match template.as_fixed() {
        Some(fixed) => text.extend_from_slice(fixed),
        // It has no part that makes bytes, so that it can be written with all values.
        None => core
            .render_template(user, template, &mut text)
            .unwrap_or_default(),
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn offer<'a>(key: &'a [u8; 16], protocols: &'a [&'a str], layer: Layer) -> Offer<'a> {
    Offer {
        key,
        protocols,
        deflate: layer.offer(),
    }
}

fn upgrade_error(error: &tidewire_wire::handshake::client::ResponseError) -> &'static str {
    match Failure::of_response(error) {
        Failure::Status(401) => "upgrade-unauthorized",
        Failure::Status(403) => "upgrade-forbidden",
        Failure::Status(404) => "upgrade-not-found",
        Failure::Status(429) => "upgrade-too-many-requests",
        Failure::Status(500..) => "upgrade-server-error",
        Failure::Status(_) => "upgrade-refused",
        _ => "bad-upgrade",
    }
}
