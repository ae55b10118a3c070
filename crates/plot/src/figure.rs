//! Charts in rows below a legend.

use crate::canvas::{Anchor, Canvas, Text};
use crate::scale::{Scale, Span, Tick};
use crate::text::{lines, width};

const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#2e8b57", "#e1a100", "#7b5ea7", "#555555"];
/// Curves beyond the number of colours are told apart by these.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];
const SIZE: f64 = 11.0;
const TITLE_SIZE: f64 = 13.0;
/// From line to line of text.
const LINE: f64 = 16.0;
/// Between parts, and at the edges.
const GAP: f64 = 10.0;
/// Room at the right of a chart, and at least at its left: half a label of the axis below stands there.
const SIDE: f64 = 34.0;
/// A curve's sample in the legend.
const SAMPLE: f64 = 22.0;

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The quantity, with its unit.
    pub title: String,
    /// How its values lie.
    pub scale: Scale,
}

/// Curves over the same axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// It stands above.
    pub title: String,
    /// The axis below.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// One for each name of the figure, in the same order; without points where there is none. Points without a
    /// place on the axes are left out.
    pub curves: Vec<Vec<(f64, f64)>>,
}

/// Rows of charts that are alike in size.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Names of the curves, for the legend.
    pub names: Vec<String>,
    /// The charts, row by row.
    pub rows: Vec<Vec<Chart>>,
    /// Width of a chart, with its labels.
    pub width: f64,
    /// Height of the curves, without titles and labels.
    pub height: f64,
}

impl Figure {
    /// The figure as SVG, with its size in pixels.
    pub fn svg(&self) -> String {
        self.draw().svg()
    }

    fn draw(&self) -> Canvas {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut canvas = Canvas { width: self.width * columns as f64, ..Canvas::default() };
        let mut top = self.legend(&mut canvas);
        for row in &self.rows {
            let mut bottom = top;
            for (column, chart) in row.iter().enumerate() {
                let left = self.width * column as f64;
                bottom = bottom.max(chart.draw(&mut canvas, [left, top], self));
            }
            top = bottom + GAP;
        }
        canvas.height = top + GAP;
        canvas
    }

    /// Names side by side, in as many rows as they need; gives back where it ends.
    fn legend(&self, canvas: &mut Canvas) -> f64 {
        let most = canvas.width - GAP;
        let (mut x, mut y, mut rows) = (GAP, GAP + LINE, 0);
        for (at, name) in self.names.iter().enumerate() {
            let lines = lines(name, SIZE, false, most - GAP - SAMPLE - GAP);
            let widest = lines.iter().map(|line| width(line, SIZE, false)).fold(0.0, f64::max);
            if x > GAP && x + SAMPLE + GAP / 2.0 + widest > most {
                (x, y, rows) = (GAP, y + LINE * f64::from(rows), 0);
            }
            let middle = y - SIZE * 0.35;
            canvas.curve(&[[x, middle], [x + SAMPLE, middle]], colour(at), &style(at));
            for (line, below) in lines.iter().zip(0_u32..) {
                let y = y + LINE * f64::from(below);
                canvas.text(x + SAMPLE + GAP / 2.0, y, Anchor::Start, SIZE, line);
            }
            rows = rows.max(lines.len() as u32);
            x += SAMPLE + GAP / 2.0 + widest + GAP * 2.0;
        }
        y + LINE * f64::from(rows)
    }
}

impl Chart {
    /// Draws it from its upper left corner on; gives back where it ends.
    fn draw(&self, canvas: &mut Canvas, [left, top]: [f64; 2], figure: &Figure) -> f64 {
        let room = figure.width - GAP * 2.0;
        let mut y = top + GAP;
        for text in lines(&self.title, TITLE_SIZE, true, room) {
            y += LINE;
            let (x, anchor, size) = (left + GAP, Anchor::Start, TITLE_SIZE);
            canvas.texts.push(Text { x, y, anchor, size, is_bold: true, text });
        }
        for line in lines(&self.y.title, SIZE, false, room) {
            y += LINE;
            canvas.text(left + GAP, y, Anchor::Start, SIZE, &line);
        }
        let upper = y + GAP * 1.4;
        let lower = upper + figure.height;
        let takes =
            |point: &&(f64, f64)| self.x.scale.takes(point.0) && self.y.scale.takes(point.1);
        let points = || self.curves.iter().flatten().filter(takes);
        let high = |ticks: &[Tick]| distances(ticks).all(|part| part * figure.height >= LINE);
        let Some(y_span) = self.y.scale.over(points().map(|point| point.1), high) else {
            canvas.text(left + GAP, upper + LINE, Anchor::Start, SIZE, "nothing was measured");
            return lower;
        };
        let labels = y_span.ticks.iter().map(|tick| width(&tick.label, SIZE, false));
        let start = left + (labels.fold(0.0, f64::max) + GAP * 2.0).max(SIDE);
        let end = left + figure.width - SIDE;
        let wide = |ticks: &[Tick]| {
            let half = |tick: &Tick| width(&tick.label, SIZE, false) / 2.0;
            ticks.windows(2).all(|pair| {
                (pair[1].at - pair[0].at) * (end - start) >= half(&pair[0]) + half(&pair[1]) + GAP
            })
        };
        let Some(x_span) = self.x.scale.over(points().map(|point| point.0), wide) else {
            return lower;
        };
        let frame = Frame { start, end, upper, lower };
        frame.grid(canvas, &x_span, &y_span);
        for (at, curve) in self.curves.iter().enumerate() {
            let place = |&(x, y): &(f64, f64)| [frame.x(x_span.at(x)), frame.y(y_span.at(y))];
            let places: Vec<_> = curve.iter().filter(takes).map(place).collect();
            if !places.is_empty() {
                canvas.curve(&places, colour(at), &style(at));
            }
        }
        let mut below = lower + LINE;
        for line in lines(&self.x.title, SIZE, false, room) {
            below += LINE;
            canvas.text(left + figure.width / 2.0, below, Anchor::Middle, SIZE, &line);
        }
        below
    }
}

/// Where curves are.
struct Frame {
    start: f64,
    end: f64,
    upper: f64,
    lower: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        self.start + at * (self.end - self.start)
    }

    fn y(&self, at: f64) -> f64 {
        self.lower - at * (self.lower - self.upper)
    }

    fn grid(&self, canvas: &mut Canvas, x_span: &Span, y_span: &Span) {
        const FAINT: &str = "stroke=\"#ddd\"";
        const AXIS: &str = "stroke=\"#888\"";
        for tick in &y_span.ticks {
            let y = self.y(tick.at);
            canvas.line([self.start, y], [self.end, y], FAINT);
            canvas.text(self.start - GAP / 2.0, y + SIZE * 0.35, Anchor::End, SIZE, &tick.label);
        }
        for tick in &x_span.ticks {
            let x = self.x(tick.at);
            canvas.line([x, self.upper], [x, self.lower], FAINT);
            canvas.text(x, self.lower + LINE, Anchor::Middle, SIZE, &tick.label);
        }
        canvas.line([self.start, self.upper], [self.start, self.lower], AXIS);
        canvas.line([self.start, self.lower], [self.end, self.lower], AXIS);
    }
}

fn distances(ticks: &[Tick]) -> impl Iterator<Item = f64> {
    ticks.windows(2).map(|pair| pair[1].at - pair[0].at)
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

fn style(at: usize) -> String {
    let dashes = DASHES[at / COLOURS.len() % DASHES.len()];
    format!("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"", colour(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALES: [Scale; 4] = [Scale::Linear, Scale::Whole, Scale::Decades, Scale::Doubling];

    fn overlap(one: [f64; 4], other: [f64; 4]) -> bool {
        one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
    }

    /// All texts are within the view box, and none is over another.
    fn check(figure: &Figure) {
        let canvas = figure.draw();
        for (at, text) in canvas.texts.iter().enumerate() {
            let bounds = text.bounds();
            let [left, top, right, bottom] = bounds;
            assert!(left >= 0.0 && top >= 0.0, "{text:?}");
            assert!(right <= canvas.width && bottom <= canvas.height, "{text:?}");
            let over = canvas.texts[at + 1..].iter().find(|other| overlap(bounds, other.bounds()));
            assert!(over.is_none(), "{text:?} and {over:?}");
        }
    }

    fn figure(names: &[&str], x: Scale, y: Scale, least: f64, most: f64) -> Figure {
        let axis = |title: &str, scale| Axis { title: title.into(), scale };
        let curves = (1..=names.len()).map(|n| {
            vec![(least, most / n as f64), (f64::midpoint(least, most), least), (most, most)]
        });
        let chart = Chart {
            title:
                "random reads of 4 KiB by processes with a file each, and what else there is to say"
                    .into(),
            x: axis("processes with a file each", x),
            y: axis("sensitivity to concurrent access", y),
            curves: curves.collect(),
        };
        let rows = vec![vec![chart.clone(), chart.clone(), chart.clone()], vec![chart]];
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Figure { names, rows, width: 380.0, height: 180.0 }
    }

    #[test]
    fn texts_do_not_overlap_and_are_not_cut() {
        let long = "/dev/disk/by-id/nvme-eui.0123456789abcdef-and-a-name/".repeat(6);
        let many: Vec<String> = (0..30).map(|n| format!("/data/drive-{n}/probe")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let all = [vec!["dram"], vec!["dram", &long, "W W W", &long], many];
        for names in &all {
            for x in SCALES {
                for y in SCALES {
                    for (least, most) in
                        [(1.0, 64.0), (0.9, 1.0), (1e-12, 1e14), (3e7, 3e7), (97.0, 1e4)]
                    {
                        let figure = figure(names, x, y, least, most);
                        check(&figure);
                        check(&Figure { width: 760.0, ..figure.clone() });
                        check(&Figure { width: 200.0, height: 90.0, ..figure });
                    }
                }
            }
        }
    }

    #[test]
    fn curves_are_within_their_axes_and_decades_are_as_far_apart() {
        let figure = figure(&["one", "other"], Scale::Linear, Scale::Decades, 5.0, 4000.0);
        let svg = figure.svg();
        let numbers = |attribute: &str| {
            let name = format!(" {attribute}=\"");
            let found = svg.split(&name).skip(1);
            found.map(|text| text.split('"').next().unwrap().parse().unwrap()).collect::<Vec<f64>>()
        };
        let (x, y) = (numbers("x1"), numbers("y1"));
        let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(numbers("cx").iter().skip(4).all(|cx| *cx >= least(&x) - 0.1));
        assert!(numbers("cy").iter().skip(4).all(|cy| *cy >= least(&y) - 0.1));
        let labels = figure.draw();
        let place = |label: &str| labels.texts.iter().find(|text| text.text == label).unwrap().y;
        let steps = [place("10") - place("100"), place("100") - place("1k")];
        assert!((steps[0] - steps[1]).abs() < 0.1 && steps[0] > 20.0, "{steps:?}");
    }

    #[test]
    fn charts_without_points_say_so() {
        let axis = || Axis { title: "us".into(), scale: Scale::Decades };
        let curves = vec![vec![(0.0, f64::NAN)], Vec::new()];
        let chart = Chart { title: "<none>".into(), x: axis(), y: axis(), curves };
        let names = vec!["a".into(), "b".into()];
        let figure = Figure { names, rows: vec![vec![chart]], width: 300.0, height: 100.0 };
        check(&figure);
        let svg = figure.svg();
        assert!(svg.contains("nothing was measured") && svg.contains("&lt;none&gt;"), "{svg}");
    }
}
