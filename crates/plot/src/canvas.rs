//! What is drawn, before it is written: shapes, and texts whose places tests can look at.

use crate::text::escaped;
use std::fmt::Write;

/// On which side of its place a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// It begins there.
    Start,
    Middle,
    /// It ends there.
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) x: f64,
    /// Of the line that letters stand on.
    pub(crate) y: f64,
    pub(crate) anchor: Anchor,
    pub(crate) size: f64,
    pub(crate) is_bold: bool,
    pub(crate) text: String,
}

impl Text {
    /// Left, top, right and bottom of the box that it is in.
    #[cfg(test)]
    pub(crate) fn bounds(&self) -> [f64; 4] {
        let wide = crate::text::width(&self.text, self.size, self.is_bold);
        let left = match self.anchor {
            Anchor::Start => self.x,
            Anchor::Middle => self.x - wide / 2.0,
            Anchor::End => self.x - wide,
        };
        [left, self.y - self.size * 0.8, left + wide, self.y + self.size * 0.25]
    }
}

#[derive(Default)]
pub(crate) struct Canvas {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) shapes: String,
    pub(crate) texts: Vec<Text>,
}

impl Canvas {
    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, size: f64, text: &str) {
        self.texts.push(Text { x, y, anchor, size, is_bold: false, text: text.to_owned() });
    }

    pub(crate) fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], style: &str) {
        // Writing into memory does not fail.
        let _ = writeln!(
            self.shapes,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
        );
    }

    /// A curve through points with a dot at each.
    pub(crate) fn curve(&mut self, points: &[[f64; 2]], colour: &str, style: &str) {
        let places: Vec<_> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.shapes,
            "<polyline fill=\"none\" {style} points=\"{}\"/>",
            places.join(" ")
        );
        for [x, y] in points {
            let _ = writeln!(
                self.shapes,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            );
        }
    }

    pub(crate) fn svg(&self) -> String {
        let Self { width, height, shapes, texts } = self;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{shapes}"
        );
        for Text { x, y, anchor, size, is_bold, text } in texts {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let weight = if *is_bold { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\"{weight}>{}</text>",
                escaped(text)
            );
        }
        svg + "</svg>\n"
    }
}
