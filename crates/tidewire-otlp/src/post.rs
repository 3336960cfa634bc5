//! One request to the receiver, and what its answer means.

use crate::config::ExporterConfig;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// Posts batches over a connection that is kept.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    headers: Vec<(String, String)>,
}

/// Why a batch was not accepted.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) reason: String,
    /// Whether it helps to send the batch again.
    pub(crate) is_temporary: bool,
}

impl Client {
    pub(crate) fn new(config: &ExporterConfig) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(provider))
            .root_certs(RootCerts::WebPki)
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(TIMEOUT))
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("tidewire/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            agent: agent.into(),
            endpoint: config.endpoint.clone(),
            headers: config.headers.clone(),
        }
    }

    /// Posts a batch; how many of its spans the receiver has rejected.
    pub(crate) fn post(&self, body: &[u8]) -> Result<u64, Refused> {
        let mut request = self
            .agent
            .post(&self.endpoint)
            .content_type("application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let answer = request.send(body);
        let mut answer = answer.map_err(|error| Refused {
            is_temporary: !matches!(error, ureq::Error::Http(_) | ureq::Error::BadUri(_)),
            reason: error.to_string(),
        })?;
        let status = answer.status().as_u16();
        let body = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec();
        if !(200..=299).contains(&status) {
            return Err(Refused {
                reason: format!("status {status}"),
                // OTLP 1.x, "Failures": these and no others are sent again.
                is_temporary: matches!(status, 429 | 502 | 503 | 504),
            });
        }
        let answer = body
            .ok()
            .and_then(|body| ExportTraceServiceResponse::decode(&*body).ok());
        let partial = answer.and_then(|answer| answer.partial_success);
        let rejected = partial.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or_default())
    }
}

/// The time limit of one request, including its connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
