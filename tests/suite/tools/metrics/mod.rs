//! What /metrics shows: which series there are, how many there can be, and the stats of the whole store.

mod stats_collector;
mod collector_claim;
mod depth;
mod page;
mod series;
