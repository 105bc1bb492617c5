//! A map from the log alone (docs/decisions/0061-rebuilt-map.md).
//!
//! The log of a device in use has holes: segments were written anew since, with the only records of some trims and
//! overwrites in them. So a rebuilt map may show what was there before. Nothing of it is served: the groups of such a
//! map are *unproven*, and their copies are compared with others, block by block, before they count. What the map saves
//! is the copying.
//!
//! For that to be safe, a leaf may only be in it where a complete copy has one, too, or where it can only hold what
//! that copy shows there: what is compared is what the complete copy has leaves of. So a write counts only if it was
//! committed for certain, and a layer only if it is known.
//!
//! - `segment.rs`: what is in a segment.
//! - `survey.rs`: what all segments say of the log, of groups and of layers.
//! - `fact.rs`: what they say of blocks.
//! - `chunk.rs`: from those to leaves.
//! - `plan.rs`: which segments are free by that, and where the log goes on.

mod chunk;
mod fact;
mod plan;
mod segment;
mod settings;
mod survey;

pub use plan::{Rebuild, RebuildReport, RebuildStep};
pub use settings::{KnownLayers, RebuildSettings};
