//! What keeps a push.

/// What a push is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// In Redis; on the local disk while Redis is away.
    Standard,
    /// In Redis, and for a window on the local disk as well, in case Redis loses its last moments.
    Journal,
}

impl Durability {
    /// Every one.
    pub const ALL: &[Durability] = &[Durability::Standard, Durability::Journal];

    /// The word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Standard => "standard",
            Durability::Journal => "journal",
        }
    }
}
