//! Reports side by side. Reports of `bench` are compared figure by figure. Reports of loads begin with the
//! answer, whether the later ones are faster or slower than the first, and have charts with a line for
//! each report.

mod plots;

use super::chart::Figure;
use super::compare::Comparison;
use super::load_tables;
use super::model::{BaselineFigure, BaselineFinding, Report, TestResult};
use super::printable::printable;
use super::table::Block;
use super::{baseline, html, markdown, number, service, table, terminal};

/// Reports beside one another.
pub struct SideBySide {
    comparison: Comparison,
    /// If all of them are reports of loads.
    loads: Option<Loads>,
}

/// The parts of the page that only loads have.
struct Loads {
    overview: Block,
    /// One sentence for each report after the first.
    answers: Vec<String>,
    /// The figures behind them.
    findings: Vec<Block>,
    figures: Vec<Figure>,
}

impl SideBySide {
    /// Compares reports, each with the name of its column; the first is the one that the others are
    /// compared with.
    #[must_use]
    pub fn new(reports: &[(String, Report)]) -> Self {
        let all = reports.iter().flat_map(|(_, report)| &report.results);
        let are_loads = all.clone().next().is_some() && all.clone().all(service::is_load);
        let mut comparison = Comparison::new(reports);
        if are_loads {
            // Its columns are those of the tests of `bench`.
            comparison.overview.clear();
        }
        Self {
            loads: are_loads.then(|| Loads::of(reports)),
            comparison,
        }
    }

    /// As a Markdown document.
    #[must_use]
    pub fn markdown(&self) -> String {
        let Some(loads) = &self.loads else {
            return self.comparison.markdown();
        };
        let mut out = String::from("# Comparison of load reports\n\n");
        for answer in &loads.answers {
            out.push_str(&format!("**{}**\n\n", markdown::escape(answer)));
        }
        for block in loads.blocks() {
            out.push_str(&format!("{}:\n\n", markdown::escape(&block.title)));
            markdown::rows(&mut out, &block.header, &block.rows, block.text_columns);
            out.push('\n');
        }
        self.comparison.put_markdown(&mut out);
        out
    }

    /// As plain text.
    #[must_use]
    pub fn terminal(&self) -> String {
        let Some(loads) = &self.loads else {
            return self.comparison.terminal();
        };
        let mut out = String::new();
        for answer in &loads.answers {
            out.push_str(&format!("{answer}\n\n"));
        }
        for block in loads.blocks() {
            out.push_str(&format!("{}\n", block.title));
            out.push_str(&terminal::rows(
                &block.header,
                &block.rows,
                block.text_columns,
            ));
            out.push('\n');
        }
        self.comparison.put_terminal(&mut out);
        printable(&out).into_owned()
    }

    /// As a self-contained HTML page.
    #[must_use]
    pub fn html(&self) -> String {
        let Some(loads) = &self.loads else {
            return self.comparison.html();
        };
        let mut page = html::Page::default();
        page.put(format_args!(
            "<header><h1>Comparison of load reports</h1></header>\n"
        ));
        page.list(&loads.answers);
        page.put(format_args!("<section class=\"test compare\">\n"));
        page.figures(&loads.figures);
        for block in loads.blocks() {
            page.table(&block.title, &block.header, &block.rows);
        }
        self.comparison.put_page(&mut page);
        page.put(format_args!("</section>\n"));
        page.finish("Comparison of load reports")
    }
}

impl Loads {
    fn of(reports: &[(String, Report)]) -> Self {
        let mut loads = Self {
            overview: overview(reports),
            answers: Vec::new(),
            findings: Vec::new(),
            figures: plots::figures(reports),
        };
        let Some(((first, before), later)) = reports.split_first() else {
            return loads;
        };
        for (name, report) in later {
            let mut compared = report.clone();
            baseline::compare(&mut compared, before, first, false);
            let results = compared.results.iter();
            let found: Vec<BaselineFigure> = results
                .flat_map(|result| result.load.baseline.iter().cloned())
                .collect();
            loads.answers.push(answer((first, name), &found));
            let mut block = load_tables::baseline(&found);
            block.title = format!("{name} compared with {first}");
            loads.findings.push(block);
        }
        loads.findings.retain(|block| !block.rows.is_empty());
        loads
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.findings.iter().chain([&self.overview])
    }
}

/// A line for each result: what the service did, whether the measurement is reliable, and its main
/// figures.
fn overview(reports: &[(String, Report)]) -> Block {
    let results = || {
        let each = reports.iter();
        each.flat_map(|(name, report)| report.results.iter().map(move |result| (name, result)))
    };
    let has_search = results().any(|(_, result)| result.load.found_rate.is_some());
    let absent = || table::ABSENT.to_owned();
    let line = |(name, result): (&String, &TestResult)| {
        let load = &result.load;
        let requests = load.requests.filter(|requests| requests.due() > 0);
        let errors = requests.map(|requests| {
            number::percent(requests.unsuccessful() as f64 / requests.due() as f64 * 100.0)
        });
        let latency = result.latency_us.as_ref();
        let held = load
            .found_rate
            .as_ref()
            .map(|found| match found.held_per_s {
                Some(rate) => number::si(rate),
                None => "none".to_owned(),
            });
        let mut cells = vec![
            name.clone(),
            load.service
                .first()
                .cloned()
                .unwrap_or_else(|| "no failure".to_owned()),
            table::verdict_word(load.measurement.unwrap_or(result.verdict)).to_owned(),
            result.rate_per_s.map_or_else(absent, number::si),
            latency.map_or_else(absent, |latency| number::us(latency.p50)),
            latency.map_or_else(absent, |latency| number::us(latency.p99)),
            errors.unwrap_or_else(absent),
        ];
        if has_search {
            cells.push(held.unwrap_or_else(absent));
        }
        cells
    };
    let mut header = vec![
        "Report",
        "Service",
        "Measurement",
        "Rate/s",
        "p50",
        "p99",
        "Errors",
    ];
    header.extend(has_search.then_some("Highest rate that held"));
    Block {
        title: "Overview".to_owned(),
        header,
        rows: results().map(line).collect(),
        text_columns: 3,
    }
}

/// The sentence that states whether the later report is faster or slower, with its figures.
fn answer((first, name): (&str, &str), found: &[BaselineFigure]) -> String {
    let of = |finding: BaselineFinding| found.iter().filter(move |one| one.finding == finding);
    let named = |finding| {
        let figures: Vec<String> = of(finding).map(change).collect();
        figures.join(", ")
    };
    let (faster, slower) = (
        named(BaselineFinding::Faster),
        named(BaselineFinding::Slower),
    );
    let unknown: Vec<&str> = of(BaselineFinding::CannotTell)
        .map(|one| one.figure.as_str())
        .collect();
    let unknown = match unknown.is_empty() {
        true => String::new(),
        false => format!(" Cannot tell: {}.", unknown.join(", ")),
    };
    let subject = format!("{name}, compared with {first}");
    // Without any interval nothing was compared.
    let why = found.first().and_then(|one| one.reason.as_deref());
    if let Some(why) = why.filter(|_| found.iter().all(|one| one.interval.is_none())) {
        return format!("{subject}: cannot tell, because {why}.");
    }
    match (faster.is_empty(), slower.is_empty()) {
        _ if found.is_empty() => format!(
            "{subject}: cannot tell. The two have no result with the same plan: connections, requests in flight and rate."
        ),
        (true, true) => format!("{subject}: no difference that can be told.{unknown}"),
        (true, false) => format!("{subject}: slower. {slower}.{unknown}"),
        (false, true) => format!("{subject}: faster. {faster}.{unknown}"),
        (false, false) => {
            format!("{subject}: slower and faster. Slower: {slower}. Faster: {faster}.{unknown}")
        }
    }
}

/// `p99 was 2 ms and is 3 ms (+50.0 %)`.
fn change(figure: &BaselineFigure) -> String {
    let shown = |value: f64| match figure.figure.as_str() {
        "rate" => format!("{}/s", number::si(value)),
        _ => number::us(value),
    };
    format!(
        "{} was {} and is {} ({:+.1} %)",
        figure.figure,
        shown(figure.before),
        shown(figure.after),
        figure.change * 100.0
    )
}

#[cfg(test)]
mod tests;
