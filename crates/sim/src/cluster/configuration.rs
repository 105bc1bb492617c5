//! The simulated configuration store: the records in memory, changed by the transitions of `azekura-model`, and news to
//! all nodes.
//!
//! A process's client asks again until it has an answer, as the real one does: an answer may be lost although the
//! change was made.

mod news;

use crate::cluster::records::CLASS;
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use azekura_base::{DeviceId, KeyId, NodeId, PgId, VolumeId, mix64};
use azekura_cipher::{VolumeKey, VolumeKeys};
use azekura_frontend::Reservations;
use azekura_model::history::{Copied, is_lasting};
use azekura_model::transitions::alive::Claim;
use azekura_model::transitions::groups::{Proposed, confirm_copy_forgotten, propose, replace_group};
use azekura_model::transitions::restored::{Restoration, RestoreMoment, plan_restore};
use azekura_model::{
    ClassRecord, DataKeyRecord, GroupRecord, Halt, Key, Memory, MetaError, Model, Outcome, Records, Step, Txn,
    WrappedKey,
};
use azekura_node::{ClusterView, Views, proposal_of};
use azekura_replica::{AckRule, GroupConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What an operator has not who says that the configuration was restored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// He has the copy that a node has of all that was there before.
    Nothing,
    /// What has changed since the backup.
    Newest,
    /// The same, of the groups' records only: where snapshots are made, those that were deleted since would be back.
    NewestGroups,
}

/// The reservations of all volumes that have a record.
pub(crate) type AllReservations = BTreeMap<VolumeId, Arc<Reservations>>;

/// The data keys of encrypted volumes, as every node opens them.
pub(crate) type DataKeyring = azekura_gateway::Keyring;

/// Pause before a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The store. It takes its time, and nodes may lose it for a while.
pub(crate) struct Configuration {
    /// The records. Each change has its own revision.
    store: Memory,
    views: Views,
    /// What nodes are told of the records.
    view: Arc<ClusterView>,
    /// And of reservations.
    reservations: Arc<AllReservations>,
    /// And of data keys.
    keys: Arc<DataKeyring>,
    /// All data keys that were ever opened: who opens one again has the same.
    opened: BTreeMap<u64, Arc<VolumeKey>>,
    /// How long requests on volumes wait: also times that are no whole seconds, as the records have them.
    io_timeouts: BTreeMap<String, Duration>,
    /// The latest news that each process has had: news that it overtook is void.
    known: BTreeMap<Life, u64>,
    /// Until when nodes do not reach the store.
    away: BTreeMap<NodeId, Duration>,
    /// It answers at once, and loses nothing.
    pub(crate) is_quick: bool,
    /// A node that hears of everything late.
    far: Option<NodeId>,
    /// Nodes hear who has attached volumes; else anybody has them who wants to.
    tells_attachments: bool,
    random: Random,
    /// The store as it was when somebody made a backup.
    backup: Option<Memory>,
    /// Its revision when it was last restored.
    restored: u64,
    /// Processes that ran when the configuration was restored.
    former: BTreeSet<(NodeId, u64)>,
}

impl Configuration {
    pub(crate) fn new(
        store: Memory,
        io_timeouts: BTreeMap<String, Duration>,
        far: Option<NodeId>,
        tells_attachments: bool,
        random: Random,
    ) -> Configuration {
        let mut configuration = Configuration {
            store,
            views: Views::default(),
            view: Arc::default(),
            reservations: Arc::default(),
            keys: Arc::default(),
            opened: BTreeMap::new(),
            io_timeouts,
            known: BTreeMap::new(),
            away: BTreeMap::new(),
            is_quick: false,
            far,
            tells_attachments,
            random,
            backup: None,
            restored: 0,
            former: BTreeSet::new(),
        };
        configuration.show();
        configuration
    }

    /// Makes the view anew.
    fn show(&mut self) {
        let mut view = self.views.of(self.store.model());
        // Devices are so small that some percent of them are a few writes: they are used to the last.
        view.full_percent = None;
        if !self.tells_attachments {
            view.attachments.clear(); // A restore begins records of attachments for all volumes.
        }
        for (name, time) in &self.io_timeouts {
            if let Some(volume) = view.volumes.get_mut(name) {
                Arc::make_mut(volume).io_timeout = Some(*time);
            }
        }
        self.view = Arc::new(view);
        let records = self.store.model().reservations.iter();
        let known = &self.reservations;
        let now = records.map(|(id, record)| {
            let same = known.get(id).filter(|known| known.record.as_ref() == Some(&record.record));
            (*id, same.cloned().unwrap_or_else(|| Arc::new(Reservations::of(record.record.clone()))))
        });
        self.reservations = Arc::new(now.collect());
        let opened = &mut self.opened;
        self.keys = Arc::new(self.store.model().data_keys.values().map(|record| open(record, opened)).collect());
    }

    /// The records.
    pub(crate) fn model(&self) -> &Model {
        self.store.model()
    }

    /// Executes a transition; gives what it comes to, and the revision.
    ///
    /// # Errors
    /// When it is refused, or something is in the way that will be over soon.
    pub(crate) fn run<T>(
        &mut self,
        transition: impl FnOnce(&Records<'_>) -> Outcome<T>,
    ) -> Result<(T, u64), MetaError> {
        match transition(&Records::known(self.store.model())) {
            Ok(Step::Done(value, _)) => Ok((value, self.view.revision)),
            Ok(Step::Run(txn, value)) => Ok((value, self.change(&txn))),
            Ok(Step::Again) => Err(MetaError::Contended { what: "it".into(), seconds: 0 }),
            Err(Halt::Refused(error)) => Err(error),
            Err(halt) => unreachable!("everything is known: {halt:?}"),
        }
    }

    /// Executes a change that was made from what is; gives its revision.
    pub(crate) fn change(&mut self, txn: &Txn) -> u64 {
        self.try_change(txn).expect("nobody was faster")
    }

    /// Executes a change; `None` when somebody was faster.
    pub(crate) fn try_change(&mut self, txn: &Txn) -> Option<u64> {
        self.store.run(txn)?;
        self.show();
        Some(self.view.revision)
    }

    /// A node takes a key that ends with a lease, which nobody else has.
    pub(crate) fn claim(&mut self, claim: Claim) {
        self.store.claim(claim, "").expect("nobody else has it");
        self.show();
    }

    /// The lease of such a key ends.
    pub(crate) fn end(&mut self, claim: Claim) {
        self.store.end(claim);
        self.show();
    }

    /// Replaces a group's record by another one, whatever version it has.
    pub(crate) fn replace(&mut self, next: &GroupRecord) {
        let now = self.model().groups.get(&next.id).map_or(0, |group| group.mod_revision);
        self.change(&replace_group(next, now));
    }

    /// Other devices are to have copies of a group.
    pub(crate) fn change_members(&mut self, pg: PgId, members: BTreeSet<DeviceId>) {
        let Some(group) = self.model().groups.get(&pg) else { return };
        let next = group.with_members(&Vec::from_iter(members));
        self.replace(&next);
    }

    /// A device has given up its copy of a group. Gives the version of the group's record if that has changed.
    pub(crate) fn forget_copy(&mut self, pg: PgId, device: DeviceId) -> Option<u64> {
        let version = |model: &Model| model.groups.get(&pg).map(|group| group.version);
        let before = version(self.model());
        self.run(|records| confirm_copy_forgotten(records, pg, device)).ok()?;
        version(self.model()).filter(|after| Some(*after) != before)
    }

    /// The class has another ack rule, of which its groups hear.
    pub(crate) fn set_rule(&mut self, ack: AckRule) {
        let model = self.model().clone();
        let Some(class) = model.classes.get(CLASS) else { return };
        let class_now = ClassRecord { ack_rule: ack, ..class.record.clone() };
        for group in model.groups.values() {
            let next = GroupRecord { version: group.version + 1, ..group.record.clone() };
            let txn = replace_group(&next, group.mod_revision).put(&Key::Class(CLASS).to_string(), &class_now);
            self.change(&txn);
        }
    }

    pub(crate) fn has_backup(&self) -> bool {
        self.backup.is_some()
    }

    /// Somebody makes a backup; not of groups that are closed, of which nothing is known.
    pub(crate) fn back_up(&mut self) {
        if !self.is_restoring() {
            self.backup = Some(self.store.clone());
        }
    }

    /// The groups are as the backup has them, and nobody says so.
    pub(crate) fn go_back(&mut self) {
        let groups = self.backup.iter().flat_map(|backup| backup.model().groups.values()).cloned();
        let txn = groups.fold(Txn::new(), |txn, group| txn.put(&Key::Group(group.id).to_string(), &group.record));
        self.change(&txn);
    }

    /// The store is as the backup has it, and somebody says so. `running` processes are not told of it.
    ///
    /// # Errors
    /// When the control plane refuses.
    pub(crate) fn restore(
        &mut self,
        lacks: Lacks,
        running: BTreeSet<(NodeId, u64)>,
        now: Duration,
    ) -> Result<(), MetaError> {
        let Some(backup) = self.backup.clone() else { return Ok(()) };
        let mut copies = Vec::new();
        let mut store = match lacks {
            Lacks::NewestGroups => {
                self.go_back();
                self.store.clone()
            }
            Lacks::Nothing => {
                copies.extend(Copied::of(self.model()));
                backup
            }
            Lacks::Newest => backup,
        };
        // No lease lives as long as a restore takes.
        let fleeting = Vec::from_iter(store.model().keys.keys().filter(|key| !is_lasting(key)).cloned());
        for key in fleeting {
            store.hold(&key, None);
        }
        let moment = RestoreMoment {
            // A clock that is a thousand times as fast: runs restore more often than once a second.
            seconds: now.as_millis() as u64,
            now: String::new(),
            life: format!("{:032x}", self.random.below(u64::MAX)),
            random: self.random.below(u64::MAX),
        };
        let restoration = Restoration { copies, without: BTreeSet::new() };
        let restore = plan_restore(store.model(), &restoration, &moment)?;
        (self.store, self.views) = (store, Views::default());
        self.change(restore.first());
        let guard = self.model().cluster.as_ref().map_or(0, |cluster| cluster.mod_revision);
        for txn in restore.rest(guard) {
            self.change(&txn);
        }
        self.former.extend(running);
        self.restored = self.view.revision;
        Ok(())
    }

    /// The life that began when the configuration was restored, while not all groups are open again.
    pub(crate) fn restored_life(&self) -> Option<&str> {
        let cluster = self.model().cluster.as_ref()?;
        cluster.restored.as_ref().map(|_| cluster.life.as_str())
    }

    /// It was restored, and not all groups are open again.
    pub(crate) fn is_restoring(&self) -> bool {
        self.restored_life().is_some()
    }

    /// The revision with which the latest restore had ended.
    pub(crate) fn restored_revision(&self) -> u64 {
        self.restored
    }

    /// All groups, also those that are closed.
    pub(crate) fn group_ids(&self) -> Vec<PgId> {
        self.model().groups.keys().copied().collect()
    }

    /// The groups of a class.
    pub(crate) fn groups_of(&self, class: &str) -> Vec<PgId> {
        self.model().classes.get(class).map(|class| class.groups.clone()).unwrap_or_default()
    }

    /// Whether a process has run since before the configuration was last restored.
    pub(crate) fn is_former(&self, life: Life) -> bool {
        self.former.contains(&life.process())
    }

    pub(crate) fn view(&self) -> &ClusterView {
        &self.view
    }

    /// Up to which revision a process knows the configuration.
    pub(crate) fn known_by(&self, life: Life) -> u64 {
        self.known.get(&life).copied().unwrap_or(0)
    }

    /// A node does not reach the store until then.
    pub(crate) fn lose(&mut self, node: NodeId, until: Duration) {
        let before = self.away.entry(node).or_default();
        *before = until.max(*before);
    }

    /// Everybody reaches the store again.
    pub(crate) fn come_back(&mut self) {
        self.away.clear();
    }

    pub(crate) fn away(&self, node: NodeId, now: Duration) -> Option<Duration> {
        self.away.get(&node).copied().filter(|until| now < *until)
    }

    pub(crate) fn delay(&mut self) -> Duration {
        if self.is_quick || self.random.chance(90) {
            self.random.micros(200, 3000)
        } else {
            self.random.spread_millis(3, 300)
        }
    }

    /// Makes the change that a copy proposes, if nobody was faster. Gives whether it stands, and whether it did before.
    fn propose(&mut self, pg: PgId, config: &GroupConfig) -> (bool, bool) {
        match propose(self.model(), pg, &proposal_of(config)) {
            Proposed::Stands => (true, true),
            Proposed::Void => (false, false),
            Proposed::Replace(record, mod_revision) => {
                self.change(&replace_group(&record, mod_revision));
                (true, false)
            }
        }
    }
}

/// A data key as every node opens it: the bytes of a key follow from its name.
fn open(
    record: &DataKeyRecord,
    opened: &mut BTreeMap<u64, Arc<VolumeKey>>,
) -> (KeyId, Result<Arc<VolumeKeys>, String>) {
    let key = |generation: &WrappedKey| {
        let nth: u64 = generation.wrapped.parse().expect("keys are numbered");
        let new = || {
            let bytes = std::array::from_fn(|at| mix64(nth << 8 | at as u64) as u8);
            Arc::new(VolumeKey::new(&bytes).expect("its halves differ"))
        };
        (generation.number, opened.entry(nth).or_insert_with(new).clone())
    };
    let writing = record.current().expect("one is written with").number;
    let keys = VolumeKeys::new(record.generations.iter().map(key).collect(), writing);
    (record.id, Ok(Arc::new(keys.expect("each generation is there once"))))
}
