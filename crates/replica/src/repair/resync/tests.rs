//! In which order chunks are compared.

use super::*;

const CHUNK: ChunkIndex = ChunkIndex(5);
const OTHER: ChunkIndex = ChunkIndex(6);

/// Two layers, the second on the first, of which a chunk is to be compared, and another chunk of the second.
fn of_two_layers() -> Resync {
    let todo = [(LayerId(1), CHUNK), (LayerId(2), CHUNK), (LayerId(2), OTHER)];
    Resync { phase: Phase::Copying, todo: todo.into(), ..Resync::new(Sequence(9)) }
}

fn try_again(resync: &mut Resync) {
    resync.try_again(resync.try_at);
}

#[test]
fn a_layer_waits_for_a_withheld_block_of_the_one_below() {
    let mut resync = of_two_layers();
    assert_eq!(resync.next_chunk(), Some((LayerId(1), CHUNK, false)));
    let blocks = BlockRange::block(LayerId(1), CHUNK, BlockIndex(3));
    for _ in 0..2 {
        // The block differs, and can't be read.
        resync.withhold(blocks);
        assert_eq!(
            resync.next_chunk().filter(|(_, chunk, _)| *chunk == CHUNK),
            None,
            "it would inherit the block later"
        );
        try_again(&mut resync);
        assert_eq!(resync.next_chunk(), None, "the block is under way");
        assert_eq!(resync.found.pop_front(), Some(blocks));
    }
    assert_eq!(resync.next_chunk(), Some((LayerId(2), CHUNK, false)));
}

#[test]
fn a_layer_waits_for_an_unreadable_chunk_of_the_one_below() {
    let mut resync = of_two_layers();
    assert_eq!(resync.next_chunk(), Some((LayerId(1), CHUNK, false)));
    resync.put_off(LayerId(1), CHUNK);
    assert_eq!(resync.next_chunk(), Some((LayerId(2), OTHER, false)), "nothing is inherited there");
    assert_eq!(resync.next_chunk(), None);
    assert!(!resync.is_done());
    try_again(&mut resync);
    assert_eq!(resync.next_chunk(), Some((LayerId(1), CHUNK, false)));
    assert_eq!(resync.next_chunk(), Some((LayerId(2), CHUNK, false)));
    assert!(resync.next_chunk().is_none() && resync.is_done() == resync.noted);
}
