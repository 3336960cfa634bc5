//! Plans: the measurements of a run, their order, and their requirements for the fleet.

pub mod bench;
pub mod load;
pub mod run;
mod sides;
