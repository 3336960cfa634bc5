//! The flags of `tidewire load`, from the table of its options.

use super::foreign::Tool;
use crate::baseline::BaselineFlags;
use crate::bench::workers::{commands_of_file, own_worker};
use crate::failure::Failure;
use crate::files::FileFlags;
use crate::numbers;
use clap::builder::{PossibleValuesParser, TypedValueParser as _, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};
use std::path::PathBuf;
use tidewire_load::options::spec::{Kind, OptionSpec};
use tidewire_load::options::table::{GROUPS, OPTIONS};

/// All options of `load`.
#[derive(Debug, Args)]
pub(crate) struct LoadFlags {
    /// The URL to load: http://, https://, ws:// or wss://
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) options: OptionFlags,
    #[command(flatten)]
    pub(crate) workers: LoadWorkerFlags,
    #[command(flatten)]
    pub(crate) output: LoadOutputFlags,
}

/// Further ways to name the workers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plan")]
pub(crate) struct LoadWorkerFlags {
    /// Processes of this program among which the users are divided [default: threads of one process]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<usize>, conflicts_with_all = ["workers", "worker_file"])]
    pub(crate) processes: Option<usize>,
    /// A file with the command of a worker in each line; empty lines and those that begin with # are left out
    #[arg(id = "worker_file", long = "workers", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

impl LoadFlags {
    /// The options by their names, with the workers of all flags.
    ///
    /// # Errors
    /// The file of workers is wrong, or there are none although they are to stop the load.
    pub(crate) fn values(&self) -> Result<Map<String, Value>, Failure> {
        let mut values = self.options.0.clone();
        let mut commands = Vec::new();
        if let Some(path) = &self.workers.file {
            commands = commands_of_file(path)?;
        }
        if let Some(count) = self.workers.processes {
            let threads = values.remove("threads").and_then(|count| count.as_u64());
            let threads = threads.and_then(|count| usize::try_from(count).ok());
            commands = vec![own_worker(threads)?; count];
        }
        if !commands.is_empty() {
            let named = values
                .entry("workers")
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(named) = named {
                named.extend(commands.into_iter().map(Value::from));
            }
        }
        let has_workers = values.contains_key("workers");
        if has_workers && (self.output.lines_of.is_some() || self.output.index_text.is_some()) {
            return Err(Failure::usage(
                "--as and workers exclude each other: write the flags of `tidewire load`",
            ));
        }
        Ok(values)
    }
}

/// The options that were given, each under its name.
#[derive(Debug, Default)]
pub(crate) struct OptionFlags(pub(crate) Map<String, Value>);

impl Args for OptionFlags {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().filter_map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for spec in OPTIONS.iter().filter(|spec| spec.flag.is_some()) {
            let value = match spec.kind {
                Kind::Boolean(default) => matches.get_flag(spec.name).then_some((!default).into()),
                kind => matches.get_many::<Value>(spec.name).map(|values| {
                    let mut values: Vec<Value> = values.cloned().collect();
                    match kind.is_list() {
                        true => Value::Array(values),
                        false => values.pop().unwrap_or_default(),
                    }
                }),
            };
            self.0
                .extend(value.map(|value| (spec.name.to_owned(), value)));
        }
        Ok(())
    }
}

/// The flag of an option, if it has one.
fn flag(spec: &'static OptionSpec) -> Option<Arg> {
    let has_flag = |name: &&str| {
        let mut options = OPTIONS.iter();
        options.any(|other| other.name == *name && other.flag.is_some())
    };
    // Other flags name workers, too; the options as a whole are checked later.
    let needs = spec.needs.iter().filter(|need| **need != "workers");
    let title = GROUPS.iter().find(|group| group.0 == spec.group);
    let arg = Arg::new(spec.name)
        .long(spec.flag?)
        .short(spec.short)
        .help(help(spec))
        .help_heading(title.map(|group| group.1))
        .requires_all(needs)
        .conflicts_with_all(spec.excludes.iter().filter(|name| has_flag(name)));
    let kind = spec.kind;
    if let Kind::Boolean(_) = kind {
        return Some(arg.action(ArgAction::SetTrue));
    }
    let parser: ValueParser = match kind {
        Kind::Choice(words) => PossibleValuesParser::new(words).map(Value::from).into(),
        _ => ValueParser::new(move |text: &str| kind.read(text)),
    };
    let arg = arg.value_name(spec.placeholder).value_parser(parser);
    Some(match kind {
        Kind::Addresses => arg.action(ArgAction::Append).value_delimiter(','),
        kind if kind.is_list() => arg.action(ArgAction::Append),
        _ => arg,
    })
}

fn help(spec: &OptionSpec) -> String {
    let several = match spec.kind.is_list() {
        true => "; may be given several times",
        false => "",
    };
    let default = match spec.default {
        "" => String::new(),
        words => format!(" [default: {words}]"),
    };
    format!("{}{several}{default}", spec.help)
}

/// Output: display, files, and the comparison with an earlier report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LoadOutputFlags {
    /// The directory for report.json, report.html and report.md [default: no files]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: FileFlags,
    #[command(flatten)]
    pub(crate) baseline: BaselineFlags,
    /// Directly after `load`: the following words are the flags of that tool, and its report lines
    /// are printed
    #[arg(long = "as", value_name = "TOOL", value_enum)]
    pub(crate) foreign: Option<Tool>,
    /// The text for which 1, 2, 3 … is sent in the target and the body; set by the translation of --as
    #[arg(long, hide = true, value_name = "TEXT")]
    pub(crate) index_text: Option<String>,
    /// The tool whose report lines are printed, set by the translation of --as
    #[arg(long, value_enum, hide = true)]
    pub(crate) lines_of: Option<Tool>,
    /// With --lines-of: print the distribution of the latency as well; set by the translation of --as
    #[arg(long, hide = true, requires = "lines_of")]
    pub(crate) lines_latency: bool,
    /// Print the report as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress while the load runs
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}
