//! The workers of a load that are processes: their commands, and the terms that they get.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::OptionError;
use crate::fleet::service::Workers;
use crate::plan::load::LoadPlan;
use crate::worker::contract::load::Load;
use crate::worker::inputs::{self, Inputs};

/// The commands that start the workers, and the options as they were written: so they travel.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    commands: Vec<String>,
    stop_with_worker: bool,
    /// The URL, the options and their inputs.
    load: Load,
    /// The options in the form in which they were read.
    as_read: String,
}

impl WorkerOptions {
    /// The workers of a load of `url` with these commands, and with these options in the form of JSON.
    pub(super) fn new(commands: Vec<String>, url: &str, mut written: Map<String, Value>) -> Self {
        let stop_with_worker = written.remove("stop_with_worker") == Some(Value::Bool(true));
        written.remove("workers");
        Self {
            commands,
            stop_with_worker,
            load: Load {
                url: url.to_owned(),
                options: written,
                ..Load::default()
            },
            as_read: String::new(),
        }
    }

    /// Notes the options that were read, and what was read for them.
    pub(super) fn note(&mut self, as_read: String, inputs: Inputs) {
        self.as_read = as_read;
        self.load.inputs = Arc::new(inputs);
    }

    /// The plan of a load with these workers, from the options of this moment.
    ///
    /// # Errors
    /// Those of the plan, and options that were changed after they had been read.
    pub(super) fn plan(
        &self,
        as_now: &str,
        plan: impl FnOnce() -> Result<LoadPlan, OptionError>,
    ) -> Result<LoadPlan, OptionError> {
        if as_now != self.as_read {
            return Err(OptionError::new(
                "workers get the options as they were written: write all of them there, and change none afterwards",
            ));
        }
        let (planned, inputs) = inputs::noted(plan);
        let mut load = self.load.clone();
        Arc::make_mut(&mut load.inputs).add(inputs);
        Ok(LoadPlan {
            workers: Some(Workers {
                commands: self.commands.clone(),
                stop_with_worker: self.stop_with_worker,
                load,
            }),
            ..planned?
        })
    }
}
