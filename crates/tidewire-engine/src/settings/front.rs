//! Options of host names and trusted proxies.

use super::SettingError;
use super::given::Settings;
use crate::auth::hosts::HostPolicy;
use crate::config::{Config, TrustedProxies};
use tidewire_wire::forwarded::ForwardedHeader;

pub(super) fn set(settings: &Settings, config: &mut Config) -> Result<(), SettingError> {
    let hosts = settings.texts("allow_host").unwrap_or_default();
    config.hosts = HostPolicy::from_names(hosts)
        .map_err(|error| settings.wrong("allow_host", error.to_string()))?;
    let networks = settings.texts("trusted_proxy").unwrap_or_default();
    let networks = networks.iter().map(|text| {
        let wrong = |error| settings.wrong("trusted_proxy", format!("{text:?}: {error}"));
        text.parse().map_err(wrong)
    });
    config.proxies = TrustedProxies {
        networks: networks.collect::<Result<_, _>>()?,
        header: match settings.text("forwarded_header").as_deref() {
            Some("forwarded") => ForwardedHeader::Forwarded,
            _ => ForwardedHeader::XForwardedFor,
        },
    };
    Ok(())
}
