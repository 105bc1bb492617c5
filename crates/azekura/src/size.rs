//! Sizes as people write them.

pub use azekura_meta::size::Size;
