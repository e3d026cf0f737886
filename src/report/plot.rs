//! A line plot as SVG: values over categories, a line for each series, a bar
//! over the interval or the samples of each point. It needs no script
//! and takes its colours from the page, so that it is readable in light and
//! dark.

use maud::{Markup, html};

/// What is plotted.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What a screen reader says, and the axis' title.
    pub unit: String,
    /// Along the horizontal axis, evenly spaced.
    pub categories: Vec<String>,
    /// Lines, at most as many as there are colours.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub label: String,
    /// A point for each category; none where there is no value.
    pub points: Vec<Option<Point>>,
}

/// One value and what its bar reaches over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where the line goes.
    pub value: f64,
    /// Lower end of the bar.
    pub low: f64,
    /// Upper end of the bar.
    pub high: f64,
}

/// Lines that can be told apart by colour and dash.
pub const MOST_SERIES: usize = 8;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 34.0;
const TICKS: f64 = 5.0;
/// Width of a character where the page is narrow and letters largest (page.css).
const CHARACTER: f64 = 13.0;
/// From one row of labels to the next.
const ROW: f64 = 26.0;
/// Rows that the labels of categories may take.
const MOST_ROWS: usize = 3;
/// Characters of the longest label.
const LONGEST: usize = 24;

/// Draws `plot`; `None` without at least two values to compare.
pub fn svg(plot: &Plot) -> Option<Markup> {
    let points = || plot.series.iter().flat_map(|s| s.points.iter().flatten());
    if points().count() < 2 || plot.series.len() > MOST_SERIES {
        return None;
    }
    let scale = Scale::of(points().flat_map(|p| [p.low, p.high, p.value]))?;
    let ticks: Vec<(f64, String)> = scale.ticks().into_iter().map(|t| (t, scale.text(t))).collect();
    let left = ticks.iter().map(|(_, text)| wide(text)).fold(0.0, f64::max) + 12.0;
    let step = (WIDTH - left - RIGHT) / plot.categories.len() as f64;
    let x = |at: usize| left + step * (at as f64 + 0.5);
    let labels = Labels::of(&plot.categories, step);
    let height = HEIGHT + ROW * (labels.rows - 1) as f64;
    let label = format!("{} by {}", plot.unit, plot.categories.join(", "));
    Some(html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(label) {
            @for (tick, text) in &ticks {
                @let y = scale.y(*tick);
                line.grid x1=(left) x2=(WIDTH - RIGHT) y1=(px(y)) y2=(px(y)) {}
                text.tick x=(left - 8.0) y=(px(y + 4.0)) text-anchor="end" { (text) }
            }
            @for (at, text) in labels.shown() {
                @let half = wide(text) / 2.0;
                text.tick x=(px(x(at).clamp(half, WIDTH - half))) y=(labels.y(at)) text-anchor="middle" {
                    (text)
                }
            }
            text.tick x="0" y="18" { (plot.unit) }
            @for (n, series) in plot.series.iter().enumerate() {
                (line(n, series, &scale, x))
            }
        }
    })
}

/// Room that a text takes at most.
fn wide(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Labels of the horizontal axis: in turn in several rows where they would
/// cover each other in one, and where that does not help, only some of them.
struct Labels {
    texts: Vec<String>,
    /// Of so many neighbours one can stand in a row.
    every: usize,
    rows: usize,
}

impl Labels {
    fn of(categories: &[String], step: f64) -> Labels {
        let cut = |text: &String| match text.char_indices().nth(LONGEST) {
            Some(_) => text.chars().take(LONGEST - 2).chain("..".chars()).collect(),
            None => text.clone(),
        };
        let texts: Vec<String> = categories.iter().map(cut).collect();
        let widest = texts.iter().map(|t| wide(t)).fold(0.0, f64::max) + CHARACTER / 2.0;
        let every = (widest / step).ceil().max(1.0) as usize;
        Labels { texts, every, rows: if every <= MOST_ROWS { every } else { 1 } }
    }

    /// Those that there is room for, with their places.
    fn shown(&self) -> impl Iterator<Item = (usize, &String)> {
        self.texts.iter().enumerate().step_by(if self.rows > 1 { 1 } else { self.every })
    }

    fn y(&self, at: usize) -> f64 {
        HEIGHT - BOTTOM + 22.0 + ROW * (at % self.rows) as f64
    }
}

fn line(n: usize, series: &Series, scale: &Scale, x: impl Fn(usize) -> f64) -> Markup {
    let points = || series.points.iter().enumerate().filter_map(|(at, p)| Some((x(at), (*p)?)));
    // A missing value leaves a gap: a line over it would be made up.
    let pieces = series.points.split(Option::is_none).scan(0, |at, piece| {
        let first = *at;
        *at += piece.len() + 1;
        let place = |(i, p): (usize, &Option<Point>)| p.map(|p| (x(first + i), scale.y(p.value)));
        let path: Vec<String> =
            piece.iter().enumerate().filter_map(place).map(|(x, y)| format!("{},{}", px(x), px(y))).collect();
        Some(path.join(" "))
    });
    let pieces: Vec<String> = pieces.filter(|p| !p.is_empty()).collect();
    html! {
        g class=(format!("series s{n}")) {
            @for piece in pieces { polyline points=(piece) {} }
            @for (x, point) in points() {
                line.range x1=(px(x)) x2=(px(x)) y1=(px(scale.y(point.low))) y2=(px(scale.y(point.high))) {}
                circle cx=(px(x)) cy=(px(scale.y(point.value))) r="3.5" {
                    title { (series.label) ": " (point.value) }
                }
            }
        }
    }
}

/// Coordinates with a tenth of a pixel are as good as exact ones.
fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// The vertical axis: round numbers around all values. It need not begin at
/// zero, as differences of a few per mille are what is looked for.
struct Scale {
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>) -> Option<Scale> {
        let (low, high) = values
            .filter(|v| v.is_finite())
            .fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return None;
        }
        let room = if high > low { high - low } else { low.abs().max(1.0) * 0.1 };
        let step = round_step(room / TICKS);
        Some(Scale { low: (low / step).floor() * step, high: (high / step).ceil() * step, step })
            .map(|s| if s.high > s.low { s } else { Scale { high: s.low + step, ..s } })
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        let count = ((self.high - self.low) / self.step).round() as usize;
        (0..=count.min(20)).map(|n| self.low + self.step * n as f64).collect()
    }

    fn text(&self, value: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{value:.decimals$}")
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not less than `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= step * 0.999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f64) -> Option<Point> {
        Some(Point { value, low: value, high: value })
    }

    fn plot(points: Vec<Option<Point>>) -> Plot {
        let categories = (0..points.len()).map(|n| format!("<{n}>")).collect();
        Plot { unit: "s".into(), categories, series: vec![Series { label: "a&b".into(), points }] }
    }

    #[test]
    fn scales_have_round_ticks_around_all_values() {
        let ticks = |values: &[f64]| Scale::of(values.iter().copied()).unwrap().ticks();
        assert_eq!(ticks(&[0.0, 10.0]), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(&[105_120.0, 140_960.0]).first(), Some(&100_000.0));
        let same = Scale::of([5.0, 5.0].into_iter()).unwrap();
        assert!(same.low < same.high && same.low <= 5.0 && same.high >= 5.0);
        assert!(Scale::of([f64::NAN].into_iter()).is_none());
        assert!(Scale::of(std::iter::empty()).is_none());
        assert_eq!(Scale::of([0.336, 0.341].into_iter()).unwrap().text(0.336), "0.336");
    }

    #[test]
    fn a_missing_value_is_a_gap_and_text_is_escaped() {
        let text = svg(&plot(vec![point(1.0), point(2.0), None, point(3.0)])).unwrap().into_string();
        assert_eq!(text.matches("<polyline").count(), 2, "{text}");
        assert_eq!(text.matches("<circle").count(), 3);
        assert!(text.contains("&lt;0&gt;") && text.contains("a&amp;b") && !text.contains("<0>"), "{text}");
    }

    #[test]
    fn labels_do_not_cover_each_other() {
        let labels = |texts: &[&str], step: f64| {
            let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
            let labels = Labels::of(&texts, step);
            let shown: Vec<_> = labels.shown().map(|(at, text)| (at, text.clone())).collect();
            (labels.rows, shown.len(), shown.last().unwrap().1.clone())
        };
        assert_eq!(labels(&["64", "128", "256"], 60.0), (1, 3, "256".into()));
        assert_eq!(labels(&["onstack", "offstack"], 60.0), (2, 2, "offstack".into()));
        // Nights upon nights: every fifth is named.
        assert_eq!(labels(&["101"; 40], 10.0), (1, 8, "101".into()));
        let long = "a-patch-with-a-name-that-nobody-can-read";
        assert_eq!(labels(&[long], 600.0), (1, 1, "a-patch-with-a-name-th..".into()));
    }

    #[test]
    fn the_numbers_of_an_axis_have_room_however_long_they_are() {
        let text = svg(&plot(vec![point(19_814_536.0), point(19_840_760.0)])).unwrap().into_string();
        let tick = text.split("<text class=\"tick\" x=\"").nth(1).unwrap();
        let x: f64 = tick.split('"').next().unwrap().parse().unwrap();
        assert!(x >= 8.0 * CHARACTER, "{text}");
    }

    #[test]
    fn one_value_is_no_plot() {
        assert!(svg(&plot(vec![point(1.0), None])).is_none());
        assert!(svg(&plot(vec![])).is_none());
    }
}
