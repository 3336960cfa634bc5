//! The broker of several servers.

use super::SettingError;
use super::given::Settings;
use crate::config::broker::{BrokerAddress, BrokerConfig};

pub(super) fn broker(settings: &Settings) -> Result<Option<BrokerConfig>, SettingError> {
    let Some(url) = settings.text("broker") else {
        return Ok(None);
    };
    let address =
        BrokerAddress::parse(&url).map_err(|error| settings.wrong("broker", error.to_string()))?;
    let mut broker = BrokerConfig::new(address);
    broker.authorities = settings.text("broker_ca_file").map(Into::into);
    broker.prefix = settings.text("broker_prefix").unwrap_or(broker.prefix);
    broker.is_durable = settings.flag("broker_is_durable");
    broker.wait_ms = settings.integer("broker_wait_ms").unwrap_or(broker.wait_ms);
    Ok(Some(broker))
}
