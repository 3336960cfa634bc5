//! Settings about what stands in front of the server.

use super::{SettingError, Settings, wrong};
use crate::auth::hosts::HostPolicy;
use crate::config::{Config, TrustedProxies};
use tidewire_wire::forwarded::ForwardedHeader;

pub(super) const NAMES: &[&str] = &["trusted_proxy", "forwarded_header", "allow_host"];

pub(super) fn set(settings: Settings<'_>, config: &mut Config) -> Result<(), SettingError> {
    let hosts = settings.texts("allow_host")?.unwrap_or_default();
    config.hosts =
        HostPolicy::from_names(hosts).map_err(|error| wrong("allow_host", error.to_string()))?;
    let networks = settings.texts("trusted_proxy")?.unwrap_or_default();
    let networks = networks.iter().map(|text| {
        text.parse()
            .map_err(|error| wrong("trusted_proxy", format!("{text:?}: {error}")))
    });
    let header = match settings.text("forwarded_header")?.as_deref() {
        None | Some("x-forwarded-for") => ForwardedHeader::XForwardedFor,
        Some("forwarded") => ForwardedHeader::Forwarded,
        Some(_) => {
            let problem = "expected x-forwarded-for or forwarded";
            return Err(wrong("forwarded_header", problem));
        }
    };
    config.proxies = TrustedProxies {
        networks: networks.collect::<Result<_, _>>()?,
        header,
    };
    Ok(())
}
