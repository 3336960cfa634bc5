//! The options about what stands in front of the server.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use tidewire_engine::hosts;
use tidewire_engine::{ForwardedHeader, HostPolicy, Network, TrustedProxies};

#[derive(Debug, Args)]
#[command(next_help_heading = "In front of the server")]
pub(super) struct FrontFlags {
    /// A name by which the server may be called besides addresses and localhost, such as `app.example.com` or
    /// `*.example.com`, or `any`; may be given several times [default: any, but none for web pages on a loopback address
    /// without authentication]
    #[arg(long, value_name = "HOST", value_parser = host, value_delimiter = ',')]
    allow_host: Vec<String>,
    /// A proxy that is believed when it tells whom it forwards, by a PROXY header (version 1 or 2) or a header line; may
    /// be given several times
    #[arg(long, value_name = "ADDRESS[/PREFIX]", value_delimiter = ',')]
    trusted_proxy: Vec<Network>,
    /// The header line that trusted proxies write
    #[arg(long, value_enum, default_value = "x-forwarded-for")]
    forwarded_header: ForwardedHeaderFlag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ForwardedHeaderFlag {
    XForwardedFor,
    Forwarded,
}

impl FrontFlags {
    pub(super) fn hosts(&self) -> Result<HostPolicy, Failure> {
        HostPolicy::from_names(self.allow_host.clone()).map_err(Failure::usage)
    }

    pub(super) fn proxies(&self) -> TrustedProxies {
        TrustedProxies {
            networks: self.trusted_proxy.clone(),
            header: match self.forwarded_header {
                ForwardedHeaderFlag::XForwardedFor => ForwardedHeader::XForwardedFor,
                ForwardedHeaderFlag::Forwarded => ForwardedHeader::Forwarded,
            },
        }
    }
}

fn host(text: &str) -> Result<String, hosts::InvalidHost> {
    hosts::check(text).map(|()| text.to_owned())
}
