//! Curves as SVG, without fonts or scripts of its own.

use std::fmt::Write;

/// A named curve of (x, y).
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

const COLOURS: [&str; 10] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#bcbd22", "#17becf",
];
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const MARGIN: f64 = 56.0;
/// Room for the names of the curves.
const LEGEND: f64 = 150.0;
const TICKS: u32 = 5;

/// A chart with both axes from the least to the greatest value.
pub(super) fn chart(title: &str, x_name: &str, y_name: &str, curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (x, y) = (Axis::over(points().map(|p| p.0)), Axis::over(points().map(|p| p.1)));
    let right = WIDTH - LEGEND;
    let place = |&(px, py): &(f64, f64)| {
        let left = MARGIN + x.share(px) * (right - MARGIN);
        (left, HEIGHT - MARGIN - y.share(py) * (HEIGHT - 2.0 * MARGIN))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut text = |left: f64, top: f64, anchor: &str, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            svg,
            "<text x=\"{left:.1}\" y=\"{top:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    };
    text(MARGIN, 24.0, "start", title);
    text((MARGIN + right) / 2.0, HEIGHT - 14.0, "middle", x_name);
    text(MARGIN, MARGIN - 12.0, "middle", y_name);
    for tick in 0..=TICKS {
        let share = f64::from(tick) / f64::from(TICKS);
        let (left, _) = place(&(x.at(share), y.least));
        text(left, HEIGHT - MARGIN + 18.0, "middle", &format!("{:.4}", Short(x.at(share))));
        let (_, top) = place(&(x.least, y.at(share)));
        text(MARGIN - 6.0, top + 4.0, "end", &format!("{:.3}", y.at(share)));
    }
    for (at, curve) in curves.iter().enumerate() {
        text(right + 34.0, MARGIN + 18.0 * at as f64 + 4.0, "start", &curve.name);
    }
    let (bottom, top) = (HEIGHT - MARGIN, MARGIN);
    let _ = writeln!(
        svg,
        "<path d=\"M{MARGIN} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>"
    );
    for (at, curve) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let line: Vec<_> = curve.points.iter().map(place).collect();
        let line: Vec<_> = line.iter().map(|(left, top)| format!("{left:.1},{top:.1}")).collect();
        let (left, height) = (right + 12.0, MARGIN + 18.0 * at as f64);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <path d=\"M{left} {height}h18\" stroke=\"{colour}\" stroke-width=\"3\"/>",
            line.join(" ")
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Axis {
    least: f64,
    greatest: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (least, greatest) = values
            .filter(|value| value.is_finite())
            .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        if least < greatest { Self { least, greatest } } else { Self { least: 0.0, greatest: 1.0 } }
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.least) / (self.greatest - self.least)
    }

    fn at(&self, share: f64) -> f64 {
        self.least + share * (self.greatest - self.least)
    }
}

/// A number in as few digits as say it.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.1}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_inside_and_names_escaped() {
        let curve = Curve { name: "a<b".into(), points: vec![(1.0, 0.2), (10.0, 0.1)] };
        let svg = chart("t", "x", "y", &[curve]);
        assert!(svg.contains("points=\"56.0,56.0 610.0,384.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>\n"));
    }
}
