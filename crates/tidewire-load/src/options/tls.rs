//! The certificates of a load.

use std::path::PathBuf;

use tidewire_net::tls;

use super::OptionError;
use super::scenario::Host;
use crate::worker::inputs::Readable;
use crate::worker::target::TargetTls;

/// Trusted authorities, and the client's own certificate.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// A PEM file with the authorities to trust; by default those that browsers trust.
    pub ca: Option<PathBuf>,
    /// A PEM file with a certificate chain for servers that request one.
    pub cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub key: Option<PathBuf>,
    /// The server name that is sent and that the certificate must contain; the URL's host by
    /// default.
    pub sni: Option<String>,
    /// Any certificate is accepted.
    pub insecure: bool,
}

impl TlsOptions {
    pub(super) fn target(&self, host: &Host<'_>, http2: bool) -> Result<TargetTls, OptionError> {
        let sni = self.sni.as_deref().filter(|_| host.is_own());
        let host = sni.unwrap_or(host.parts.host);
        tls::server_name(host).map_err(OptionError::new)?;
        let readable = |path: &Option<PathBuf>| {
            let file = path.as_deref().map(|path| {
                let file = Readable::of(path);
                file.map_err(|error| OptionError::unreadable(path, &error))
            });
            file.transpose()
        };
        let files = (readable(&self.cert)?, readable(&self.key)?);
        let authorities = readable(&self.ca)?;
        let certificate = match &files {
            (Some(cert), Some(key)) => Some((cert.path(), key.path())),
            (None, None) => None,
            _ => {
                return Err(OptionError::new(
                    "--cert and --key belong together: give both",
                ));
            }
        };
        let trust = match (&authorities, self.insecure) {
            (_, true) => tls::Trust::Anybody,
            (Some(file), false) => tls::Trust::File(file.path()),
            (None, false) => tls::Trust::WebRoots,
        };
        let config = tls::client_config_for(&tls::ClientIdentity { trust, certificate });
        let target = TargetTls {
            config: config.map_err(OptionError::new)?,
            host: host.to_owned(),
            authorities_pem: None,
        };
        Ok(match http2 {
            true => target.over_http2(),
            false => target,
        })
    }
}
