//! `tidewire top`: the activity of a server, second by second, from its operations listener.

mod board;
mod sample;
mod source;
mod view;

use crate::failure::Failure;
use crate::output::print;
use board::Board;
use clap::Args;
use sample::Sample;
use source::Source;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The options of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopFlags {
    /// The server's operations listener
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:5007", value_parser = Source::parse)]
    source: Source,
    /// Time between two queries
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    interval_s: f64,
    /// Print the figures of one interval as text, and end
    #[arg(long)]
    once: bool,
}

/// Shows the server until the user ends the program.
pub(crate) fn run(flags: &TopFlags) -> Result<u8, Failure> {
    let mut look = Look {
        source: &flags.source,
        before: None,
    };
    let interval = Duration::from_secs_f64(flags.interval_s);
    if !flags.once && std::io::stdout().is_terminal() {
        return view::run(interval, || look.next()).map(|()| 0);
    }
    look.next().map_err(Failure::run)?;
    loop {
        std::thread::sleep(interval);
        print(&look.next().map_err(Failure::run)?.to_string())?;
        if flags.once {
            return Ok(0);
        }
    }
}

/// Queries a server repeatedly.
struct Look<'a> {
    source: &'a Source,
    before: Option<(Instant, Sample)>,
}

impl Look<'_> {
    /// The activity since the previous query. The text of an error is for the user.
    fn next(&mut self) -> Result<Board, String> {
        let sample = Sample::parse(&self.source.get(STATS)?).ok_or_else(|| {
            format!(
                "{} is not the operations listener of a Tidewire server",
                self.source
            )
        })?;
        let now = Instant::now();
        let before = self
            .before
            .as_ref()
            .map(|(then, sample)| (now - *then, sample));
        let board = Board::new(self.source.to_string(), &sample, before);
        self.before = Some((now, sample));
        Ok(board)
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds from 0.1 to 3600".to_owned())
}

/// With the connections that have the most waiting bytes.
const STATS: &str = "/stats?slow=10";
