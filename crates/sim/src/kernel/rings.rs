//! Connections between the shards of one process: messages go by value, in their order, and arrive a little later.
//! Nothing of them is lost but with the process.

use crate::kernel::network::{ConnId, Side};
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use azekura_wire::Message;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Their numbers begin here, those of other connections below.
const FIRST: u64 = 1 << 40;

/// What an end gets.
pub(crate) enum Item {
    /// It is one, from now on.
    Joined,
    Message(Message),
    /// The other end has closed it.
    Closed,
}

struct End {
    life: Life,
    open: bool,
    coming: VecDeque<(Duration, Item)>,
    last: Duration,
}

impl End {
    fn new(life: Life) -> End {
        End { life, open: true, coming: VecDeque::new(), last: Duration::ZERO }
    }
}

/// All of them.
pub(crate) struct Rings {
    ends: BTreeMap<ConnId, [End; 2]>,
    made: u64,
    random: Random,
}

fn index(side: Side) -> usize {
    usize::from(side == Side::Acceptor)
}

/// Whether a connection is one of these.
pub(crate) fn is_ring(conn: ConnId) -> bool {
    conn.0 >= FIRST
}

impl Rings {
    pub(crate) fn new(random: Random) -> Rings {
        Rings { ends: BTreeMap::new(), made: 0, random }
    }

    /// One shard joins another one of its process, which hears of it at the time that is given back.
    pub(crate) fn join(&mut self, from: Life, to: Life, now: Duration) -> (ConnId, Duration) {
        let id = ConnId(FIRST + self.made);
        self.made += 1;
        self.ends.insert(id, [End::new(from), End::new(to)]);
        (id, self.put(id, Side::Acceptor, Item::Joined, now).unwrap_or(now))
    }

    /// What is put in at an end comes out at the other one at the time that is given back; `None`: nobody is there.
    pub(crate) fn send(&mut self, id: ConnId, side: Side, message: Message, now: Duration) -> Option<Duration> {
        let open = self.ends.get(&id)?[index(side)].open;
        open.then(|| self.put(id, side.other(), Item::Message(message), now))?
    }

    fn put(&mut self, id: ConnId, to: Side, item: Item, now: Duration) -> Option<Duration> {
        let delay = if self.random.chance(95) { self.random.micros(0, 5) } else { self.random.micros(5, 200) };
        let end = &mut self.ends.get_mut(&id)?[index(to)];
        end.last = end.last.max(now + delay);
        end.coming.push_back((end.last, item));
        Some(end.last)
    }

    /// The next that has come to an end by now.
    pub(crate) fn take(&mut self, id: ConnId, side: Side, now: Duration) -> Option<(Life, Item)> {
        let end = &mut self.ends.get_mut(&id)?[index(side)];
        end.coming.front().filter(|(at, _)| *at <= now)?;
        let (_, item) = end.coming.pop_front()?;
        let taken = end.open.then_some((end.life, item));
        if matches!(taken, Some((_, Item::Closed))) {
            self.ends.remove(&id);
        }
        taken
    }

    /// An end is closed; the other one hears of it at the time that is given back, behind what was sent.
    pub(crate) fn close(&mut self, id: ConnId, side: Side, now: Duration) -> Option<Duration> {
        let ends = self.ends.get_mut(&id)?;
        ends[index(side)].open = false;
        if !ends[index(side.other())].open {
            self.ends.remove(&id);
            return None;
        }
        self.put(id, side.other(), Item::Closed, now)
    }

    /// A process ends.
    pub(crate) fn end_die(&mut self, process: Life) {
        self.ends.retain(|_, [end, _]| end.life.process() != process.process());
    }

    /// The shard at an end.
    pub(crate) fn life_at(&self, id: ConnId, side: Side) -> Option<Life> {
        self.ends.get(&id).map(|ends| ends[index(side)].life)
    }
}
