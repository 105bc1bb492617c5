//! What a node's data plane is asked about layers.

pub use azekura_base::{CompareLayers, Differences, DifferingBlocks, MeasureLayer, Measured, NotTold};
