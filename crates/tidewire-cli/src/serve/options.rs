//! The options of `tidewire serve`, from the table of the engine: flags, variables of the environment,
//! and keys of a configuration file.

use crate::config_file;
use crate::failure::Failure;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use tidewire_engine::settings::{
    GROUPS, Kind, OPTIONS, OptionSpec, Origin, SettingError, Settings, Way, nearest, spelled,
};
use tidewire_engine::{BrokerConfig, Config};

/// The flags that were given.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServeFlags {
    /// Each value under the name of its option.
    given: Vec<(&'static str, Value)>,
    /// End when standard input ends, as it does when the parent process is gone.
    pub(crate) stop_with_stdin: bool,
    /// Print the configuration and end.
    pub(crate) print_config: bool,
    /// Print the meaning of the configuration and end.
    pub(crate) check: bool,
}

impl ServeFlags {
    /// The options of all sources: a flag overrides a variable, and a variable overrides the file.
    ///
    /// # Errors
    /// An option is unknown or has a wrong value, or the file cannot be read.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::new(Way::Flag);
        for (name, value) in &self.given {
            let set = settings.set(Origin::of(Way::Flag), name, value);
            set.map_err(failure)?;
        }
        for spec in OPTIONS {
            let variable = spec.variable.and_then(std::env::var_os);
            if let Some(value) = variable {
                let value = utf8(&spec.spelled(Way::Variable), value)?;
                let set = settings.set(Origin::of(Way::Variable), spec.name, &value.into());
                set.map_err(failure)?;
            }
        }
        if let Some(path) = settings.text("config") {
            let file = config_file::read(Path::new(&path))?;
            for entry in &file.entries {
                let origin = Origin::file(&entry.place);
                let set = settings.set(origin, &entry.key, &entry.value);
                set.map_err(failure)?;
            }
            for rule in file.rules {
                let origin = Origin::file(&rule.place);
                let keys = rule.entries.into_iter().map(|entry| {
                    let origin = Origin::file(&entry.place);
                    (entry.key, entry.value, origin)
                });
                let added = settings.add_rule(&origin, &keys.collect::<Vec<_>>());
                added.map_err(failure)?;
            }
        }
        Ok(settings)
    }
}

/// An error of the engine's settings as the program reports it.
pub(super) fn failure(error: SettingError) -> Failure {
    match error {
        SettingError::NoKey { .. } => {
            Failure::usage(format!("{error} (`tidewire token` makes tokens to try)"))
        }
        _ => Failure::usage(error),
    }
}

/// Warnings about variables that look like options of this program and are none. An orchestrator may set such
/// names for its own purposes, so that they are no errors.
fn unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known = || OPTIONS.iter().filter_map(|spec| spec.variable);
    let mut unknown: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX))
        .filter(|name| !known().any(|known| known == name) && !OF_OTHERS.contains(&name.as_str()))
        .collect();
    unknown.sort();
    let warning = |name: String| {
        // All names have the same prefix, which is no sign of likeness.
        let ends = known().filter_map(|known| known.strip_prefix(PREFIX));
        let nearest = nearest(&name[PREFIX.len()..], ends);
        let hint = nearest.map_or_else(String::new, |end| format!("; did you mean {PREFIX}{end}?"));
        format!("the variable {name} is not an option and has no effect{hint}")
    };
    unknown.into_iter().map(warning).collect()
}

/// The value is not shown, because it may be a secret.
fn utf8(name: &str, value: OsString) -> Result<String, Failure> {
    let not_text = |_| Failure::usage(format!("{name}: expected text in UTF-8"));
    value.into_string().map_err(not_text)
}

impl Args for ServeFlags {
    fn augment_args(command: Command) -> Command {
        let flags = OPTIONS.iter().filter(|spec| spec.flag).map(flag);
        let check =
            switch(CHECK).help("Read the configuration, say what it means, and start nothing");
        command.arg(check).args(flags).args(HIDDEN.map(hidden))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let [stop_with_stdin, print_config] = HIDDEN.map(|name| matches.get_flag(name));
        (self.stop_with_stdin, self.print_config) = (stop_with_stdin, print_config);
        self.check = matches.get_flag(CHECK);
        let specs = OPTIONS.iter().filter(|spec| spec.flag);
        self.given
            .extend(specs.filter_map(|spec| given(matches, spec)));
        Ok(())
    }
}

/// The flags for the place of a cluster's broker, and for a configuration file that contains it.
#[derive(Debug, Clone, Default)]
pub(crate) struct BrokerFlags(ServeFlags);

impl BrokerFlags {
    /// The broker by the options of all sources.
    ///
    /// # Errors
    /// As [`ServeFlags::settings`], or there is no broker.
    pub(crate) fn broker(&self) -> Result<BrokerConfig, Failure> {
        let broker = self.0.settings()?.broker().map_err(failure)?;
        broker.ok_or_else(|| Failure::usage("say where the broker is: --broker or --config"))
    }

    fn specs() -> impl Iterator<Item = &'static OptionSpec> {
        let is_used = |spec: &&OptionSpec| {
            spec.name == "config" || (spec.group == "cluster" && !OF_SERVING.contains(&spec.name))
        };
        OPTIONS.iter().filter(is_used)
    }
}

impl Args for BrokerFlags {
    fn augment_args(command: Command) -> Command {
        command.args(Self::specs().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for BrokerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = Self::specs().filter_map(|spec| given(matches, spec));
        self.0.given.extend(given);
        Ok(())
    }
}

/// The options of a cluster that only a server needs.
const OF_SERVING: [&str; 3] = ["broker_partitions", "broker_wait_ms", "broker_lost_close_s"];

/// The value of an option, if its flag was given.
fn given(matches: &ArgMatches, spec: &OptionSpec) -> Option<(&'static str, Value)> {
    let values = matches.get_many::<String>(spec.name)?;
    let mut values: Vec<Value> = values.cloned().map(Value::from).collect();
    let value = match spec.kind {
        Kind::List(_) | Kind::Counts => Value::Array(values),
        _ => values.pop().unwrap_or_default(),
    };
    Some((spec.name, value))
}

/// The flag of an option. Its value is checked where those of all sources are.
fn flag(spec: &OptionSpec) -> Arg {
    let name = spec.name.replace('_', "-");
    let arg = Arg::new(spec.name)
        .long(name)
        .value_name(spec.placeholder)
        .help(help(spec));
    let group = GROUPS.iter().find(|group| group.name == spec.group);
    let arg = match group {
        Some(group) if group.name != GROUPS[0].name => arg.help_heading(group.title),
        _ => arg,
    };
    match spec.kind {
        Kind::Boolean => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        Kind::List(_) | Kind::Counts => arg.action(ArgAction::Append).value_delimiter(','),
        _ => arg,
    }
}

fn help(spec: &OptionSpec) -> String {
    let several = match spec.kind {
        Kind::List(_) | Kind::Counts => "; may be given several times",
        _ => "",
    };
    let default = spec.default.unwrap_or(spec.unset);
    let default = spelled(default, Way::Flag);
    format!(
        "{}{several} [default: {default}]",
        spelled(spec.help, Way::Flag)
    )
}

/// A switch for programs that start this one.
fn hidden(name: &'static str) -> Arg {
    switch(name).hide(true)
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name.replace('_', "-"))
        .action(ArgAction::SetTrue)
}

const HIDDEN: [&str; 2] = ["stop_with_stdin", "print_config"];

const CHECK: &str = "check";

const PREFIX: &str = "TIDEWIRE_";

/// Variables of other commands and programs of this repository.
const OF_OTHERS: &[&str] = &["TIDEWIRE_TOKEN", "TIDEWIRE_PROGRAM"];

/// Settings and variables that are permitted but most likely not meant.
pub(super) fn warnings(settings: &Settings, config: &Config) -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let mut warnings = unknown_variables(names);
    warnings.extend(settings.warnings(config));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_named_with_the_nearest() {
        let names = [
            "PATH",
            "TIDEWIRE_TOKEN",
            "TIDEWIRE_LOG",
            "TIDEWIRE_SHARD",
            "TIDEWIRE_5006_ZZZZ",
        ];
        let warnings = unknown_variables(names.into_iter().map(OsString::from));
        assert_eq!(
            warnings,
            [
                "the variable TIDEWIRE_5006_ZZZZ is not an option and has no effect",
                "the variable TIDEWIRE_SHARD is not an option and has no effect; did you mean TIDEWIRE_SHARDS?",
            ]
        );
    }
}
