//! Connections without a socket: parts of a session that has one.
#![allow(clippy::unwrap_used)]

use crate::support::{BRANCHES, Rig};
use azekura_base::{Generation, Inbox, Outbox, VolumeId};
use azekura_frontend::{
    Admission, Ask, Branch, BranchNews, Client, Close, Effect, Event, Exports, Frontend, HostProof, HostRight, Named,
    News, Nexus, Protocol, Request, Right, StreamProtocol, Tag, VolumeUse, Word,
};
use azekura_gateway::Outcome;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// What a session does, and what it hears of its branches.
#[derive(Default)]
struct Script {
    events: VecDeque<Event>,
    branches: BTreeMap<u32, Branch>,
    heard: Vec<(u32, BranchNews)>,
    wants: Option<usize>,
}

/// A session that does what its script says.
struct Session(Rc<RefCell<Script>>, Inbox, Outbox);

impl Protocol for Session {
    fn name() -> &'static str {
        "script"
    }

    fn poll(&mut self, _: &dyn Exports) -> Option<Event> {
        let Script { events, branches, heard, .. } = &mut *self.0.borrow_mut();
        for (number, branch) in branches {
            while let Some(news) = branch.next_news(0) {
                branch.acknowledged(1);
                heard.push((*number, news));
            }
        }
        events.pop_front()
    }

    fn reply(&mut self, _: Tag, _: Outcome) {
        unreachable!("it asks for nothing by itself")
    }

    fn wants_room(&self) -> Option<usize> {
        self.0.borrow().wants
    }

    fn give_room(&mut self) {
        self.0.borrow_mut().wants = None;
    }

    fn keeps_room(&self) -> bool {
        true
    }
}

impl StreamProtocol for Session {
    fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.1
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.2
    }

    fn wants_bytes(&self) -> bool {
        true
    }
}

const HOST: &str = "iqn.2026-01.example:a";

fn of(volume: &str) -> VolumeUse {
    VolumeUse { volume: volume.to_owned(), host: HOST.parse().ok() }
}

fn may(volumes: &[&str]) -> Arc<Admission> {
    let volumes = Some(volumes.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>());
    let bounds = azekura_base::Bounds::All;
    let right = Right { name: "a".to_owned(), role: azekura_base::Role::User, bounds, volumes };
    let right = HostRight { grant: azekura_base::GrantId(1), proof: HostProof::Name, right };
    let hosts = BTreeMap::from([(HOST.parse().unwrap(), right)]);
    Arc::new(Admission { is_known: true, host_paths: true, hosts, ..Admission::default() })
}

/// A session of a host that may open two volumes.
struct Tree {
    rig: Rig,
    script: Rc<RefCell<Script>>,
    trunk: u32,
}

impl Tree {
    fn new() -> Tree {
        let mut rig = Rig::new(&["vol1", "vol2"]);
        rig.front(|frontend, cx| frontend.admit_by(may(&["vol1", "vol2"]), cx));
        let (script, trunk) = (Rc::new(RefCell::new(Script::default())), rig.connect());
        let session = Session(Rc::clone(&script), Inbox::default(), Outbox::default());
        rig.sockets.0.insert(trunk, Client::host(Box::new(session)));
        let mut tree = Tree { rig, script, trunk };
        let named = Named { host: HOST.parse().ok(), grant: Some(azekura_base::GrantId(1)) };
        tree.does([Event::Named(named), Event::Stays]);
        tree
    }

    fn does<const COUNT: usize>(&mut self, events: [Event; COUNT]) {
        self.script.borrow_mut().events.extend(events);
        let trunk = self.trunk;
        self.rig.front(|frontend, cx| frontend.pump(trunk, cx));
        self.rig.turn();
    }

    /// Begins a branch, up to its wish for its nexus; the volume is attached so if it was not. Gives the connection and
    /// its number as a member.
    fn begins(&mut self, number: u32, attachment: u64, writes: bool) -> (u32, u64) {
        let volume = format!("vol{number}");
        let (branch, end) = Branch::new(&volume, Nexus::from(format!("nexus {number}")));
        self.script.borrow_mut().branches.insert(number, branch);
        self.does([Event::Branches(number, end)]);
        let mut effects = self.rig.effects();
        if effects.contains(&Effect::Attach(of(&volume))) {
            self.rig.attached_for(&of(&volume), u64::from(number), attachment, writes);
            effects = self.rig.effects();
        }
        let unit = volume.as_str().into();
        let member = effects.iter().find_map(|effect| match effect {
            Effect::Nexus(member, News::Wants { unit: other, .. }) if *other == unit => Some(*member),
            _ => None,
        });
        (*self.rig.sockets.0.keys().max().unwrap(), member.unwrap_or_else(|| panic!("{effects:?}")))
    }

    /// The same, and it is open.
    fn opens(&mut self, number: u32, attachment: u64, writes: bool) -> (u32, u64) {
        let (conn, member) = self.begins(number, attachment, writes);
        self.begin(member);
        let heard = self.heard();
        assert!(
            matches!(&heard[..], [(of, BranchNews::Opened(export))] if *of == number && export.name == format!("vol{number}"))
        );
        (conn, member)
    }

    fn begin(&mut self, number: u64) {
        let word = Word::Begin(azekura_frontend::Member { shard: azekura_base::Shard(0), number });
        self.rig.front(|frontend, cx| frontend.told(word, cx));
        self.rig.turn();
    }

    fn asks(&mut self, number: u32, tag: u64, request: Request) {
        let ask = Ask::Request { tag: Tag(tag), memory_bytes: 4096, request };
        self.script.borrow_mut().branches.get_mut(&number).unwrap().ask(ask);
        self.does([Event::Tells(number)]);
    }

    fn heard(&mut self) -> Vec<(u32, BranchNews)> {
        std::mem::take(&mut self.script.borrow_mut().heard)
    }

    /// The attachment of a volume has ended.
    fn ends(&mut self, volume: u64, attachment: u64) {
        self.rig.volumes.ended.insert((VolumeId(volume), Generation(attachment)));
        self.rig.frontend.attachments_ended();
        self.rig.turn();
    }
}

fn write(text: &'static [u8]) -> Request {
    Request::Write { offset: 0, bytes: text.into() }
}

#[test]
fn each_branch_opens_a_volume_of_its_own_under_an_attachment_of_its_own() {
    let mut tree = Tree::new();
    let ((one, _), (two, _)) = (tree.opens(1, 7, true), tree.opens(2, 9, true));
    assert!(one >= BRANCHES && two > one && tree.rig.frontend.opened().len() == 2);
    tree.asks(1, 11, write(b"a"));
    tree.asks(2, 12, write(b"b"));
    let asked: Vec<(String, Generation)> =
        tree.rig.volumes.asked.values().map(|(volume, attachment, _)| (volume.clone(), *attachment)).collect();
    assert_eq!(asked, [("vol1".to_owned(), Generation(7)), ("vol2".to_owned(), Generation(9))]);
    tree.rig.answer_all();
    let answered = |number, tag| (number, BranchNews::Answered(Tag(tag), Outcome::Done));
    assert_eq!(tree.heard(), [answered(2, 12), answered(1, 11)]);
    // One has nothing to do for the gateway, and is answered at once.
    tree.asks(1, 13, Request::Flush);
    assert_eq!(tree.heard(), [answered(1, 13)]);
}

#[test]
fn a_branch_whose_attachment_has_ended_is_lost_when_nothing_of_it_is_under_way() {
    let mut tree = Tree::new();
    let ((one, member), (two, _)) = (tree.opens(1, 7, true), tree.opens(2, 9, true));
    tree.asks(1, 11, write(b"a"));
    tree.asks(2, 12, write(b"b"));
    tree.ends(1, 7);
    let effects = tree.rig.effects();
    assert!(effects.contains(&Effect::Close(one, Close::Lingering)), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Close(conn, _) if *conn != one)), "{effects:?}");
    tree.rig.branch_closed(one);
    assert_eq!(tree.heard(), [], "a write of it may still be carried out");
    assert!(!tree.rig.effects().contains(&Effect::Nexus(member, News::Over)));
    tree.rig.answer_all();
    let heard = tree.heard();
    assert_eq!(heard, [(2, BranchNews::Answered(Tag(12), Outcome::Done)), (1, BranchNews::Lost)]);
    assert!(tree.rig.effects().contains(&Effect::Nexus(member, News::Over)));
    // The other one goes on, and the lost one comes again.
    tree.asks(2, 14, write(b"c"));
    assert_eq!(tree.rig.volumes.asked.len(), 1);
    let (again, _) = tree.opens(1, 21, true);
    assert!(again > two);
}

#[test]
fn a_write_where_the_host_reads_ends_its_branch_and_no_other_one() {
    let mut tree = Tree::new();
    let ((one, _), _) = (tree.opens(1, 7, false), tree.opens(2, 9, true));
    tree.asks(1, 11, Request::Read { offset: 0, len: 4096 });
    assert_eq!(tree.rig.volumes.asked.len(), 1);
    tree.asks(1, 12, write(b"a"));
    assert_eq!(tree.rig.effects(), [Effect::AttachToWrite(of("vol1")), Effect::Close(one, Close::Lingering)]);
    tree.asks(1, 13, write(b"b"));
    assert_eq!(tree.rig.volumes.asked.len(), 1, "nothing of a branch that is being closed is let in");
    tree.rig.branch_closed(one);
    tree.rig.answer_all();
    assert_eq!(tree.heard(), [(1, BranchNews::Lost)]);
    let unused = tree.script.borrow_mut().branches.get_mut(&1).unwrap().take_unused();
    assert_eq!(unused, [4096], "what was not taken gives its memory back");
    tree.asks(2, 14, write(b"c"));
    assert_eq!(tree.rig.volumes.asked.len(), 1);
}

#[test]
fn branches_go_with_their_trunk() {
    let mut tree = Tree::new();
    let ((one, member), (two, other)) = (tree.opens(1, 7, true), tree.opens(2, 9, true));
    tree.asks(1, 11, write(b"a"));
    tree.rig.gone(tree.trunk);
    let effects = tree.rig.effects();
    assert!(effects.ends_with(&[Effect::Close(one, Close::AtOnce), Effect::Close(two, Close::AtOnce)]), "{effects:?}");
    tree.rig.branch_closed(one);
    tree.rig.branch_closed(two);
    let effects = tree.rig.effects();
    assert!(effects.contains(&Effect::Nexus(other, News::Over)), "{effects:?}");
    assert!(!effects.contains(&Effect::Nexus(member, News::Over)), "its write may still be carried out");
    tree.rig.answer_all();
    let effects = tree.rig.effects();
    assert!(effects.contains(&Effect::Nexus(member, News::Over)), "{effects:?}");
    assert!(effects.contains(&Effect::GiveBack(of("vol1"), Generation(7))), "{effects:?}");
    assert_eq!(tree.rig.frontend.connections(), 0);
}

#[test]
fn a_session_that_is_replaced_has_nothing_more_let_in_on_its_branches() {
    let mut tree = Tree::new();
    let nexus = Nexus::from("session");
    tree.does([Event::WantsNexus { nexus, export: "no volume".to_owned() }]);
    let effects = tree.rig.effects();
    let Effect::Nexus(member, News::Wants { .. }) = effects[0] else { panic!("{effects:?}") };
    tree.begin(member);
    tree.opens(1, 7, true);
    tree.rig.volumes.stuck.insert("vol1".to_owned());
    tree.asks(1, 11, write(b"a"));
    let end = Word::End(azekura_frontend::Member { shard: azekura_base::Shard(0), number: member });
    tree.rig.front(|frontend, cx| frontend.told(end, cx));
    tree.rig.volumes.stuck.clear();
    tree.rig.turn();
    assert!(tree.rig.effects().contains(&Effect::Close(tree.trunk, Close::AtOnce)));
    assert!(tree.rig.volumes.asked.is_empty());
    tree.asks(1, 12, write(b"b"));
    assert!(tree.rig.volumes.asked.is_empty());
}

#[test]
fn a_host_that_loses_one_volume_keeps_the_others() {
    let mut tree = Tree::new();
    let ((one, _), (two, _)) = (tree.opens(1, 7, true), tree.opens(2, 9, true));
    tree.rig.front(|frontend, cx| frontend.admit_by(may(&["vol2"]), cx));
    let closes = |effects: &[Effect<u32>], of| effects.contains(&Effect::Close(of, Close::AtOnce));
    let effects = tree.rig.effects();
    assert!(closes(&effects, one) && !closes(&effects, two) && !closes(&effects, tree.trunk), "{effects:?}");
    tree.rig.branch_closed(one);
    assert_eq!(tree.heard(), [(1, BranchNews::Lost)]);
    let (branch, end) = Branch::new("vol1", "nexus 1".into());
    tree.script.borrow_mut().branches.insert(1, branch);
    tree.does([Event::Branches(1, end)]);
    assert!(matches!(&tree.heard()[..], [(1, BranchNews::Refused(_))]));
}

#[test]
fn a_volume_that_is_deleted_is_lost_and_one_that_is_not_wanted_any_more_is_given_back() {
    let mut tree = Tree::new();
    let ((one, _), (two, _)) = (tree.opens(1, 7, true), tree.opens(2, 9, true));
    tree.rig.volumes.all.remove("vol1");
    tree.rig.front(Frontend::volumes_changed);
    assert!(tree.rig.effects().contains(&Effect::Close(one, Close::AfterDrain)));
    tree.rig.branch_closed(one);
    assert_eq!(tree.heard(), [(1, BranchNews::Lost)]);
    tree.rig.effects();
    tree.script.borrow_mut().branches.get_mut(&2).unwrap().end();
    tree.does([Event::Tells(2)]);
    assert_eq!(tree.rig.effects(), [Effect::Close(two, Close::AfterDrain)]);
    tree.rig.branch_closed(two);
    assert_eq!(tree.heard(), [(2, BranchNews::Lost)]);
    assert!(tree.rig.effects().contains(&Effect::GiveBack(of("vol2"), Generation(9))));
}

/// Memory is the session's: what a branch's requests have taken is free again however they end.
#[test]
fn no_memory_stays_taken() {
    const LARGE: usize = 30 << 20;
    let mut tree = Tree::new();
    for round in 0..20 {
        let (conn, _) = tree.opens(1, 7 + round, round % 3 > 0);
        tree.script.borrow_mut().wants = Some(LARGE);
        tree.does([]);
        assert!(tree.script.borrow().wants.is_none(), "round {round}: there is no memory any more");
        let request = if round % 2 == 0 { write(b"a") } else { Request::Read { offset: 0, len: 4096 } };
        let ask = Ask::Request { tag: Tag(round), memory_bytes: LARGE, request };
        tree.script.borrow_mut().branches.get_mut(&1).unwrap().ask(ask);
        if round % 5 == 4 {
            tree.rig.volumes.stuck.insert("vol1".to_owned());
        }
        tree.does([Event::Tells(1)]);
        tree.ends(1, 7 + round);
        tree.rig.branch_closed(conn);
        tree.rig.volumes.stuck.clear();
        tree.rig.answer_all();
        tree.rig.effects();
        assert!(matches!(&tree.heard()[..], [(1, BranchNews::Lost)]), "round {round}");
    }
}
