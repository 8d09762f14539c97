//! What /metrics shows: which series there are, how many there can be, and the census of the whole store.

mod census;
mod claim;
mod depth;
mod page;
mod series;
