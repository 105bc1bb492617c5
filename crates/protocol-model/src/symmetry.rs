//! States that differ only in the numbers of copies are one state.

use crate::quorum::AckRule;
use crate::state::{COPIES, Config, Id, Proposal, Set, State, copies_of};

/// `PERMUTATIONS[n][copy]` is the new number of `copy`. The first two leave the third copy alone.
const PERMUTATIONS: [[Id; COPIES]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The least of the states that differ from this one only in the copies' numbers.
pub(crate) fn representative(ack: AckRule, state: &State) -> State {
    // Sites tell copies apart.
    let which = if ack == AckRule::EachSite { 2 } else { 6 };
    PERMUTATIONS[1..which].iter().map(|new| renumbered(state, new)).fold(*state, State::min)
}

fn renumbered(state: &State, new: &[Id; COPIES]) -> State {
    let set = |old: Set| copies_of(old).fold(0, |set, copy| set | 1 << new[copy]);
    let sets = |old: u8| (0..8u8).filter(|s| old & 1 << s != 0).fold(0, |sets, s| sets | 1 << set(s));
    let config = |old: Config| {
        let mut away = [0; COPIES];
        (0..COPIES).for_each(|copy| away[new[copy] as usize] = old.away[copy]);
        Config { primary: new[old.primary as usize], in_sync: set(old.in_sync), away, ..old }
    };
    let mut nodes = state.nodes;
    for (copy, old) in state.nodes.iter().enumerate() {
        let mut node = *old;
        node.config = config(node.config);
        node.leased_to = set(node.leased_to);
        node.outdated_leases = set(node.outdated_leases);
        node.proposal = node.proposal.map(|proposal| Proposal { config: config(proposal.config), ..proposal });
        if let Some(claim) = &mut node.claim {
            claim.former = new[claim.former as usize];
        }
        if let (Some(reign), Some(before)) = (&mut node.reign, &old.reign) {
            reign.proposals_in_doubt = sets(reign.proposals_in_doubt);
            (0..COPIES).for_each(|peer| reign.peers[new[peer] as usize] = before.peers[peer]);
            if let Some(predecessor) = &mut reign.predecessor {
                predecessor.copy = new[predecessor.copy as usize];
            }
        }
        nodes[new[copy] as usize] = node;
    }
    State { store: config(state.store), orphan: state.orphan.map(config), nodes, ..*state }
}
