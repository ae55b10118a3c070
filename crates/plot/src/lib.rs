//! Curves as SVG without scripts and with nothing to fetch: ticks in round numbers, text that neither overlaps nor is
//! cut.
//!
//! A [`Figure`] has rows of charts below a legend of all curves. Widths of text are estimated, since which font a
//! reader has is unknown; what is too long is broken into lines.
#![forbid(unsafe_code)]

mod canvas;
mod figure;
mod scale;
mod text;

pub use figure::{Axis, Chart, Figure};
pub use scale::Scale;
pub use text::escaped;
