//! Segments: sorted pages of records on a tier, and the tables of where each segment and each of its pages lies.

pub(crate) mod layout;
pub(crate) mod look;
pub(crate) mod order;
pub(crate) mod packing;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod segment;
pub(crate) mod spans;
