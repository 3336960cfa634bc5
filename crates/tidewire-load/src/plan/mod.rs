//! Plans: which measurements a run makes, in which order, and what each needs of the fleet.

pub mod bench;
pub mod load;
pub mod run;
mod sides;
