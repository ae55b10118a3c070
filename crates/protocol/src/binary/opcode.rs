//! The commands by number.

use crate::Verb;

/// The opcode of what is asked most.
pub(super) const GET: u8 = 0x00;

/// What an opcode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get { with_key: bool },
    GetAndTouch { with_key: bool },
    Touch,
    Store(Verb),
    Extend(Verb),
    Delete,
    Arith { increments: bool },
    Flush,
    Stat,
    Noop,
    Version,
    Quit,
    SaslMechanisms,
    SaslAuth,
    SaslStep,
}

/// A rule for one of the lengths that a header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Absent,
    Present,
    Any,
}

impl Part {
    pub(super) fn allows(self, bytes: u32) -> bool {
        match self {
            Self::Absent => bytes == 0,
            Self::Present => bytes > 0,
            Self::Any => true,
        }
    }
}

impl Kind {
    /// The command, and whether this opcode is its quiet form.
    pub(super) fn of(opcode: u8) -> Option<(Self, bool)> {
        use Kind::*;
        let kind = match opcode {
            GET | 0x09 => Get { with_key: false },
            0x0c | 0x0d => Get { with_key: true },
            0x1d | 0x1e => GetAndTouch { with_key: false },
            0x23 | 0x24 => GetAndTouch { with_key: true },
            0x1c => Touch,
            0x01 | 0x11 => Store(Verb::Set),
            0x02 | 0x12 => Store(Verb::Add),
            0x03 | 0x13 => Store(Verb::Replace),
            0x0e | 0x19 => Extend(Verb::Append),
            0x0f | 0x1a => Extend(Verb::Prepend),
            0x04 | 0x14 => Delete,
            0x05 | 0x15 => Arith { increments: true },
            0x06 | 0x16 => Arith { increments: false },
            0x07 | 0x17 => Quit,
            0x08 | 0x18 => Flush,
            0x0a => Noop,
            0x0b => Version,
            0x10 => Stat,
            0x20 => SaslMechanisms,
            0x21 => SaslAuth,
            0x22 => SaslStep,
            _ => return None,
        };
        let quiet = matches!(opcode, 0x09 | 0x0d | 0x11..=0x1a | 0x1e | 0x24);
        Some((kind, quiet))
    }

    /// Whether it may have so many bytes of extras.
    pub(super) fn allows_extras(self, bytes: usize) -> bool {
        match self {
            Self::GetAndTouch { .. } | Self::Touch => bytes == 4,
            Self::Store(_) => bytes == 8,
            Self::Arith { .. } => bytes == 20,
            Self::Flush => bytes == 0 || bytes == 4,
            _ => bytes == 0,
        }
    }

    /// Which of key and value it has.
    pub(super) fn parts(self) -> (Part, Part) {
        match self {
            Self::Store(_) | Self::Extend(_) | Self::SaslAuth | Self::SaslStep => {
                (Part::Present, Part::Any)
            }
            Self::Get { .. } | Self::GetAndTouch { .. } | Self::Touch => {
                (Part::Present, Part::Absent)
            }
            Self::Delete | Self::Arith { .. } => (Part::Present, Part::Absent),
            Self::Stat => (Part::Any, Part::Absent),
            Self::Noop | Self::Version | Self::Quit | Self::Flush | Self::SaslMechanisms => {
                (Part::Absent, Part::Absent)
            }
        }
    }
}
