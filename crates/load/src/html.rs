//! A report as a page of its own: tables, and curves as inline SVG. No scripts, nothing to fetch.

use crate::{Latency, Report, Series};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 50.0;
/// Height of a line of text.
const LINE: f64 = 14.0;
const COLOURS: [&str; 4] = ["#1b6ca8", "#d1495b", "#2e8b57", "#8a6d3b"];

/// A curve's name and points.
type Curve = (&'static str, Vec<(f64, f64)>);

/// The page for a series of runs; `title` says what was run.
pub(crate) fn page(title: &str, series: &Series) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}\
         pre{{background:#f4f4f4;padding:1em;overflow-x:auto}}svg{{max-width:100%}}</style></head>\n\
         <body><h1>{title}</h1>\n<pre>{}</pre>\n",
        escaped(&series.to_string())
    );
    for (name, points) in groups(&series.points) {
        page += &format!("<h2>{name}</h2>\n{}", chart(&curves(&points)));
    }
    for point in &series.points {
        // Writing into memory does not fail.
        let _ = writeln!(page, "<pre>{}</pre>", escaped(&point.to_string()));
    }
    page + "</body></html>\n"
}

/// Points that differ in one setting only are a curve: by depth, or by rate where rates were asked for.
/// Where nothing but connections changes, those are.
fn groups(points: &[Report]) -> Vec<(String, Vec<&Report>)> {
    let name = |point: &Report| {
        let depth = point.rate_asked.map_or(String::new(), |_| format!(", depth {}", point.depth));
        format!("{} connections{depth}", point.connections)
    };
    let is_same = |one: &Report, other: &Report| name(one) == name(other);
    if points.len() > 1 && points.chunk_by(is_same).all(|group| group.len() == 1) {
        return vec![("latency over throughput".into(), points.iter().collect())];
    }
    let curves = points.chunk_by(is_same).filter(|group| group.len() > 1);
    curves.map(|group| (name(&group[0]), group.iter().collect())).collect()
}

fn curves(points: &[&Report]) -> Vec<Curve> {
    let of = |us: fn(&Latency) -> f64| {
        let point = |report: &&Report| (report.requests_per_second, us(&report.latency));
        points.iter().map(point).collect()
    };
    vec![
        ("mean", of(|latency| latency.mean_us)),
        ("50 %", of(|latency| latency.p50_us)),
        ("99 %", of(|latency| latency.p99_us)),
        ("99.9 %", of(|latency| latency.p999_us)),
    ]
}

/// Latency (logarithmic) over throughput.
fn chart(curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let x_max = points().map(|point| point.0).fold(1.0, f64::max) * 1.05;
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min).max(0.1);
    let most = points().map(|point| point.1).fold(1.0, f64::max);
    let (low, high) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let x = |value: f64| LEFT + value / x_max * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        let share = (value.log10().max(low) - low) / (high - low);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    let right = WIDTH - RIGHT;
    for power in low as i32..=high as i32 {
        let (value, at) = (10f64.powi(power), y(10f64.powi(power)));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    for tick in 0..=5 {
        let value = x_max / 5.0 * f64::from(tick);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.0}</text>",
            x(value),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">answered requests per second</text>\
         <text x=\"{LEFT}\" y=\"{:.1}\" text-anchor=\"end\">latency, us</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 10.0,
        TOP - 12.0
    );
    for ((_, points), colour) in curves.iter().zip(COLOURS) {
        let line: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            line.join(" ")
        );
        for place in &line {
            let (cx, cy) = place.split_once(',').unwrap_or_default();
            let _ = write!(svg, "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
    for (((name, _), colour), (at_x, at_y)) in curves.iter().zip(COLOURS).zip(ends(curves, x, y)) {
        let _ =
            writeln!(svg, "<text x=\"{at_x:.1}\" y=\"{at_y:.1}\" fill=\"{colour}\">{name}</text>");
    }
    svg + "</svg>\n"
}

/// Where the names of curves stand: behind their last points, none over another.
fn ends(curves: &[Curve], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let last = |(_, points): &Curve| points.last().copied().unwrap_or_default();
    let mut ends: Vec<_> =
        curves.iter().map(last).map(|(rate, us)| (x(rate) + 8.0, y(us) + 4.0)).collect();
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&one, &other| ends[one].1.total_cmp(&ends[other].1));
    for pair in order.windows(2) {
        ends[pair[1]].1 = ends[pair[1]].1.max(ends[pair[0]].1 + LINE);
    }
    ends
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that stand in `attribute`s of the chart's elements of this name.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let (element, attribute) = (format!("<{element} "), format!("{attribute}=\""));
        let elements = svg.split(&element).skip(1);
        let value = |text: &str| text.split_once(&attribute)?.1.split('"').next()?.parse().ok();
        elements.filter_map(value).collect()
    }

    #[test]
    fn decades_are_as_far_apart_and_names_do_not_touch() {
        let svg = chart(&[
            ("50 %", vec![(10.0, 5.0), (1000.0, 4000.0)]),
            ("99 %", vec![(10.0, 70.0), (1000.0, 4100.0)]),
        ]);
        // 1, 10, 100, 1000, 10000.
        let lines = numbers(&svg, "line", "y1");
        let steps: Vec<_> = lines.windows(2).map(|pair| pair[0] - pair[1]).collect();
        assert_eq!(steps.len(), 4);
        assert!(steps.iter().all(|step| (step - steps[0]).abs() < 0.11), "{steps:?}");
        // 5 is between 1 and 10.
        let first = numbers(&svg, "circle", "cy")[0];
        assert!(lines[1] < first && first < lines[0], "{first} {lines:?}");
        let texts = numbers(&svg, "text", "y");
        let [one, other] = [texts[texts.len() - 2], texts[texts.len() - 1]];
        assert!((one - other).abs() >= LINE - 0.11, "{texts:?}");
    }
}
