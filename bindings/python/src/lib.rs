//! The native module of the Python package `tidewire`: a translation layer, without rules of its own.

use pyo3::prelude::*;

/// What the package's Python files build on.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
