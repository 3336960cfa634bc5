//! Inline SVG charts. The page's style sheet defines their colours, so that one drawing works for light and
//! dark screens and for paper.
//!
//! Coordinates are in the units of a fixed view box that the page scales to its width. Numbers that
//! are not finite are left out, whatever a report contains.

use std::fmt::{Arguments, Write};

use super::escape::escape;

/// A named line or a named bar in each group; the style sheet has [`SERIES_MAX`] colours.
pub(super) struct Series {
    /// Shown in the legend and on hovering.
    pub(super) name: String,
    /// `(x, y)` in the units of the axes; for bars `x` is the group's index.
    pub(super) points: Vec<(f64, f64)>,
}

/// Positions and texts along an axis from `min` to `max`, in the unit of the points.
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    fn share(&self, value: f64) -> f64 {
        let span = self.max - self.min;
        if span > 0.0 {
            ((value - self.min) / span).clamp(0.0, 1.0)
        } else {
            0.5
        }
    }
}

/// Lines over two axes.
pub(super) fn lines(label: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let mut canvas = Canvas::new(label, HEIGHT);
    canvas.grid(y);
    canvas.x_ticks(x);
    for (index, one) in series.iter().take(SERIES_MAX).enumerate() {
        let path = path(x, y, &one.points);
        canvas.put(format_args!(
            "<g class=\"s{index}\"><title>{}</title>",
            escape(&one.name)
        ));
        if series.len() == 1 && !path.is_empty() {
            let (first, last) = ends(x, &one.points);
            canvas.put(format_args!(
                "<path class=\"area\" d=\"{path}L{last:.1} {BOTTOM}L{first:.1} {BOTTOM}Z\"/>"
            ));
        }
        canvas.put(format_args!("<path class=\"line\" d=\"{path}\"/></g>"));
    }
    canvas.finish()
}

/// Groups of bars, one bar of each series in a group, with their values above while there is room.
pub(super) fn bars(
    label: &str,
    x_label: &'static str,
    groups: &[String],
    y: &Axis,
    series: &[Series],
    value_text: fn(f64) -> String,
) -> String {
    let shown = &series[..series.len().min(SERIES_MAX)];
    let mut canvas = Canvas::new(label, HEIGHT);
    canvas.grid(y);
    let slot = (RIGHT - LEFT) / groups.len().max(1) as f64;
    let width = (slot * 0.72 / shown.len().max(1) as f64).min(BAR_WIDTH_MAX);
    for (index, group) in groups.iter().enumerate() {
        let centre = LEFT + slot * (index as f64 + 0.5);
        canvas.text(centre, BOTTOM + 18.0, "middle", "axis", group);
    }
    canvas.text(
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 38.0,
        "middle",
        "label",
        x_label,
    );
    for (index, one) in shown.iter().enumerate() {
        canvas.put(format_args!("<g class=\"s{index}\">"));
        let offset = (index as f64 - shown.len() as f64 / 2.0) * width;
        for &(group, value) in one.points.iter().filter(|point| point.1.is_finite()) {
            let left = LEFT + slot * (group + 0.5) + offset;
            let top = plot_y(y, value);
            canvas.put(format_args!(
                "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 rx=\"2\"><title>{}: {}</title></rect>",
                left + width * 0.04,
                width * 0.92,
                BOTTOM - top,
                escape(&one.name),
                escape(&value_text(value)),
            ));
            if width >= BAR_WIDTH_WITH_TEXT {
                let text = value_text(value);
                canvas.text(left + width / 2.0, top - 6.0, "middle", "value", &text);
            }
        }
        canvas.put(format_args!("</g>"));
    }
    canvas.finish()
}

/// Cells over two axes, darker for larger values: `cells[column][row]`, rows from the bottom. The
/// columns fill the x axis from its start to `x_end`.
pub(super) fn cloud(label: &str, x: &Axis, y: &Axis, x_end: f64, cells: &[&[f64]]) -> String {
    let mut canvas = Canvas::new(label, HEIGHT);
    canvas.grid(y);
    canvas.x_ticks(x);
    let all = || cells.iter().flat_map(|column| column.iter().copied());
    let largest = all().filter(|cell| cell.is_finite()).fold(0.0, f64::max);
    let width = (plot_x(x, x_end) - LEFT) / cells.len().max(1) as f64;
    for (index, column) in cells.iter().enumerate() {
        let left = LEFT + width * index as f64;
        let height = (BOTTOM - TOP) / column.len().max(1) as f64;
        for (row, cell) in column.iter().enumerate().filter(|(_, cell)| **cell > 0.0) {
            // As in `heat`, the square root makes small values distinguishable.
            let opacity = 0.06 + 0.90 * (cell / largest).sqrt().clamp(0.0, 1.0);
            canvas.put(format_args!(
                "<rect class=\"cell\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill-opacity=\"{opacity:.2}\"/>",
                BOTTOM - height * (row + 1) as f64,
            ));
        }
    }
    canvas.finish()
}

/// A grid of cells, darker for larger values: `cells[row][column]`, `None` where nothing was measured.
pub(super) fn heat(
    label: &str,
    columns: &[String],
    rows: &[String],
    cells: &[Vec<Option<f64>>],
    value_text: fn(f64) -> String,
) -> String {
    let height = CELL_TOP + CELL_HEIGHT * rows.len() as f64 + 8.0;
    let mut canvas = Canvas::new(label, height);
    let width = (WIDTH - CELL_LEFT - 4.0) / columns.len().max(1) as f64;
    let finite = |cell: &Option<f64>| cell.filter(|value| value.is_finite());
    let largest = cells
        .iter()
        .flatten()
        .filter_map(finite)
        .fold(0.0, f64::max);
    for (index, column) in columns.iter().enumerate() {
        let centre = CELL_LEFT + width * (index as f64 + 0.5);
        canvas.text(centre, CELL_TOP - 12.0, "middle", "axis", column);
    }
    for (index, (name, values)) in rows.iter().zip(cells).enumerate() {
        let top = CELL_TOP + CELL_HEIGHT * index as f64;
        canvas.text(
            CELL_LEFT - 14.0,
            top + CELL_HEIGHT / 2.0 + 5.0,
            "end",
            "axis",
            name,
        );
        for (column, cell) in values.iter().enumerate() {
            let left = CELL_LEFT + width * column as f64;
            let value = finite(cell);
            // The square root makes small values distinguishable; a linear shade would make them
            // all alike.
            let share = value.map_or(0.0, |v| {
                (v / largest.max(f64::MIN_POSITIVE)).max(0.0).sqrt()
            });
            let opacity = 0.06 + 0.90 * share;
            canvas.put(format_args!(
                "<rect class=\"cell\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 rx=\"5\" fill-opacity=\"{opacity:.2}\"/>",
                left + 2.0,
                top + 2.0,
                (width - 4.0).max(0.0),
                CELL_HEIGHT - 4.0,
            ));
            let class = match opacity > CELL_STRONG {
                true => "cell-text strong",
                false => "cell-text",
            };
            let text = value.map_or_else(|| "–".into(), value_text);
            canvas.text(
                left + width / 2.0,
                top + CELL_HEIGHT / 2.0 + 6.0,
                "middle",
                class,
                &text,
            );
        }
    }
    canvas.finish()
}

struct Canvas {
    svg: String,
}

impl Canvas {
    fn new(label: &str, height: f64) -> Self {
        Self {
            svg: format!(
                "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">",
                escape(label)
            ),
        }
    }

    fn put(&mut self, text: Arguments<'_>) {
        self.svg
            .write_fmt(text)
            .expect("writing to a string does not fail");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            escape(text)
        ));
    }

    /// Horizontal lines at the ticks of `y`, its label above them.
    fn grid(&mut self, y: &Axis) {
        self.text(4.0, 16.0, "start", "label", y.label);
        for (value, text) in &y.ticks {
            let top = plot_y(y, *value);
            let class = if *value <= y.min { "base" } else { "grid" };
            self.put(format_args!(
                "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{top:.1}\" x2=\"{RIGHT}\" \
                 y2=\"{top:.1}\"/>"
            ));
            self.text(LEFT - 10.0, top + 4.5, "end", "axis", text);
        }
    }

    /// Marks at the ticks of `x`, its label below them.
    fn x_ticks(&mut self, x: &Axis) {
        for (value, text) in &x.ticks {
            let left = plot_x(x, *value);
            self.put(format_args!(
                "<line class=\"tick\" x1=\"{left:.1}\" y1=\"{TOP}\" x2=\"{left:.1}\" y2=\"{BOTTOM}\"/>"
            ));
            self.text(left, BOTTOM + 18.0, "middle", "axis", text);
        }
        self.text(
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 38.0,
            "middle",
            "label",
            x.label,
        );
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}

fn plot_x(axis: &Axis, value: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * axis.share(value)
}

fn plot_y(axis: &Axis, value: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * axis.share(value)
}

fn path(x: &Axis, y: &Axis, points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for &(px, py) in points.iter().filter(|point| is_finite(point)) {
        let command = if path.is_empty() { 'M' } else { 'L' };
        write!(path, "{command}{:.1} {:.1}", plot_x(x, px), plot_y(y, py))
            .expect("writing to a string does not fail");
    }
    path
}

fn ends(x: &Axis, points: &[(f64, f64)]) -> (f64, f64) {
    let mut finite = points
        .iter()
        .filter(|point| is_finite(point))
        .map(|point| plot_x(x, point.0));
    let first = finite.next().unwrap_or(LEFT);
    (first, finite.next_back().unwrap_or(first))
}

fn is_finite(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

/// Further series are only in the table.
pub(super) const SERIES_MAX: usize = 6;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 546.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 252.0;
const BAR_WIDTH_MAX: f64 = 68.0;
const BAR_WIDTH_WITH_TEXT: f64 = 40.0;
/// Cells above this opacity have text of the other colour: the style sheet has two for each theme, and with this limit
/// each text has a contrast of 4.5:1 or more (a test computes it).
const CELL_STRONG: f64 = 0.70;

const CELL_LEFT: f64 = 66.0;
const CELL_TOP: f64 = 34.0;
const CELL_HEIGHT: f64 = 46.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn axis() -> Axis {
        Axis {
            label: "n",
            min: 0.0,
            max: 10.0,
            ticks: vec![(0.0, "0".into()), (10.0, "10".into())],
        }
    }

    #[test]
    fn the_ends_of_an_axis_are_the_ends_of_the_plot() {
        let one = Series {
            name: "a".into(),
            points: vec![(0.0, 0.0), (10.0, 10.0)],
        };
        let svg = lines("a chart", &axis(), &axis(), &[one]);
        assert!(
            svg.contains("class=\"line\" d=\"M76.0 252.0L546.0 36.0\""),
            "{svg}"
        );
    }

    #[test]
    fn what_is_not_finite_or_out_of_range_stays_out_of_the_drawing() {
        let points = vec![(0.0, f64::NAN), (5.0, 1e300), (f64::INFINITY, 1.0)];
        let one = Series {
            name: "<b>".into(),
            points,
        };
        let svg = lines("\"<i>", &axis(), &axis(), &[one]);
        assert!(svg.contains("d=\"M311.0 36.0\""), "{svg}");
        assert!(
            svg.contains("&lt;b&gt;") && svg.contains("aria-label=\"&quot;&lt;i&gt;\""),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn bars_stand_on_the_base_and_their_height_is_their_value() {
        let one = Series {
            name: "a".into(),
            points: vec![(0.0, 5.0), (1.0, 10.0)],
        };
        let groups = ["x".to_owned(), "y".to_owned()];
        let svg = bars("b", "groups", &groups, &axis(), &[one], |v| v.to_string());
        assert!(
            svg.contains("height=\"108.0\"") && svg.contains("height=\"216.0\""),
            "{svg}"
        );
    }

    #[test]
    fn a_missing_cell_is_marked_and_the_largest_is_strongest() {
        let names = ["1".to_owned(), "2".to_owned()];
        let svg = heat("h", &names, &names[..1], &[vec![Some(4.0), None]], |v| {
            v.to_string()
        });
        assert!(
            svg.contains("fill-opacity=\"0.96\"") && svg.contains(">–</text>"),
            "{svg}"
        );
    }

    /// The values of a custom property in the style sheet: for light, for dark, and for paper.
    fn colours(name: &str) -> Vec<[f64; 3]> {
        let style = include_str!("style.css");
        let name = format!("  {name}: #");
        let found = style.match_indices(&name).map(|(at, _)| {
            let digits = &style[at + name.len()..][..6];
            let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            [byte(0), byte(2), byte(4)].map(f64::from)
        });
        found.collect()
    }

    /// The relative luminance of a colour (WCAG 2.2).
    fn luminance(colour: [f64; 3]) -> f64 {
        let linear = colour.map(|byte| match byte / 255.0 {
            dark @ ..=0.040_45 => dark / 12.92,
            light => ((light + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn the_text_of_every_cell_has_contrast_in_every_theme() {
        let (accent, card) = (colours("--accent"), colours("--card"));
        let (text, strong) = (colours("--cell-text"), colours("--cell-text-strong"));
        let themes = [accent.len(), card.len(), text.len(), strong.len()];
        assert_eq!(themes, [3; 4], "light, dark and paper");
        for theme in 0..3 {
            for percent in 6..=96 {
                // As `heat` writes it.
                let opacity = f64::from(percent) / 100.0;
                let cell = std::array::from_fn(|part| {
                    opacity * accent[theme][part] + (1.0 - opacity) * card[theme][part]
                });
                let colours = if opacity > CELL_STRONG {
                    &strong
                } else {
                    &text
                };
                let (one, other) = (luminance(colours[theme]), luminance(cell));
                let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
                assert!(
                    contrast >= 4.5,
                    "theme {theme}, opacity {opacity}: {contrast:.2}"
                );
            }
        }
    }
}
