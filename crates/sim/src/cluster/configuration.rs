//! The simulated configuration store: the records in memory, changed by the transitions of `azekura-model`, and news to
//! all nodes.
//!
//! A process's client asks again until it has an answer, as the real one does: an answer may be lost although the
//! change was made.

mod news;

use crate::cluster::records::CLASS;
use crate::cluster::records::CLUSTER;
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use azekura_base::{DeviceId, Epoch, NodeId, PgId};
use azekura_model::transitions::alive::Claim;
use azekura_model::transitions::groups::{Proposed, confirm_copy_forgotten, propose, replace_group};
use azekura_model::{
    ClassRecord, ClosedRecord, ClusterRecord, GroupRecord, Halt, Key, Memory, MetaError, Model, Outcome, Records,
    RestoredRecord, Step, Txn, Unknown,
};
use azekura_node::{ClusterView, Views, group_config, proposal_of};
use azekura_replica::{AckRule, GroupConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Pause before a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The store. It takes its time, and nodes may lose it for a while.
pub(crate) struct Configuration {
    /// The records. Each change has its own revision.
    store: Memory,
    views: Views,
    /// What nodes are told of the records.
    view: Arc<ClusterView>,
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
    random: Random,
    /// The groups as they were when somebody made a backup.
    backup: Option<Vec<GroupRecord>>,
    /// Processes that ran when the configuration was last restored.
    former: BTreeSet<(NodeId, u64)>,
}

/// Versions and epochs of groups jump to the time, in milliseconds, times this when the configuration was restored.
const NUMBERS_PER_MILLISECOND: u64 = 1 << 20;

impl Configuration {
    pub(crate) fn new(
        store: Memory,
        io_timeouts: BTreeMap<String, Duration>,
        far: Option<NodeId>,
        random: Random,
    ) -> Configuration {
        let mut configuration = Configuration {
            store,
            views: Views::default(),
            view: Arc::default(),
            io_timeouts,
            known: BTreeMap::new(),
            away: BTreeMap::new(),
            is_quick: false,
            far,
            random,
            backup: None,
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
        for (name, time) in &self.io_timeouts {
            if let Some(volume) = view.volumes.get_mut(name) {
                Arc::make_mut(volume).io_timeout = Some(*time);
            }
        }
        self.view = Arc::new(view);
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
        if !self.is_closed() {
            self.backup = Some(self.model().groups.values().map(|group| group.record.clone()).collect());
        }
    }

    /// The groups are as the backup has them.
    pub(crate) fn go_back(&mut self) {
        self.put_back(Txn::new(), |group| group);
    }

    fn put_back(&mut self, txn: Txn, change: impl Fn(GroupRecord) -> GroupRecord) {
        let groups = self.backup.iter().flatten().cloned().map(change);
        let txn = groups.fold(txn, |txn, group| txn.put(&Key::Group(group.id).to_string(), &group));
        self.change(&txn);
    }

    /// The same, and somebody says so: the groups are closed, and `running` processes are not told any more.
    pub(crate) fn close_as_of_backup(&mut self, running: BTreeSet<(NodeId, u64)>, now: Duration) {
        let beyond = now.as_millis() as u64 * NUMBERS_PER_MILLISECOND;
        let txn = Txn::new().put(&Key::Cluster.to_string(), &cluster(Some(RestoredRecord::default())));
        self.put_back(txn, |group| {
            let closed = Some(ClosedRecord { one_history: false, problem: None });
            GroupRecord { version: beyond, epoch: Epoch(beyond), closed, ..group }
        });
        self.former = running;
    }

    /// All groups, also those that are closed.
    pub(crate) fn group_ids(&self) -> Vec<PgId> {
        self.model().groups.keys().copied().collect()
    }

    /// The groups of a class.
    pub(crate) fn groups_of(&self, class: &str) -> Vec<PgId> {
        self.model().classes.get(class).map(|class| class.groups.clone()).unwrap_or_default()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.model().groups.values().any(|group| group.closed.is_some())
    }

    /// Whether a process has run since before the configuration was last restored.
    pub(crate) fn is_former(&self, life: Life) -> bool {
        self.former.contains(&life.process())
    }

    /// Groups that wait for all devices after a restore.
    pub(crate) fn closed(&self) -> Vec<(PgId, GroupConfig)> {
        let model = self.model();
        let closed = model.groups.values().filter(|group| group.closed.is_some());
        let config =
            |group: &GroupRecord| Some((group.id, group_config(model, group, model.classes.get(&group.class)?)));
        closed.filter_map(|group| config(&group.record)).collect()
    }

    /// A closed group is open again, like this.
    pub(crate) fn reopen(&mut self, pg: PgId, next: GroupConfig) {
        let Some(group) = self.model().groups.get(&pg).map(|group| group.record.clone()) else { return };
        self.replace(&GroupRecord {
            version: next.version,
            epoch: next.epoch,
            primary: next.primary,
            primary_incarnation: next.primary_incarnation,
            in_sync: next.in_sync.into_iter().collect(),
            away: next.away,
            members: next.members.into_iter().collect(),
            leaving: next.leaving,
            closed: None,
            ..group
        });
        if !self.is_closed() {
            self.change(&Txn::new().put(&Key::Cluster.to_string(), &cluster(None)));
        }
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

fn cluster(restored: Option<RestoredRecord>) -> ClusterRecord {
    ClusterRecord {
        id: format!("{CLUSTER:032x}"),
        name: String::new(),
        created: String::new(),
        life: String::new(),
        former_lives: Vec::new(),
        restored,
        unknown: Unknown::default(),
    }
}
