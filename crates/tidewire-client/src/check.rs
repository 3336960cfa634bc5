//! Checks of a message before it is sent.

use crate::error::Error;
use crate::payload::Payload;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::session::TYPE_BYTES_MAX;

pub(crate) fn check_message(t: &str, payload: &Payload<'_>) -> Result<(), Error> {
    if t.is_empty() || SystemType::parse(t).is_some() {
        return Err(Error::invalid(format!(
            "the type {t:?} is empty or one of the protocol's"
        )));
    }
    payload.check()
}

pub(crate) fn check_publication(topic: &str, t: &str, payload: &Payload<'_>) -> Result<(), Error> {
    if topic.is_empty() {
        return Err(Error::invalid("a publication needs a topic"));
    }
    check_text("the type", t, TYPE_BYTES_MAX)?;
    check_message(t, payload)
}

pub(crate) fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<(), Error> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(Error::invalid(format!("{what} has 1 to {bytes_max} bytes")));
    }
    Ok(())
}
