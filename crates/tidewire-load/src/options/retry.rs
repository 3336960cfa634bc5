//! Requests that are sent again.

use super::OptionError;

/// What happens to an HTTP request whose connection is closed before the first byte of its response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Retry {
    /// It has failed.
    #[default]
    Never,
    /// It is sent again, once, if its method allows that and the connection had answered before: the
    /// server may have closed it while the request was on its way (RFC 9112, section 9.3.1).
    IdleClose,
}

impl std::str::FromStr for Retry {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        match text {
            "never" => Ok(Self::Never),
            "idle-close" => Ok(Self::IdleClose),
            other => Err(OptionError::new(format_args!(
                "`{other}` is not a way to retry: write never or idle-close"
            ))),
        }
    }
}
