//! Targets of several logical units, as the configuration has them.

use azekura_frontend::Targets;
use azekura_model::Model;

/// All of them.
pub(crate) fn targets(model: &Model) -> Targets {
    let mut targets = Targets::default();
    model.targets.values().for_each(|target| targets.add(&target.name, target.units.clone()));
    targets
}
