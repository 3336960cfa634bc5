//! The broker of several servers.

use super::SettingError;
use super::given::Settings;
use crate::config::broker::{BrokerAddress, BrokerConfig, PasswordSource};

pub(super) fn broker(settings: &Settings) -> Result<Option<BrokerConfig>, SettingError> {
    let Some(url) = settings.text("broker") else {
        return Ok(None);
    };
    let addresses = BrokerAddress::parse_list(&url);
    let addresses = addresses.map_err(|error| settings.wrong("broker", error.to_string()))?;
    let mut broker = BrokerConfig::new(addresses[0].clone());
    broker.addresses = addresses;
    broker.partitions = match settings.integer("broker_partitions") {
        Some(partitions) => u16::try_from(partitions).unwrap_or(u16::MAX),
        None => broker.partitions(),
    };
    let checked = broker.check();
    checked.map_err(|words| settings.wrong("broker", words))?;
    broker.authorities = settings.text("broker_ca_file").map(Into::into);
    broker.certificate = match (
        settings.text("broker_certificate_file"),
        settings.text("broker_key_file"),
    ) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        (Some(_), None) => {
            let words = "a certificate needs its key: give broker_key_file as well";
            return Err(settings.wrong("broker_certificate_file", words));
        }
        (None, Some(_)) => {
            let words = "a key needs its certificate: give broker_certificate_file as well";
            return Err(settings.wrong("broker_key_file", words));
        }
    };
    broker.username = settings.text("broker_username");
    let file = settings.text("broker_password_file");
    let command = settings.text("broker_password_command");
    broker.password = match (file, command) {
        (Some(_), Some(_)) => {
            let words = "the password comes from a file or from a command, not from both";
            return Err(settings.wrong("broker_password_command", words));
        }
        (Some(file), None) => Some(PasswordSource::File(file.into())),
        (None, Some(command)) => Some(PasswordSource::Command(command)),
        (None, None) => None,
    };
    if (broker.username.is_some() || broker.password.is_some())
        && broker.addresses.iter().any(BrokerAddress::has_login)
    {
        let words =
            "the URL has a user or a password; give it there or by the other options, not by both";
        return Err(settings.wrong("broker", words));
    }
    broker.prefix = settings.text("broker_prefix").unwrap_or(broker.prefix);
    broker.is_durable = settings.flag("broker_is_durable");
    if broker.is_durable && broker.addresses.iter().any(BrokerAddress::fails_over) {
        let words = "a master with sentinels or in a cluster may be replaced by a replica that lacks \
                     its last writes: it is not durable";
        return Err(settings.wrong("broker_is_durable", words));
    }
    broker.wait_ms = settings.integer("broker_wait_ms").unwrap_or(broker.wait_ms);
    let lost_close_s = settings.integer("broker_lost_close_s");
    broker.lost_close_ms = lost_close_s
        .filter(|s| *s > 0)
        .map(|s| s.saturating_mul(1_000));
    Ok(Some(broker))
}
