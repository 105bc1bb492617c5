//! The states of a take-over, one by one.

use super::*;
use azekura_base::PgId;

const FORMER: DeviceId = DeviceId(1);
const OTHER: DeviceId = DeviceId(3);
const CONNECTION: Client = Client::Conn(7);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A claim of epoch 5; the former primary is of epoch 4.
fn claim(invited: bool) -> Claim {
    let (epoch, former, ended) = (Epoch(5), (FORMER, Epoch(4)), Epoch::BEFORE_ALL);
    Claim { epoch, invited, former, ended, after_readers: false, unbound: None }
}

/// The configuration names this process at 1,000 ms; its promises go until 1,500 ms.
fn named(invited: bool) -> TakeOver {
    TakeOver::new(&claim(invited), Some(CONNECTION), at(1500), at(1000))
}

fn answer(prepared: u64) -> NewEpochOk {
    let (pg, device, epoch, recorded) = (PgId(1), OTHER, Epoch(5), Epoch(4));
    let (prepared, committed) = (Sequence(prepared), Sequence(0));
    NewEpochOk { pg, device, epoch, prepared, open: false, full: false, recorded, committed }
}

#[test]
fn from_gathering_to_open() {
    let mut takeover = named(false);
    assert!(takeover.is_gathering() && takeover.opens_at().is_none());
    assert!(!takeover.open(), "it is not recorded");
    takeover.confirm();
    assert!(!takeover.is_gathering() && takeover.opens_at().is_none());
    takeover.record(Sequence(9));
    assert_eq!((takeover.opens_at(), takeover.is_open()), (Some(Sequence(9)), false));
    assert!(takeover.open());
    takeover.confirm();
    assert_eq!((takeover.opens_at(), takeover.is_open(), takeover.is_gathering()), (Some(Sequence(9)), true, false));
    assert!(!takeover.open(), "once");
}

#[test]
fn the_tail_may_be_committed_without_a_confirmation() {
    let mut takeover = named(false);
    takeover.record(Sequence(3));
    assert!(takeover.open());
}

#[test]
fn nothing_is_committed_while_the_predecessor_may_serve() {
    let mut takeover = named(false);
    assert_eq!(takeover.waits(at(1499)), Some(Wait::Predecessor));
    assert_eq!(takeover.waits(at(1500)), None, "the promise has run out");
    assert!(takeover.follows(FORMER, Epoch(4)), "epoch 4 has ended");
    assert_eq!((takeover.waits(at(1000)), takeover.ended()), (None, Epoch(4)));
    assert!(!takeover.follows(FORMER, Epoch(4)), "that is known");
}

#[test]
fn the_word_of_a_primary_that_never_opened_its_epoch_counts_for_less() {
    // This copy has recorded epoch 3: its promise was to the primary of epoch 3, of whom the former primary knows
    // nothing.
    let mut takeover = named(false);
    assert!(takeover.follows(FORMER, Epoch(3)));
    assert_eq!(takeover.waits(at(1499)), Some(Wait::Predecessor));
    // Nor does that of another copy count.
    let mut takeover = named(false);
    assert!(!takeover.follows(OTHER, Epoch(4)));
    assert_eq!(takeover.waits(at(1499)), Some(Wait::Predecessor));
}

#[test]
fn a_copy_that_has_promised_nothing_since_its_claim_waits_for_nobody() {
    let unbound = Claim { unbound: Some(at(1500)), ..claim(false) };
    assert_eq!(TakeOver::new(&unbound, None, at(1500), at(1000)).waits(at(1000)), None);
    // The copy has answered a heartbeat since.
    assert_eq!(TakeOver::new(&unbound, None, at(1700), at(1000)).waits(at(1699)), Some(Wait::Predecessor));
}

#[test]
fn nothing_is_committed_while_others_may_answer_readers() {
    let mut takeover = named(false);
    takeover.wait_for_readers(at(3000));
    takeover.wait_for_readers(at(2000));
    assert_eq!(takeover.waits(at(1499)), Some(Wait::Predecessor));
    assert_eq!(takeover.waits(at(2999)), Some(Wait::Readers));
    assert_eq!(takeover.waits(at(3000)), None);
}

#[test]
fn the_rest_of_the_tail_is_waited_for_where_the_former_primary_has_invited() {
    assert!(!named(false).put_off(OTHER, answer(9), at(1000)), "nothing is on its way");
    let mut takeover = named(true);
    assert!(
        takeover.predecessor.has_sent(CONNECTION, Epoch(4))
            && !takeover.predecessor.has_sent(Client::Conn(8), Epoch(4))
    );
    assert!(takeover.put_off(OTHER, answer(9), at(1299)));
    assert!(takeover.take_due_answers(Sequence(8), at(1299)).is_empty());
    assert_eq!(takeover.take_due_answers(Sequence(9), at(1299)), LateAnswers::from([(OTHER, answer(9))]));
    assert!(!takeover.put_off(OTHER, answer(9), at(1300)), "it has waited for long enough");
}

#[test]
fn an_answer_that_waits_is_heard_when_the_wait_is_over() {
    let mut takeover = named(true);
    assert!(takeover.put_off(OTHER, answer(9), at(1000)));
    assert_eq!(takeover.take_due_answers(Sequence(0), at(1300)).len(), 1);
    assert!(takeover.put_off(OTHER, answer(9), at(1000)));
    takeover.forget_answer(OTHER);
    assert!(takeover.take_due_answers(Sequence(9), at(1300)).is_empty(), "its connection broke");
    // The confirmed set ends the wait.
    assert!(takeover.put_off(OTHER, answer(9), at(1000)));
    takeover.confirm();
    assert_eq!(takeover.take_due_answers(Sequence(0), at(1000)).len(), 1);
}

#[test]
fn a_predecessor_that_says_nothing_is_not_waited_for_once_no_promise_binds() {
    let mut takeover = named(false);
    assert_eq!(takeover.unheard_predecessor(at(1499)), None);
    assert_eq!(takeover.unheard_predecessor(at(1500)), Some(FORMER));
    takeover.follows(FORMER, Epoch(4));
    assert_eq!(takeover.unheard_predecessor(at(1500)), None);
}
