//! What a group consists of in the model: the configuration store, three copies, and what has become of every write.
//!
//! Everything is small and of fixed size, because millions of states are kept. Fields that the code has under the same
//! name mean the same here.

/// Copies of the group.
pub const COPIES: usize = 3;
/// Most writes that a model may order; each may be at any place.
pub const PLACES: usize = 2;
/// What a learner has at a place that was not copied yet.
pub const HOLE: u8 = 0xff;

/// A copy's number.
pub type Id = u8;
/// A set of copies: bit n is copy n.
pub type Set = u8;

/// The copies of a set.
pub fn copies_of(set: Set) -> impl Iterator<Item = usize> {
    (0..COPIES).filter(move |copy| set & (1 << copy) != 0)
}

/// The set of one copy.
#[must_use]
pub fn only(copy: usize) -> Set {
    1 << copy
}

/// `GroupConfig`: the group's record in the configuration store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config {
    /// Raised at every change.
    pub version: u8,
    /// The term.
    pub epoch: u8,
    /// Whom the term belongs to.
    pub primary: Id,
    /// The process of that copy that has claimed it; 0: none has.
    pub reign: u8,
    /// The in-sync set.
    pub in_sync: Set,
    /// Up to which place a copy outside of it holds everything.
    pub away: [u8; COPIES],
}

impl Config {
    /// This configuration with the next version, to be changed and proposed.
    #[must_use]
    pub fn next(self) -> Config {
        Config { version: self.version + 1, ..self }
    }

    /// Takes a copy out of the in-sync set; it holds everything up to `complete`.
    pub fn remove(&mut self, copy: usize, complete: u8) {
        self.in_sync &= !only(copy);
        self.away[copy] = complete;
    }

    /// Takes a copy into the in-sync set.
    pub fn insert(&mut self, copy: usize) {
        self.in_sync |= only(copy);
        self.away[copy] = 0;
    }
}

/// A prepared order of writes, by their numbers. Durable as soon as it is there; what a crash may take is said with the
/// crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Log {
    /// Number of places that hold something.
    pub len: u8,
    /// The writes, 0 where nothing is.
    pub writes: [u8; PLACES],
}

impl Log {
    /// Appends a write.
    pub fn push(&mut self, write: u8) {
        self.writes[self.len as usize] = write;
        self.len += 1;
    }

    /// Drops what comes after `keep`.
    pub fn truncate(&mut self, keep: u8) {
        for place in keep..self.len {
            self.writes[place as usize] = 0;
        }
        self.len = self.len.min(keep);
    }

    /// Both logs hold the same up to `place`, and neither has a hole there.
    #[must_use]
    pub fn agrees(&self, other: &Log, place: u8) -> bool {
        let upto = place as usize;
        self.len >= place
            && other.len >= place
            && self.writes[..upto] == other.writes[..upto]
            && !self.writes[..upto].contains(&HOLE)
    }
}

/// `Stage` of `TakeOver`: how far a reign has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Copies say how far they are. Under `all` the tail is committed in this stage, too.
    Gathering,
    /// The configuration was changed after enough copies were heard. Not under `all`, where no step depends on it.
    Confirmed,
    /// The epoch's record is on its way to every log.
    Recording,
    /// Reads and writes are served.
    Open,
}

/// `Standing`: what a copy is to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing: the primary knows no such peer.
    #[default]
    None,
    /// Writes wait for it, as the rule says.
    InSync,
    /// It has everything, and writes wait for it; the configuration does not name it yet.
    Joining,
    /// It is being brought up to date; what it has is compared from this place on.
    Learning(u8),
}

/// `Peer`: what a primary knows of another copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// What it is.
    pub standing: Standing,
    /// It follows the epoch on the present connection.
    pub follows: bool,
    /// It has recorded the epoch.
    pub opened: bool,
    /// Everything up to here is durable there.
    pub acked: u8,
    /// It has said how far it is since the reign began.
    pub answered: bool,
    /// Its log is not the one that it was: it is good up to here.
    pub diverged_at: Option<u8>,
    /// A proposal whose outcome is not known names it in sync.
    pub named: bool,
}

impl Peer {
    /// Writes wait for it.
    #[must_use]
    pub fn counts(&self) -> bool {
        matches!(self.standing, Standing::InSync | Standing::Joining)
    }
}

/// `Predecessor`: the primary that the configuration named before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Predecessor {
    /// Which copy.
    pub copy: Id,
    /// Its epoch.
    pub epoch: u8,
    /// It has invited this copy, and its connection stands: the end of its tail may still come.
    pub invited: bool,
    /// This copy's own promise to it, or to one before it, has not run out.
    pub awaited: bool,
    /// It follows this copy.
    pub stopped: bool,
}

/// `Primary`: what only a primary has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reign {
    /// The term.
    pub epoch: u8,
    /// How far it has come.
    pub stage: Stage,
    /// The last place of earlier epochs, once the epoch is being recorded.
    pub opens_at: u8,
    /// A reign that is known to have ended.
    pub ended: u8,
    /// The primary before.
    pub predecessor: Option<Predecessor>,
    /// The in-sync sets that were proposed and may stand unheard: bit s is the set s.
    pub proposals_in_doubt: u8,
    /// What it knows of the others.
    pub peers: [Peer; COPIES],
}

impl Reign {
    /// What was prepared before is being gathered.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        self.stage == Stage::Gathering
    }

    /// Everything prepared before is committed: `TakeOver::opens_at` is known.
    #[must_use]
    pub fn opens(&self) -> bool {
        matches!(self.stage, Stage::Recording | Stage::Open)
    }

    /// The epoch is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The copies that writes wait for.
    pub fn counting(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.counts())
    }

    /// The primary before may still serve.
    #[must_use]
    pub fn awaits_predecessor(&self) -> bool {
        self.predecessor.is_some_and(|before| before.awaited)
    }
}

/// `Claim`: what a copy has to know when the configuration names it primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The epoch that it has claimed.
    pub epoch: u8,
    /// The primary has invited it.
    pub invited: bool,
    /// Whom the configuration named before, and for which epoch.
    pub former: Id,
    /// The epoch of that one.
    pub former_epoch: u8,
    /// A reign that had ended when this was claimed.
    pub ended: u8,
    /// The copy had promised nothing that counts when it claimed, nor has it since.
    pub unbound: bool,
}

/// A change of the configuration that a copy has proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Proposal {
    /// What is to stand.
    pub config: Config,
    /// The store has executed it, and the copy has not heard of that.
    pub accepted: bool,
}

/// `Group`: one copy. Durable are `recorded`, `log`, `committed` in part (`base`), and `incomplete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// The process, among all that this copy has had: `incarnation`.
    pub life: u8,
    /// The configuration that it knows.
    pub config: Config,
    /// The epoch that is recorded on its device: `Epochs::recorded`.
    pub recorded: u8,
    /// What is prepared.
    pub log: Log,
    /// Everything up to here is committed, as far as it knows.
    pub committed: u8,
    /// What was committed when it last recorded an epoch: no crash takes that knowledge.
    pub base: u8,
    /// The log shows everything up to here only.
    pub incomplete: Option<u8>,
    /// This process was told to learn; true: it has known a configuration since that does not name it in sync.
    pub learning: Option<bool>,
    /// Nobody older is listened to: `Epochs::followed`.
    pub following: u8,
    /// The primary of that epoch has opened its present connection with a question.
    pub connected: bool,
    /// A promise, or one that an earlier process may have given, has not run out: `Epochs::is_bound`.
    pub bound: bool,
    /// Copies whose primary may hold a lease that rests on this copy.
    pub leased_to: Set,
    /// Copies that hold a lease for a former reign of theirs. It has not run out, and what it rests on binds this copy
    /// no more, because that reign has ended. Only where promises do not name their epoch.
    pub outdated_leases: Set,
    /// Every in-sync copy holds everything up to here, as far as it has heard.
    pub low_watermark: u8,
    /// A change of the configuration that it has proposed.
    pub proposal: Option<Proposal>,
    /// What is to be known when that lets it reign.
    pub claim: Option<Claim>,
    /// It is primary.
    pub reign: Option<Reign>,
}

impl Node {
    /// Repairs were lost, or a process ended before their end was noted: `Completeness::is_doubtful`.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.incomplete.is_some() && self.learning.is_none()
    }

    /// The last epoch whose record was sent to the log: `Epochs::logged`.
    #[must_use]
    pub fn log_epoch(&self) -> u8 {
        match &self.reign {
            Some(reign) if reign.opens() => reign.epoch,
            _ => self.recorded,
        }
    }

    /// The last epoch that it has voted for, in `Epochs::least_acceptable`.
    #[must_use]
    pub fn promised(&self) -> u8 {
        match &self.reign {
            Some(reign) => reign.epoch + 1,
            None => self.following.max(self.log_epoch()),
        }
    }
}

/// What nobody in the group knows, and the properties ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Witness {
    /// Writes that were ordered.
    pub ordered: u8,
    /// What was first committed, and so acknowledged, at each place.
    pub committed: Log,
    /// The epoch in which.
    pub in_epoch: [u8; PLACES],
    /// Crashes so far.
    pub restarts: u8,
    /// A rule that was broken by the last step, or before.
    pub broken: Option<Broken>,
}

/// What a step can do wrong so that it shows in the step alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// A write was acknowledged that is not on the copies that the rule names.
    TooFewCopies,
    /// Another write was committed at a place that was acknowledged.
    TwoNames,
    /// Two processes have begun to reign in one epoch.
    TwoReigns,
    /// A copy was named in sync that does not hold everything acknowledged.
    JoinedWithout,
}

/// The whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// What stands in the configuration store.
    pub store: Config,
    /// A proposal of a process that has ended, and that the store may still execute.
    pub orphan: Option<Config>,
    /// The copies.
    pub nodes: [Node; COPIES],
    /// What the properties ask for.
    pub witness: Witness,
}

impl State {
    /// Copy 0 has reigned since epoch 1, and all are in sync and know. What plays no part under the rule `all`
    /// (proposals in doubt, the low watermark, who has answered) stays as it is, so that states are not told apart by
    /// it.
    #[must_use]
    pub fn initial() -> State {
        let all: Set = (1 << COPIES) - 1;
        let config = Config { version: 1, epoch: 1, primary: 0, reign: 1, in_sync: all, away: [0; COPIES] };
        let node = Node {
            life: 1,
            config,
            recorded: 1,
            log: Log::default(),
            committed: 0,
            base: 0,
            incomplete: None,
            learning: None,
            following: 1,
            connected: true,
            bound: false,
            leased_to: 0,
            outdated_leases: 0,
            low_watermark: 0,
            proposal: None,
            claim: None,
            reign: None,
        };
        let mut nodes = [node; COPIES];
        let peer = Peer { standing: Standing::InSync, follows: true, opened: true, ..Peer::default() };
        let mut peers = [peer; COPIES];
        peers[0] = Peer::default();
        nodes[0].connected = false;
        nodes[0].reign = Some(Reign {
            epoch: 1,
            stage: Stage::Open,
            opens_at: 0,
            ended: 0,
            predecessor: None,
            proposals_in_doubt: 0,
            peers,
        });
        let witness = Witness::default();
        State { store: config, orphan: None, nodes, witness }
    }
}
