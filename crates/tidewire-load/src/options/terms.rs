//! The plan of a worker, from the terms that its controller sends.

use super::load::LoadOptions;
use crate::fleet::serve::Planned;
use crate::worker::contract::load::Load;
use crate::worker::inputs;

/// The plan of a worker from its terms.
///
/// # Errors
/// An option is wrong here, although the controller accepted it: such as a host that this machine cannot resolve.
pub fn planned(load: &Load) -> Result<Planned, String> {
    let plan = inputs::given(load.inputs.clone(), || {
        LoadOptions::from_values(&load.url, load.options.clone())?.plan()
    });
    let plan = plan.map_err(|error| error.to_string())?;
    let plan = match load.over_http2 {
        true => plan.over_http2(),
        false => plan,
    };
    Ok(Planned {
        setup: plan.setup,
        rhythm: plan.rhythm,
    })
}
