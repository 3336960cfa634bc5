//! The options of the program over HTTP.

use crate::model::GivenSetting;
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::task::{Parameters, Task, TaskContext, ok};
use crate::settings::OPTIONS;
use serde::Serialize;
use serde_json::json;

#[derive(Serialize)]
struct ListedSetting {
    #[serde(flatten)]
    given: GivenSetting,
    /// As the reference of options spells it; absent if the option has none.
    default: Option<&'static str>,
}

/// `GET /api/v1/settings`: the options that were given. All others are at their defaults.
pub(crate) fn list(context: &TaskContext, task: &Task) -> ApiResult {
    Parameters::parse(&task.query, &[])?;
    let settings = context.handle.shared.functions.settings.get();
    let settings = settings.ok_or_else(|| ApiError::new(501, "not_supported", NO_SETTINGS))?;
    let listed = (settings.0)().into_iter().map(|given| {
        let spec = OPTIONS.iter().find(|spec| spec.name == given.name);
        ListedSetting {
            default: spec.and_then(|spec| spec.default),
            given,
        }
    });
    ok(&json!({ "settings": listed.collect::<Vec<_>>() }))
}

const NO_SETTINGS: &str = "this program does not say which options it was given";
