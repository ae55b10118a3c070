//! Reports as pages of their own: tables, and curves as inline SVG. No scripts, nothing to fetch.

use crate::compare::{Comparison, number};
use crate::{Latency, Report, Series};
use std::fmt::Write;
use terrace_plot::{Axis, Chart, Figure, Scale, escaped};

/// The page for a series of runs; `title` says what was run.
pub(crate) fn page(title: &str, series: &Series) -> String {
    let mut body = format!("<pre>{}</pre>\n", escaped(&series.to_string()));
    for (name, points) in groups(&series.points) {
        body += &format!("<h2>{}</h2>\n{}", escaped(&name), latencies(&points).svg());
    }
    for point in &series.points {
        // Writing into memory does not fail.
        let _ = writeln!(body, "<pre>{}</pre>", escaped(&point.to_string()));
    }
    document(title, &body)
}

/// The page for two servers, side by side.
pub(crate) fn comparison(comparison: &Comparison) -> String {
    let [ours, theirs] = comparison.commands.each_ref().map(|command| escaped(command));
    let mut body = format!(
        "<p>{} rounds each, by turns: medians, and the ratios of the rounds.</p>\n\
         <table><tr><th></th><th>Terrace</th><th>peer</th><th>ratio</th><th>least to most</th></tr>\n\
         <tr><th>command</th><td><code>{ours}</code></td><td><code>{theirs}</code></td><td></td><td></td></tr>\n",
        comparison.rounds
    );
    let mut row = |what: &str, cells: [String; 4]| {
        let cells = cells.map(|cell| format!("<td>{cell}</td>")).concat();
        let _ = writeln!(body, "<tr><th>{}</th>{cells}</tr>", escaped(what));
    };
    for told in &comparison.rows {
        let [ours, theirs] = told.values.map(|value| value.map_or("-".into(), number));
        let [ratio, spread] = told.ratio.map_or_else(Default::default, |ratio| {
            [format!("{:.2}", ratio.median), format!("{:.2} to {:.2}", ratio.least, ratio.most)]
        });
        row(told.what, [ours, theirs, ratio, spread]);
    }
    let [ours, theirs] = comparison.wrong.map(|wrong| wrong.to_string());
    row("wrong values", [ours, theirs, String::new(), String::new()]);
    body += "</table>\n";
    for example in &comparison.examples {
        let _ = writeln!(body, "<p>e.g. {}</p>", escaped(example));
    }
    body += &format!("<h2>round by round</h2>\n{}", rounds(comparison).svg());
    document(&comparison.load, &body)
}

fn document(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:76em;margin:2em auto;padding:0 1em}}\
         pre{{background:#f4f4f4;padding:1em;overflow-x:auto}}svg{{max-width:100%;height:auto}}\
         table{{border-collapse:collapse;display:block;overflow-x:auto}}\
         th,td{{text-align:right;white-space:nowrap;padding:.2em .8em;border-bottom:1px solid #ddd}}\
         th:first-child{{text-align:left}}code{{white-space:normal;overflow-wrap:anywhere}}</style></head>\n\
         <body><h1>{title}</h1>\n{body}</body></html>\n"
    )
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

/// Latency over throughput.
fn latencies(points: &[&Report]) -> Figure {
    let of = |us: fn(&Latency) -> f64| {
        let point = |report: &&Report| (report.answered_per_second(), us(&report.latency));
        points.iter().map(point).collect()
    };
    let chart = Chart {
        title: String::new(),
        x: Axis { title: "answered requests per second".into(), scale: Scale::Linear },
        y: Axis { title: "latency, us".into(), scale: Scale::Decades },
        curves: vec![
            of(|latency| latency.mean_us),
            of(|latency| latency.p50_us),
            of(|latency| latency.p99_us),
            of(|latency| latency.p999_us),
        ],
    };
    let names = ["mean", "50 %", "99 %", "99.9 %"].map(str::to_owned).to_vec();
    Figure { names, rows: vec![vec![chart]], width: 760.0, height: 320.0 }
}

/// A chart for each quantity that every round has.
fn rounds(comparison: &Comparison) -> Figure {
    let numbered = |values: &Vec<f64>| {
        values.iter().zip(1_u32..).map(|(value, round)| (f64::from(round), *value)).collect()
    };
    let charts = comparison.rows.iter().filter_map(|row| {
        Some(Chart {
            title: row.what.into(),
            x: Axis { title: "round".into(), scale: Scale::Whole },
            y: Axis { title: String::new(), scale: Scale::Linear },
            curves: row.by_round.as_ref()?.iter().map(numbered).collect(),
        })
    });
    let charts: Vec<Chart> = charts.collect();
    let rows = charts.chunks(3).map(<[Chart]>::to_vec).collect();
    let names = [("Terrace", 0), ("peer", 1)];
    let names = names.map(|(name, at)| format!("{name}: {}", comparison.commands[at])).to_vec();
    Figure { names, rows, width: 380.0, height: 170.0 }
}
