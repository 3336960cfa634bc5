//! Precedence of the sources of options: the command line overrides the environment.

use crate::failure::Failure;
use clap::ArgMatches;
use clap::parser::ValueSource;

/// The precedence of the source of each given option.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranks(ArgMatches);

impl Ranks {
    /// The ranks of the options of one command.
    pub(crate) fn new(matches: &ArgMatches) -> Self {
        Self(matches.clone())
    }

    /// Of options that exclude each other, those `given` under their option's name, the one from the
    /// strongest source; `None` if none is given.
    ///
    /// # Errors
    /// Two have the same source.
    pub(crate) fn strongest<T>(&self, given: Vec<(&str, Option<T>)>) -> Result<Option<T>, Failure> {
        let mut best: Option<(Option<ValueSource>, &str, T)> = None;
        for (id, value) in given {
            let Some(value) = value else { continue };
            let rank = self.0.value_source(id);
            match &best {
                Some((other, id_of_other, _)) if *other == rank => {
                    let (one, two) = (flag_of(id_of_other), flag_of(id));
                    let text = format!("{one} and {two} exclude each other: give one of them");
                    return Err(Failure::usage(text));
                }
                Some((other, ..)) if *other > rank => {}
                _ => best = Some((rank, id, value)),
            }
        }
        Ok(best.map(|(_, _, value)| value))
    }

    /// Whether an option was typed on the command line.
    pub(crate) fn is_typed(&self, id: &str) -> bool {
        self.0.value_source(id) == Some(ValueSource::CommandLine)
    }
}

fn flag_of(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}
