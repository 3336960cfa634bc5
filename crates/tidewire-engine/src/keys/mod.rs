//! Keys of tokens from a server: a set of keys (JWKS) is fetched, kept while the server is away, and fetched again.
//!
//! One thread runs the [`link`]. Shards read the keys in force from a [`KeySet`] and never wait.

mod fetch;
mod link;

use self::fetch::Fetch;
use self::link::LinkHandler;
use crate::auth::AuthConfig;
use crate::auth::key_set::{KeySet, KeySetSource, KeySetUrl};
use crate::backend::resolve::Route;
use std::io;
use std::sync::Arc;
use tidewire_net::tls::{self, ClientConfig, ClientIdentity, TlsError, Trust};
use tidewire_net::{Shard, ShardConfig};

/// Why keys cannot be fetched. The caller's fault, but for [`KeysError::System`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The task that fetches a set, to be run on a thread of its own; `None` for a set that is not at a URL.
pub(crate) fn link(set: &Arc<KeySet>) -> Result<Option<Shard<LinkHandler>>, KeysError> {
    let Some(source) = &set.source else {
        return Ok(None);
    };
    let tls = match source.url.is_tls {
        true => Some(tls_config(source)?),
        false => None,
    };
    let route = Route::new(source.url.clone(), tls);
    let fetch = Fetch::new(Arc::clone(set), source);
    let handler = LinkHandler::new(fetch, route);
    let (mut link, mailbox) = Shard::new(&ShardConfig::default(), handler)?;
    set.connect(mailbox.waker());
    link.handler_mut().find_by(mailbox)?;
    Ok(Some(link))
}

/// Checks what [`link`] needs, without a thread or a socket.
pub(crate) fn check(config: &AuthConfig) -> Result<(), TlsError> {
    if let Some(KeySetSource::Url(source)) = &config.key_set
        && source.url.is_tls
    {
        tls_config(source)?;
        tls::server_name(&source.url.host)?;
    }
    Ok(())
}

/// The certificate of the server is checked always.
fn tls_config(source: &KeySetUrl) -> Result<Arc<ClientConfig>, TlsError> {
    let authorities = source.authorities.as_deref();
    tls::client_config_for(&ClientIdentity {
        trust: authorities.map_or(Trust::WebRoots, Trust::File),
        certificate: None,
    })
}
