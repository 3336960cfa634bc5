//! Basic authentication (RFC 7617).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::OptionError;
use crate::worker::template::{Escape, Names, Template};

/// Name and password, with their values.
///
/// # Errors
/// There is no colon between them, or a wrong template.
pub(super) fn template(text: &str, names: &Names) -> Result<Template, OptionError> {
    let template = Template::of(text.as_bytes(), names, Escape::None).map_err(OptionError::new)?;
    match template.with_digits().contains(&b':') {
        true => Ok(template),
        false => Err(OptionError::new(
            "the credentials have no colon: write a name, a colon and a password",
        )),
    }
}

/// The value of `Authorization`.
pub(super) fn basic(credentials: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}
