//! Plans: the measurements of a run, their order, and their requirements for the fleet.

pub mod bench;
pub mod load;
mod memory;
pub mod observe;
pub mod run;
mod sides;
