//! Curves of all media side by side, as one SVG: a row for each kind of measurement with bandwidth, latency and, where
//! it is concurrency that changes, the sensitivity to it; and one for reads beside writers.

use crate::measure::{Measured, Mixed};
use crate::point::Point;
use crate::series::{By, Kind, Series};
use terrace_plot::{Axis, Chart, Figure, Scale};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 170.0;

/// What a chart shows of a point of a series.
struct Panel {
    title: &'static str,
    scale: Scale,
    value: fn(&Series, usize, &Point) -> Option<f64>,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "MB/s",
        scale: Scale::Decades,
        value: |_, _, point| Some(point.bandwidth() / 1e6),
    },
    Panel {
        title: "median latency, us",
        scale: Scale::Decades,
        value: |_, _, point| Some(point.p50_us),
    },
    Panel {
        title: "sensitivity to concurrent access",
        scale: Scale::Linear,
        value: |series, at, _| series.sensitivity.get(at).copied(),
    },
];

/// The same of reads beside writers; the first are those without any.
struct MixedPanel {
    title: &'static str,
    scale: Scale,
    value: fn(first: &Mixed, Mixed) -> f64,
}

const MIXED_PANELS: [MixedPanel; 3] = [
    MixedPanel {
        title: "reads/s",
        scale: Scale::Decades,
        value: |_, mixed| mixed.reads.per_second,
    },
    MixedPanel {
        title: "median latency, us",
        scale: Scale::Decades,
        value: |_, mixed| mixed.reads.p50_us,
    },
    MixedPanel {
        title: "of the reads/s without writers",
        scale: Scale::Linear,
        value: |first, mixed| mixed.reads.per_second / first.reads.per_second,
    },
];

/// The page of curves.
pub(crate) fn svg(media: &[Measured]) -> String {
    let is_there = |kind: &Kind| media.iter().any(|medium| of(medium, *kind).is_some());
    let mut rows: Vec<_> = Kind::all().filter(is_there).map(|kind| row(media, kind)).collect();
    if media.iter().any(|medium| !medium.mixed.is_empty()) {
        rows.push(MIXED_PANELS.iter().map(|panel| beside_writers(media, panel)).collect());
    }
    let names = media.iter().map(|medium| medium.name.clone()).collect();
    Figure { names, rows, width: WIDTH, height: HEIGHT }.svg()
}

fn of(medium: &Measured, kind: Kind) -> Option<&Series> {
    medium.series.iter().find(|series| series.kind == kind)
}

fn row(media: &[Measured], kind: Kind) -> Vec<Chart> {
    let panels = if kind.by == By::Block { &PANELS[..2] } else { &PANELS[..] };
    let curve = |medium: &Measured, panel: &Panel| {
        let Some(series) = of(medium, kind) else { return Vec::new() };
        let points = series.points.iter().enumerate();
        let place = |(at, point): (usize, &Point)| {
            Some((series.place(point), (panel.value)(series, at, point)?))
        };
        points.filter_map(place).collect()
    };
    let chart = |panel: &Panel| Chart {
        title: kind.what(),
        x: Axis { title: kind.by.words().into(), scale: Scale::Doubling },
        y: Axis { title: panel.title.into(), scale: panel.scale },
        curves: media.iter().map(|medium| curve(medium, panel)).collect(),
    };
    panels.iter().map(chart).collect()
}

fn beside_writers(media: &[Measured], panel: &MixedPanel) -> Chart {
    let curve = |medium: &Measured| {
        let Some(first) = medium.mixed.first() else { return Vec::new() };
        let place = |mixed: &Mixed| (f64::from(mixed.writers), (panel.value)(first, *mixed));
        medium.mixed.iter().map(place).collect()
    };
    Chart {
        title: "random reads of 4 KiB beside writers".into(),
        x: Axis { title: "writers of 1 MiB blocks".into(), scale: Scale::Whole },
        y: Axis { title: panel.title.into(), scale: panel.scale },
        curves: media.iter().map(curve).collect(),
    }
}
