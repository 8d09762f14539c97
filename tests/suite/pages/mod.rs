//! What the pages say is true, and the code is as they say.

mod group_costs;
pub(crate) mod readme;
mod reference;
mod tidy;
