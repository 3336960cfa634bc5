//! From an address to an upgraded connection: TCP, TLS, the opening handshake.

use crate::config::{Compression, Config, Tls, TokenPlacement};
use crate::error::{Error, io_words};
use crate::url::Url;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::format::Format;
use tidewire_wire::handshake::client::{
    HEAD_BYTES_MAX, Offer, RequestHead, Response, ResponseError, parse_response,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A connection after the upgrade.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    /// The bytes after the answer.
    pub(crate) rest: Vec<u8>,
    pub(crate) deflate: Option<DeflateParameters>,
}

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Opens connections, with what they have in common.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<TlsConnector>,
}

impl Connector {
    /// Reads the certificates, if one of the endpoints needs them.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut needs_tls = false;
        for endpoint in &config.endpoints {
            needs_tls |= Url::parse(&endpoint.url)?.is_secure;
        }
        let tls = if needs_tls {
            Some(tls_config(&config.tls)?)
        } else {
            None
        };
        Ok(Self {
            tls: tls.map(TlsConnector::from),
        })
    }

    /// Opens a connection. `key` are 16 random bytes.
    pub(crate) async fn open(
        &self,
        config: &Config,
        address: &str,
        token: Option<&str>,
        key: &[u8; 16],
    ) -> Result<Opened, Error> {
        let url = Url::parse(address)?;
        let reach = |error: io::Error| Error::connect(format!("{address}: {}", io_words(&error)));
        let tcp = connect(config.source_address, &url).await.map_err(reach)?;
        tcp.set_nodelay(true).map_err(reach)?;
        let mut stream = match &self.tls {
            Some(connector) if url.is_secure => {
                let name = ServerName::try_from(url.host.clone())
                    .map_err(|_| Error::invalid(format!("{address}: no name for a certificate")))?;
                let tls = connector.connect(name, tcp).await.map_err(reach)?;
                Stream::Tls(Box::new(tls))
            }
            _ => Stream::Plain(tcp),
        };
        upgrade(&mut stream, config, &url, token, key)
            .await
            .map(|(rest, deflate)| Opened {
                stream,
                rest,
                deflate,
            })
    }
}

/// Connects by TCP, to one after another of the addresses that the name has.
async fn connect(source: Option<IpAddr>, url: &Url) -> io::Result<TcpStream> {
    let name = (url.host.as_str(), url.port);
    let Some(source) = source else {
        return TcpStream::connect(name).await;
    };
    let mut failure = io::Error::other(format!("it has no address that {source} can reach"));
    for address in lookup_host(name).await? {
        if address.is_ipv4() != source.is_ipv4() {
            continue;
        }
        let socket = match source {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.bind(SocketAddr::new(source, 0)).map_err(|error| {
            io::Error::new(error.kind(), format!("from {source}: {}", io_words(&error)))
        })?;
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn upgrade(
    stream: &mut Stream,
    config: &Config,
    url: &Url,
    token: Option<&str>,
    key: &[u8; 16],
) -> Result<(Vec<u8>, Option<DeflateParameters>), Error> {
    let mut parameters = Vec::new();
    if config.format == Format::MessagePack {
        parameters.push(("format", "msgpack"));
    }
    if config.compression == Compression::Zlib {
        parameters.push(("compression", "true"));
    }
    let mut headers: Vec<(&str, &str)> = config
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut protocol = None;
    let placed;
    match (token, &config.token_placement) {
        (None, _) => {}
        (Some(token), TokenPlacement::Header) => {
            placed = format!("Bearer {token}");
            headers.push(("Authorization", &placed));
        }
        (Some(token), TokenPlacement::Cookie(name)) => {
            placed = format!("{name}={token}");
            headers.push(("Cookie", &placed));
        }
        (Some(token), TokenPlacement::Query(name)) => parameters.push((name, token)),
        (Some(token), TokenPlacement::Subprotocol(prefix)) => {
            placed = format!("{prefix}{token}");
            protocol = Some(placed.as_str());
        }
    }
    let protocols: Vec<&str> = protocol.into_iter().collect();
    let offer = Offer {
        key,
        protocols: &protocols,
        deflate: (config.compression == Compression::Deflate).then(DeflateParameters::default),
    };
    let head = RequestHead {
        host: &url.host_header(),
        target: &url.target_with(&parameters),
        offer,
        headers: &headers,
    };
    let mut request = Vec::new();
    head.write(&mut request)
        .map_err(|error| Error::invalid(error.to_string()))?;
    exchange(stream, &url.host, &request, &offer).await
}

/// Sends the request and reads the answer to it.
async fn exchange(
    stream: &mut Stream,
    host: &str,
    request: &[u8],
    offer: &Offer<'_>,
) -> Result<(Vec<u8>, Option<DeflateParameters>), Error> {
    let lost = |error: io::Error| Error::connect(format!("{host}: {}", io_words(&error)));
    stream.write_all(request).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut answer = Vec::with_capacity(1_024);
    loop {
        if let Some(response) = parse_response(&answer, offer, HEAD_BYTES_MAX).map_err(refused)? {
            let Response {
                head_bytes,
                deflate,
                ..
            } = response;
            return Ok((answer.split_off(head_bytes), deflate));
        }
        if stream.read_buf(&mut answer).await.map_err(lost)? == 0 {
            let reason = format!("{host}: the server closed the connection in the handshake");
            return Err(Error::connect(reason));
        }
    }
}

fn refused(error: ResponseError) -> Error {
    match error {
        ResponseError::Refused {
            status: 401,
            reason,
            detail,
            ..
        } => Error::Unauthorized(detail.unwrap_or(reason)),
        ResponseError::Refused {
            status,
            retry_after,
            ref retry_at,
            ref date,
            ..
        } => {
            let seconds = retry_after.map(Duration::from_secs);
            let until = |at| time_until(at, date.as_deref());
            let until = retry_at.as_deref().and_then(until);
            Error::Connect {
                reason: error.to_string(),
                status: Some(status),
                retry_after: seconds.or(until).map(|after| after.min(RETRY_MAX)),
            }
        }
        other => Error::connect(other.to_string()),
    }
}

/// The time until an HTTP date (RFC 9110, section 5.6.7), none if it is over; `None` if it is no date. The time
/// counts from the date in the server's answer, because the clock of this machine may be wrong.
fn time_until(date: &str, server_date: Option<&str>) -> Option<Duration> {
    let date = httpdate::parse_http_date(date).ok()?;
    let now = server_date.and_then(|now| httpdate::parse_http_date(now).ok());
    let now = now.unwrap_or_else(SystemTime::now);
    Some(date.duration_since(now).unwrap_or_default())
}

fn tls_config(tls: &Tls) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(error.to_string()))?;
    let builder = match tls {
        Tls::Custom(config) => return Ok(config.clone()),
        Tls::WebRoots => {
            let mut roots = RootCertStore::empty();
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            builder.with_root_certificates(roots)
        }
        Tls::CaFile(path) => {
            let verifier = tidewire_trust::verifier_of_file(path, provider);
            let verifier =
                verifier.map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
    };
    Ok(Arc::new(builder.with_no_client_auth()))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

const RETRY_MAX: Duration = Duration::from_secs(24 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_all_three_forms() {
        let later = SystemTime::now() + Duration::from_secs(1_000);
        let left = time_until(&httpdate::fmt_http_date(later), None).unwrap();
        assert!(left > Duration::from_secs(900) && left <= Duration::from_secs(1_000));
        for over in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(time_until(over, None), Some(Duration::ZERO), "{over}");
            let now = Some("Sun, 06 Nov 1994 08:49:30 GMT");
            assert_eq!(
                time_until(over, now),
                Some(Duration::from_secs(7)),
                "{over}"
            );
        }
        for wrong in ["", "soon", "-1", "99999999999999999999999"] {
            assert_eq!(time_until(wrong, None), None, "{wrong}");
            assert!(time_until(&httpdate::fmt_http_date(later), Some(wrong)).is_some());
        }
    }
}
