//! Who may say how many blocks of a segment are live.

/// The right to change a segment's live count. A leaf has changed with it.
#[derive(Debug)]
pub(crate) struct LiveRight(());

impl LiveRight {
    pub(super) const LEAF: LiveRight = LiveRight(());
}
