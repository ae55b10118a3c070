//! What a drive is opened for.

/// What a remote drive is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To have it, unless another host does.
    #[default]
    Own,
    /// To have it, also if another host does.
    Take,
    /// To read it beside its owner.
    Read,
    /// To write anything anywhere, if nothing has it.
    Overwrite,
}

impl Purpose {
    /// Whether it is to become this server's.
    pub(crate) fn owns(self) -> bool {
        matches!(self, Self::Own | Self::Take)
    }
}
