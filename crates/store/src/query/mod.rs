//! Questions about whole chunks and layers: which have changed, what one holds, what two show differently, what the end
//! of one would give back. Leaves are looked up by who drives them; here is what is asked, and what came of it.

mod asked;
mod changed;
mod chunk;
mod compare;
mod measure;

pub(crate) use asked::ChangedQuery;
pub(crate) use chunk::{digest, status};

use crate::query::compare::Comparing;
use crate::query::measure::Measurement;
use std::collections::BTreeMap;

/// Questions that take several steps, by their tokens.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    measurements: BTreeMap<u64, Measurement>,
    comparisons: BTreeMap<u64, Comparing>,
}
