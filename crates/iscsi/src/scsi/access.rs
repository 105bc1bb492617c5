//! Asymmetric logical unit access (ALUA, SPC-4 section 5.15): which path is the better one. States change implicitly,
//! with the node that carries out the host's writes (docs/decisions/0048-paths-of-a-host.md).

use super::sense::Sense;
use super::{Cdb, Disk, Plan};
use azekura_frontend::PathState;

/// TPGS of standard inquiry data: states change by themselves, and initiators do not set them.
pub(super) const IMPLICIT: u8 = 0x10;
/// Seconds that a change takes at the most.
const TRANSITION_SECONDS: u8 = 30;

/// REPORT TARGET PORT GROUPS (SPC-4 section 6.37): the group of this node's port. How others see the same volume is
/// asked of them: each would know it better.
pub(super) fn report(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    const LENGTH_ONLY: u8 = 0;
    const EXTENDED: u8 = 1;
    /// T_SUP, and states that there are: optimized and non-optimized.
    const SUPPORTED: u8 = 0x80 | 0x02 | 0x01;
    /// Why it is in this state: it has changed implicitly.
    const IMPLICITLY: u8 = 2;
    let mut bytes = match cdb.0[1] >> 5 {
        LENGTH_ONLY => vec![0; 4],
        EXTENDED => vec![0, 0, 0, 0, EXTENDED << 4, TRANSITION_SECONDS, 0, 0],
        _ => return Plan::Check(Sense::FIELD),
    };
    let state = match disk.path {
        PathState::Optimized => 0,
        PathState::NonOptimized => 1,
    };
    let [high, low] = disk.port.to_be_bytes();
    bytes.extend_from_slice(&[state, SUPPORTED, high, low, 0, IMPLICITLY, 0, 1, 0, 0, high, low]);
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    Plan::data(bytes, cdb.u32(6))
}
