//! The backend that events are sent to.

use super::SettingError;
use super::given::Settings;
use super::lookup::nearest;
use super::rules::saturated;
use crate::config::backend::{
    BackendAway, BackendConfig, BackendEvent, BackendEvents, BackendSecret, BackendUrl,
};

pub(super) fn backend(settings: &Settings) -> Result<Option<BackendConfig>, SettingError> {
    let Some(url) = settings.text("backend") else {
        return match settings.texts("backend_events") {
            Some(names) if !names.is_empty() => {
                let problem = "there is no backend that gets them: give `backend`";
                Err(settings.wrong("backend_events", problem))
            }
            _ => Ok(None),
        };
    };
    let url =
        BackendUrl::parse(&url).map_err(|error| settings.wrong("backend", error.to_string()))?;
    let mut backend = BackendConfig::new(url);
    backend.events = events(settings)?;
    backend.secret = secret(settings)?;
    backend.authorities = settings.text("backend_ca_file").map(Into::into);
    if settings.text("backend_away").as_deref() == Some("allow") {
        backend.away = BackendAway::Allow;
    }
    let sizes = [
        ("backend_connections_max", &mut backend.connections_max),
        ("backend_in_flight_max", &mut backend.in_flight_max),
        (
            "backend_in_flight_bytes_max",
            &mut backend.in_flight_bytes_max,
        ),
        ("backend_answer_bytes_max", &mut backend.answer_bytes_max),
    ];
    for (name, size) in sizes {
        *size = settings.integer(name).map_or(*size, saturated);
    }
    let times = [
        (
            "backend_connect_timeout_ms",
            &mut backend.connect_timeout_ms,
        ),
        ("backend_timeout_ms", &mut backend.timeout_ms),
        ("backend_idle_timeout_ms", &mut backend.idle_timeout_ms),
    ];
    for (name, time) in times {
        *time = settings.integer(name).unwrap_or(*time);
    }
    Ok(Some(backend))
}

fn events(settings: &Settings) -> Result<BackendEvents, SettingError> {
    let names = settings.texts("backend_events").unwrap_or_default();
    if names.is_empty() {
        let problem = "a backend without events is asked nothing: give `backend_events`";
        return Err(settings.wrong("backend", problem));
    }
    let known = || BackendEvent::ALL.into_iter();
    let event = |name: &String| {
        let found = known().find(|event| event.name() == name);
        found.ok_or_else(|| {
            let hint = nearest(name, known().map(BackendEvent::name));
            let hint = hint.map_or_else(String::new, |hint| format!(", did you mean {hint}?"));
            let list: Vec<&str> = known().map(BackendEvent::name).collect();
            let list = list.join(", ");
            let problem = format!("there is no event {name}{hint}; there are {list}");
            settings.wrong("backend_events", problem)
        })
    };
    names.iter().map(event).collect()
}

fn secret(settings: &Settings) -> Result<Option<BackendSecret>, SettingError> {
    let ways = ["backend_secret", "backend_secret_file"];
    let (name, secret) = match settings.strongest(&ways)? {
        Some("backend_secret") => {
            let secret = settings.text("backend_secret").unwrap_or_default();
            ("backend_secret", secret.into_bytes())
        }
        Some(name) => (name, settings.secret_file(name)?.unwrap_or_default()),
        None => return Ok(None),
    };
    if secret.len() < BACKEND_SECRET_BYTES_MIN {
        let problem = format!("a secret has at least {BACKEND_SECRET_BYTES_MIN} bytes");
        return Err(settings.wrong(name, problem));
    }
    Ok(Some(BackendSecret(secret)))
}

/// The shortest secret, in bytes.
const BACKEND_SECRET_BYTES_MIN: usize = 16;
