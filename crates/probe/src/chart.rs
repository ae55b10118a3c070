//! Curves of all media side by side, as one SVG: a row for each kind of measurement with bandwidth,
//! latency and, where it is concurrency that changes, the sensitivity to it.

use crate::measure::Measured;
use crate::point::Point;
use crate::series::{By, Kind, Series};
use std::fmt::Write;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 40.0;
const LEGEND: f64 = 30.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#2e8b57", "#e1a100", "#7b5ea7", "#555555"];

/// What a panel shows of a point.
struct Panel {
    title: &'static str,
    is_log: bool,
    value: fn(&Series, usize, &Point) -> Option<f64>,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "MB/s",
        is_log: true,
        value: |_, _, point| Some(point.bandwidth() / 1e6).filter(|&rate| rate > 0.0),
    },
    Panel {
        title: "median latency, us",
        is_log: true,
        value: |_, _, point| Some(point.p50_us).filter(|&us| us > 0.0),
    },
    Panel {
        title: "sensitivity to concurrent access",
        is_log: false,
        value: |series, at, _| series.sensitivity.get(at).copied(),
    },
];

/// The page of curves.
pub(crate) fn svg(media: &[Measured]) -> String {
    let kinds: Vec<Kind> =
        Kind::all().filter(|kind| media.iter().any(|medium| of(medium, *kind).is_some())).collect();
    let (width, height) = (WIDTH * 3.0, LEGEND + HEIGHT * kinds.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let mut x = LEFT;
    for (at, medium) in media.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        // Writing into memory does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"20\" font-size=\"13\" fill=\"{colour}\">&#9632; {}</text>",
            escaped(&medium.name)
        );
        x += 40.0 + 8.0 * medium.name.chars().count() as f64;
    }
    for (row, kind) in kinds.into_iter().enumerate() {
        let panels = if kind.by == By::Block { &PANELS[..2] } else { &PANELS[..] };
        for (column, panel) in panels.iter().enumerate() {
            let (x, y) = (WIDTH * column as f64, LEGEND + HEIGHT * row as f64);
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            draw(&mut svg, media, kind, panel);
            svg.push_str("</g>\n");
        }
    }
    svg + "</svg>\n"
}

fn of(medium: &Measured, kind: Kind) -> Option<&Series> {
    medium.series.iter().find(|series| series.kind == kind)
}

/// From values to places between two ends.
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> Self {
        let (least, most) = (
            values.clone().fold(f64::INFINITY, f64::min),
            values.fold(f64::NEG_INFINITY, f64::max),
        );
        if is_log {
            let (low, high) = (least.log10().floor(), most.log10().ceil());
            return Self { low, high: high.max(low + 1.0), is_log };
        }
        let high = if most > 0.0 { most * 1.05 } else { 1.0 };
        Self { low: least.min(0.0), high, is_log }
    }

    fn share(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            return (self.low as i32..=self.high as i32).map(|p| 10_f64.powi(p)).collect();
        }
        let step = (self.high - self.low) / 4.0;
        (0..=4).map(|tick| self.low + step * f64::from(tick)).collect()
    }
}

fn draw(svg: &mut String, media: &[Measured], kind: Kind, panel: &Panel) {
    let lines: Vec<Vec<(f64, f64)>> = media
        .iter()
        .map(|medium| {
            let Some(series) = of(medium, kind) else { return Vec::new() };
            let points = series.points.iter().enumerate();
            let place = |(at, point): (usize, &Point)| {
                Some((series.place(point), (panel.value)(series, at, point)?))
            };
            points.filter_map(place).collect()
        })
        .collect();
    let all = || lines.iter().flatten();
    if all().next().is_none() {
        return;
    }
    // Sizes and numbers double from tick to tick, and stand at equal distances.
    let mut places: Vec<f64> = all().map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (first, last) = (places[0].log2(), places[places.len() - 1].log2());
    let wide = (last - first).max(1.0);
    let x = |place: f64| LEFT + (place.log2() - first) / wide * (WIDTH - LEFT - RIGHT);
    let scale = Scale::over(all().map(|point| point.1), panel.is_log);
    let y = |value: f64| HEIGHT - BOTTOM - scale.share(value) * (HEIGHT - TOP - BOTTOM);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"16\" font-weight=\"bold\">{}</text><text x=\"{LEFT}\" y=\"34\">{}</text>",
        kind.title(),
        panel.title
    );
    for tick in scale.ticks() {
        let (at, right) = (y(tick), WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(tick)
        );
    }
    for place in places {
        let (at, below) = (x(place), HEIGHT - BOTTOM + 16.0);
        let text = short(place);
        let _ =
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{text}</text>");
    }
    for (at, line) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let places: Vec<_> = line.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let places = places.join(" ");
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{places}\"/>"
        );
    }
}

/// With a letter for powers of 1024 where it is a whole number of them, as block sizes are.
fn short(value: f64) -> String {
    for (unit, letter) in [(f64::from(1 << 20), 'M'), (1024.0, 'K')] {
        if value >= unit && value % unit == 0.0 {
            return format!("{}{letter}", value / unit);
        }
    }
    if value.fract() == 0.0 || value.abs() < 0.01 {
        format!("{value}")
    } else {
        format!("{value:.2}")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
