//! The messages of a key one after the other: stories below HTTP with a clock that only the story moves, operations by
//! chance, and several processes whose members and Redis die.

mod batches;
mod fleet;
mod kept;
mod shop;
mod serial;
mod held;
