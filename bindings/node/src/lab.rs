//! The load lab.

use crate::errors::{Failure, argument};
use napi::bindgen_prelude::{Function, Object};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tidewire_bindings::Fault;
use tidewire_load::RunLive;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::table::OPTIONS;
use tidewire_load::plan::load;
use tidewire_load::report::{Report, save_all, terminal};

/// One load, which runs on threads of its own.
#[napi]
pub struct NativeLoad {
    url: String,
    options: String,
    stop: Arc<AtomicBool>,
}

/// Seconds, requests a second, successes, failures, open connections; of the last window that has ended its start in
/// seconds, the number of its latencies and their mean in microseconds.
type Figures = Vec<f64>;
type Progress = ThreadsafeFunction<Figures, (), Figures, napi::Status, false, true>;

#[napi]
impl NativeLoad {
    /// Accepts the options as a JSON object with the names of the command line's flags.
    #[napi(constructor)]
    pub fn new(url: String, options: String) -> napi::Result<Self> {
        LoadOptions::from_json(&url, &options).map_err(argument)?;
        Ok(Self {
            url,
            options,
            stop: Arc::default(),
        })
    }

    /// The names of all options.
    #[napi]
    pub fn option_names() -> Vec<&'static str> {
        let options = OPTIONS.iter().filter(|spec| spec.keyword);
        options.map(|spec| spec.name).collect()
    }

    /// Runs it: the report in JSON and the exit code. `progress` is called about twenty times a second.
    #[napi(ts_return_type = "Promise<[string, number]>")]
    pub fn run<'env>(
        &self,
        env: &'env napi::Env,
        progress: Function<'_, Figures, ()>,
    ) -> napi::Result<Object<'env>> {
        let options = LoadOptions::from_json(&self.url, &self.options).map_err(argument)?;
        let progress: Progress = progress
            .build_threadsafe_function()
            .weak::<true>()
            .callee_handled::<false>()
            .build()?;
        let (deferred, promise) = env.create_deferred::<(String, u32), _>()?;
        let stop = Arc::clone(&self.stop);
        let work = move || {
            // The plan resolves the name of the service, which may be slow.
            let plan = match options.plan() {
                Ok(plan) => plan,
                Err(error) => return deferred.reject(argument(error).into()),
            };
            let outcome = load::run(&plan, &mut Watch(progress), &stop);
            match outcome {
                Ok(report) => {
                    let exit_code = report.exit_code().into();
                    let text = serde_json::to_string(&report).unwrap_or_default();
                    deferred.resolve(move |_env| Ok((text, exit_code)));
                }
                Err(error) => deferred.reject(argument(error).into()),
            }
        };
        let started = thread::Builder::new().name("load".to_owned()).spawn(work);
        started.map_err(|error| {
            let code = "NO_THREAD";
            Failure::from(tidewire_bindings::Failure::new(
                "TidewireError",
                code,
                Fault::Nobody,
                error,
            ))
        })?;
        Ok(promise)
    }

    /// Ends it early, with a partial report.
    #[napi]
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The tables of a report that is given in JSON.
#[napi]
pub fn report_tables(report: String) -> napi::Result<String> {
    Ok(terminal::render(&parsed(&report)?))
}

/// Writes a report, given in JSON, to a directory in all forms: the page's path.
#[napi]
pub fn save_report(report: String, directory: String) -> napi::Result<String> {
    let saved = save_all(&parsed(&report)?, &PathBuf::from(directory)).map_err(argument)?;
    Ok(saved.html.to_string_lossy().into_owned())
}

fn parsed(report: &str) -> Result<Report, Failure> {
    serde_json::from_str(report).map_err(argument)
}

/// Shows a load to JavaScript.
struct Watch(Progress);

impl tidewire_load::Progress for Watch {
    fn tick(&mut self, live: &RunLive) {
        let service = &live.service;
        let ended = service.window.as_ref();
        let figures = vec![
            service.elapsed.as_secs_f64(),
            live.rate_per_s,
            service.requests.succeeded as f64,
            service.requests.failed as f64,
            service.connected as f64,
            ended.map_or(-1.0, |ended| ended.start().as_secs_f64()),
            ended.map_or(0.0, |ended| ended.window.latencies() as f64),
            ended
                .and_then(|ended| ended.window.mean_us())
                .unwrap_or(0.0),
        ];
        self.0
            .call(figures, ThreadsafeFunctionCallMode::NonBlocking);
    }
}
