//! The audit of a pair: whether ids and bodies agree with each other, both ways.

/// How keys of a pair can disagree. dwell makes none of these; a store that lost something, or a hand, may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A body that is neither in the zset nor in a reservation: nobody would deliver it. A repair schedules it, not
    /// earlier than it was due.
    BodyWithoutId,
    /// An id in the zset whose body is gone. A repair drops it.
    IdWithoutBody,
    /// Attempts charged to a message whose body is gone. A repair drops them.
    ChargeWithoutBody,
    /// The id of a dead message whose body is gone. A repair drops it.
    DeadIdWithoutBody,
    /// A dead message that is in no list. A repair lists it, as if it had died now.
    DeadBodyWithoutId,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Defect; 5] = [
        Defect::BodyWithoutId,
        Defect::IdWithoutBody,
        Defect::ChargeWithoutBody,
        Defect::DeadIdWithoutBody,
        Defect::DeadBodyWithoutId,
    ];

    /// The stable name, as in the API and in scripts.
    pub fn name(self) -> &'static str {
        match self {
            Defect::BodyWithoutId => "body_without_id",
            Defect::IdWithoutBody => "id_without_body",
            Defect::ChargeWithoutBody => "charge_without_body",
            Defect::DeadIdWithoutBody => "dead_id_without_body",
            Defect::DeadBodyWithoutId => "dead_body_without_id",
        }
    }
}

/// Something that an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whose keys disagree. Keys that others wrote may hold ids that dwell would refuse.
    pub id: String,
    /// How.
    pub defect: Defect,
}

/// Where an audit goes on. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyCursor(pub String);

/// A page of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyPage {
    /// How many entries were looked at.
    pub seen: u64,
    /// What was found; repaired, if that was asked for.
    pub findings: Vec<Finding>,
    /// Where the next page begins, if there is more.
    pub next: Option<VerifyCursor>,
}
