//! Other servers than that of the URL, to which users of a scenario speak.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::options::OptionError;
use crate::worker::target::Parts;

/// A server in the form of its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "a host is a URL in quotes, or a table with `url` and perhaps `headers`"
)]
pub(super) enum HostText {
    Url(String),
    Table(HostTable),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// A server of a load.
#[derive(Debug)]
pub(in crate::options) struct Host<'a> {
    /// Its name in the scenario; empty for that of the URL.
    pub(in crate::options) name: &'a str,
    pub(in crate::options) parts: Parts<'a>,
    /// The headers of all requests to it, or of the upgrade.
    pub(in crate::options) headers: Vec<(String, String)>,
}

impl Host<'_> {
    /// Whether it is the server of the URL.
    pub(in crate::options) fn is_own(&self) -> bool {
        self.name.is_empty()
    }
}

/// The servers, in the order of their names.
///
/// # Errors
/// A URL is wrong, or no request names the server.
pub(super) fn hosts(
    texts: &BTreeMap<String, HostText>,
    is_named: impl Fn(&str) -> bool,
) -> Result<Vec<Host<'_>>, OptionError> {
    let hosts = texts.iter().map(|(name, text)| {
        let wrong = |error: &dyn std::fmt::Display| {
            OptionError::new(format_args!("the host `{name}`: {error}"))
        };
        let (url, headers) = match text {
            HostText::Url(url) => (url, None),
            HostText::Table(table) => (&table.url, Some(&table.headers)),
        };
        if name.is_empty() || !is_named(name) {
            return Err(wrong(
                &"no request goes there: write its name as `host` of a request, or remove it",
            ));
        }
        let headers = headers.into_iter().flatten();
        Ok(Host {
            name,
            parts: Parts::of_service(url).map_err(|error| wrong(&error))?,
            headers: headers
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    });
    hosts.collect()
}
