//! Filters of documents.

use crate::errors::{Failure, argument};
use napi_derive::napi;

/// A compiled filter.
#[napi]
pub struct NativeFilter {
    filter: tidewire_engine::Filter,
}

#[napi]
impl NativeFilter {
    /// Accepts the filter's document as JSON text.
    #[napi(constructor)]
    pub fn new(document: String) -> napi::Result<Self> {
        let document = serde_json::from_str(&document).map_err(argument)?;
        let filter = tidewire_engine::Filter::compile(&document).map_err(Failure::from)?;
        Ok(Self { filter })
    }

    /// True if a payload, given as JSON text, passes the filter.
    #[napi]
    pub fn matches(&self, payload: String) -> bool {
        self.filter.matches(payload.as_bytes())
    }

    /// The filter's document as JSON text, the same for equal documents.
    #[napi(getter)]
    pub fn document(&self) -> &str {
        self.filter.source()
    }
}
