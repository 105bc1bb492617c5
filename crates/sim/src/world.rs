//! The world of one run: a cluster, and on its scene the faults, the workloads and what the checks have seen.

use crate::checks::history::History;
use crate::checks::minimum::Minimum;
use crate::checks::order::{Order, Owner};
use crate::cluster::attachments::Holders;
use crate::cluster::configuration::Configuration;
use crate::cluster::cuts::{Cuts, Done};
use crate::cluster::devices::identity;
use crate::cluster::machine::Machine;
use crate::cluster::operator::Operator;
use crate::cluster::records::{self, LOST, SECOND, VOLUME};
use crate::cluster::{Cluster, Parts, Scene};
use crate::cue::Cue;
use crate::faults::drawn::Faults;
use crate::faults::guests::Guests;
use crate::faults::wear::Wear;
use crate::kernel::device::{Device, Honesty};
use crate::kernel::network::{ConnId, Narrow, Network};
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::kernel::rings::Rings;
use crate::kernel::time::Stamp;
use crate::plan::{Lie, Mode, Plan};
use crate::report::{Invariant, Violation};
use crate::workloads::clients::Clients;
use crate::workloads::fsx::Fsx;
use crate::workloads::lost::Lost;
use crate::workloads::rekeys::Rekeys;
use crate::workloads::snapshots::Snapshots;
use crate::workloads::usurper::Usurper;
use azekura_base::{DeviceId, Epoch, NodeId, PgId, WriteHeader};
use azekura_gateway::Outcome;
use azekura_node::Views;
use azekura_replica::ScrubReport;
use azekura_wire::Message;
use std::collections::BTreeMap;
use std::time::Duration;

/// A cluster with everything around it: what a seed draws, and what is run.
///
/// # Its states
///
/// ```text
///   draw ──► working ──► faults end ──► comes to rest ──► all lose power ──► comes to rest ──► report
///               │             │               │                                    │
///               └─────────────┴───────────────┴─────────────► violation ◄──────────┘
/// ```
///
/// *Working*, clients start operations and faults happen ([`Cluster::works`]). *Coming to rest* (`checks/rest.rs`),
/// what was begun must end in time, all copies must become equal, and everything is read back. The second time is after
/// a loss of power of all machines at once; a run with flipped bits ends before it. The first violation ends the run.
pub(crate) type World = Cluster<Stage>;

/// Those who use, trouble and watch the cluster.
///
/// # How it is driven
///
/// The cluster calls the functions of [`Scene`] at the moment that something happens in it. What one of them wants to
/// do later, it asks for with [`Cluster::cue_at`], and gets it as its [`Cue`]; what it wants done in the cluster it
/// does by the cluster's own methods. Workloads (`workloads/`) and faults (`faults/`) live on cues, checks (`checks/`)
/// on what they are told: each has its state in a field here, and its steps as methods of the [`World`].
///
/// # What that costs
///
/// Each of these functions gets the whole world: what is the cluster's own is parted from the rest by private fields
/// alone. Each part draws from a stream of random numbers of its own: a new part must not draw from those that are
/// there, or every seed that is written down means something else.
pub(crate) struct Stage {
    pub(crate) faults: Faults,
    pub(crate) wear: Wear,
    /// Draws which devices hang.
    pub(crate) hangs: Random,
    pub(crate) clients: Clients,
    pub(crate) lost: Lost,
    pub(crate) snapshots: Snapshots,
    pub(crate) usurper: Usurper,
    pub(crate) fsx: Fsx,
    pub(crate) history: History,
    pub(crate) order: Order,
    pub(crate) minimum: Minimum,
    /// Questions that the observer has asked.
    pub(crate) questions: u64,
}

/// The world that `seed` draws. The order in which parts are drawn decides what a seed means.
///
/// # Errors
/// When a device can't be formatted.
pub(crate) fn draw(seed: u64, plan: &Plan) -> Result<World, Violation> {
    let mut random = Random::new(seed);
    let options = plan.store_options(&mut random);
    let lost = Lost::new(plan.mode, Random::new(seed ^ 0x6c6f_7374));
    let store = records::draw(plan, &mut random, Random::new(seed ^ 0x7365_7473));
    let view = Views::default().of(store.model());
    let honesty = match plan.lie {
        Some(Lie::LosingDisk) => Honesty::Liar,
        _ if plan.devices_fail => Honesty::Doubtful,
        _ => Honesty::Honest,
    };
    let mut devices = BTreeMap::new();
    let nodes_of_devices: BTreeMap<DeviceId, NodeId> = view.devices.iter().map(|(id, at)| (*id, at.node)).collect();
    for (id, node) in &nodes_of_devices {
        let device = Device::format(identity(*id), *node, options.clone(), random.fork(), honesty, plan.disk_depth);
        let broken = |what| Violation { invariant: Invariant::StoreKeeps, what, at: Duration::ZERO };
        let device = device.map_err(broken)?;
        devices.insert(*id, if plan.new_logs { device.with_new_log() } else { device });
    }
    // A node may be far from the configuration store.
    let far = *random.clone().pick(&view.nodes.keys().copied().map(Some).chain([None]).collect::<Vec<_>>());
    let far = far.filter(|_| matches!(plan.mode, Mode::Snapshots | Mode::Fsx));
    let nodes: Vec<NodeId> = view.nodes.keys().copied().collect();
    let node = *Random::new(seed ^ 0x6e6f_6465).pick(&nodes);
    let narrow = plan.narrow.map(|bytes_per_second| Narrow { node, bytes_per_second });
    let fsx = Fsx::new(plan, &view, Random::new(seed ^ 0x6673_7821));
    let decaying = *random.pick(&devices.keys().copied().collect::<Vec<_>>());
    let machines =
        nodes.into_iter().map(|node| (node, Machine::new(random.fork(), shards_random(seed, node)))).collect();
    let network = Network::new(random.fork(), narrow);
    let holders = Holders::new(plan, Random::new(seed ^ 0x6c65_6176));
    let configuration = Configuration::new(store, io_timeouts(plan, &lost), far, holders.recorded, random.fork());
    let clients = Clients::new(plan, random.fork());
    let fate = random.fork();
    let usurper = Usurper::new(random.fork());
    let cuts = Cuts::new(random.fork());
    let operator = Operator::new(plan, options, nodes_of_devices, random.fork());
    let wear = Wear::new(random.fork());
    let rings = Rings::new(Random::new(seed ^ 0x7269_6e67));
    let parts = Parts { random: fate, network, rings, machines, devices, configuration, holders, cuts, operator };
    let guests = Guests::new(plan, Random::new(seed ^ 0x6775_6573));
    let initialising = Random::new(seed ^ 0x696e_6974);
    let scene = Stage {
        faults: Faults::new(
            [
                Random::new(seed ^ 0x766f_7465),
                initialising,
                Random::new(seed ^ 0x6b65_7973),
                Random::new(seed ^ 0x7363_7275),
            ],
            decaying,
            guests,
            Rekeys::new(plan, Random::new(seed ^ 0x7265_6b65)),
        ),
        wear,
        hangs: Random::new(seed ^ 0x6861_6e67),
        clients,
        lost,
        snapshots: Snapshots::new(plan),
        usurper,
        fsx,
        history: History::default(),
        order: Order::default(),
        minimum: Minimum::default(),
        questions: 0,
    };
    Ok(Cluster::new(plan, parts, scene))
}

/// Draws how many shards the processes of a node have.
fn shards_random(seed: u64, node: NodeId) -> Random {
    Random::new(seed ^ 0x7368_6172 ^ u64::from(node.0) << 40)
}

/// How long requests on volumes wait, where they don't for ever.
fn io_timeouts(plan: &Plan, lost: &Lost) -> BTreeMap<String, Duration> {
    let volumes = [(VOLUME, plan.io_timeout), (SECOND, plan.io_timeout), (LOST, lost.io_timeout)];
    volumes.into_iter().filter_map(|(volume, time)| Some((volume.to_owned(), time?))).collect()
}

impl Scene for Stage {
    type Cue = Cue;

    fn cue(world: &mut World, cue: Cue) {
        match cue {
            Cue::Usurp => world.usurp(),
            Cue::Preempt => world.preempt(),
            Cue::Rekey => world.rekey_turn(),
            Cue::Snapshot => world.snapshot_turn(),
            Cue::Relay => world.relay_turn(),
            Cue::Lost => world.lost_turn(),
            Cue::Client(client) => world.client_turn(client),
            Cue::Part => world.part_for_votes(),
            Cue::Kill(life) => world.kill(life),
            Cue::Fault => world.fault(),
            Cue::Wear => world.wear_devices(),
            Cue::Hang => world.hang_devices(),
            Cue::Initialise => world.initialise_logs(),
            Cue::Guests => world.guests_turn(),
            Cue::GuestLeaves(node, by) => world.guest_leaves(node, by),
            Cue::GuestEnds(node) => world.guest_ends(node),
            Cue::Scrub => world.scrub_some_group(),
            Cue::Reopen => world.reopen_groups(),
            Cue::Key(node) => world.key_turn(node),
            Cue::KeyIsBack(node) => world.give_key_back(node),
        }
    }

    fn answered(world: &mut World, token: u64, outcome: Outcome) {
        world.completed(token, outcome);
    }

    fn unanswered(world: &mut World, token: u64) {
        world.not_completed(token);
    }

    fn clients_gone(world: &mut World, life: Life) {
        world.lost_loses(life);
        world.inspections_end(life);
    }

    fn host_is_out(world: &mut World, host: usize, at: Stamp) {
        world.host_is_out(host, at);
    }

    fn heard(world: &mut World, life: Life) {
        world.fsx_news(life);
    }

    fn cut_is_over(world: &mut World, id: u64, done: Option<Done>) {
        if world.scene.fsx.on {
            world.fsx_cut_over(id, done);
        } else if let Some(done) = done {
            world.snapshots_made(id, &done);
        }
    }

    fn device_stopped(world: &mut World, device: DeviceId) {
        world.break_for_good(device);
    }

    fn crashes(world: &mut World, node: NodeId) {
        world.note_committed(node);
    }

    fn turned(world: &mut World, life: Life) {
        world.check_serving(life);
        world.check_links(life);
        world.check_windows(life);
        world.check_acknowledged(life);
        world.check_keys(life);
    }

    fn acts_as_primary(world: &mut World, life: Life, device: DeviceId, (group, epoch): (PgId, Epoch)) {
        if let Err(what) = world.scene.order.acts_as_primary(group, epoch, Owner { life, device }) {
            world.violate(Invariant::OnePrimary, what);
        }
    }

    fn orders(world: &mut World, life: Life, write: &WriteHeader) {
        if let Err((invariant, what)) = world.scene.order.prepared(life, write) {
            world.violate(invariant, what);
        }
    }

    fn sends(world: &mut World, life: Life, conn: ConnId, message: &Message) {
        world.watch_votes(life, message);
        world.check_minimum(life, conn, message);
    }

    fn heartbeat_came(world: &mut World, to: Life, sent: Duration, slowness: u32) {
        world.check_beat(to, sent, slowness);
    }

    fn scrubbed(world: &mut World, group: PgId, report: &ScrubReport) {
        world.check_scrub(group, report);
    }

    fn may_complain(world: &World) -> bool {
        world.complaints_are_right() || world.scene.faults.keys.is_wrong
    }

    fn is_calm(world: &World) -> bool {
        world.scene.wear.calm
    }

    fn copies_stay(world: &World) -> bool {
        world.scene.wear.calm && !world.scene.wear.loses()
    }
}
