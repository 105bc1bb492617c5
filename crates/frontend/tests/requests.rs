//! Requests and their answers, through a second, tiny protocol.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::IoStatus;
use azekura_frontend::{Close, Effect, VolumeUse};
use azekura_gateway::{Op, Outcome};
use proptest::prelude::*;

#[test]
fn answers_find_their_requests_in_any_order() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "write 0 hello\nread 8 4\nflush");
    assert_eq!(rig.heard(conn), "ok 3\n", "a flush is done at once: all that was answered is durable");
    let ops: Vec<_> = rig.volumes.asked.values().map(|(volume, attachment, op)| (volume, attachment.0, op)).collect();
    assert!(matches!(ops[0], (_, 7, Op::Write { offset: 0, bytes }) if bytes == "hello"));
    assert!(matches!(ops[1], (_, 7, Op::Read { offset: 8, len: 4 })));
    rig.answer_all();
    assert_eq!(rig.heard(conn), "data 2 [Zero(4)]\nok 1\n");
}

#[test]
fn an_error_comes_as_the_protocol_has_it() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.say(conn, "write 0 hello");
    let token = *rig.volumes.asked.keys().next().unwrap();
    rig.front(|frontend, cx| frontend.complete(token, Outcome::Failed(IoStatus::NoSpace), cx));
    assert_eq!(rig.heard(conn), format!("failed 1 {}\n", IoStatus::NoSpace));
}

#[test]
fn a_volume_without_room_keeps_nobody_else_waiting() {
    let mut rig = Rig::new(&["vol1", "vol2"]);
    let (one, two) = (rig.open("vol1", 7), rig.open("vol2", 8));
    rig.volumes.stuck.insert("vol1".into());
    rig.say(one, "read 0 4096\nread 4096 4096");
    rig.say(two, "read 0 4096\nread 4096 4096");
    let volumes: Vec<&str> = rig.volumes.asked.values().map(|(volume, ..)| volume.as_str()).collect();
    assert_eq!(volumes, ["vol2", "vol2"]);
    rig.volumes.stuck.clear();
    rig.turn();
    assert_eq!(rig.volumes.asked.len(), 4);
}

#[test]
fn a_breach_of_the_protocol_ends_the_connection_and_so_does_a_farewell() {
    let mut rig = Rig::new(&["vol1"]);
    let (one, two) = (rig.open("vol1", 7), rig.open("vol1", 7));
    rig.say(one, "dance");
    let effects = rig.effects();
    assert_eq!(effects[0], Effect::Close(one, Close::AfterDrain));
    assert!(matches!(&effects[1], Effect::Warn(warning) if warning.text.contains("dance")));
    rig.say(two, "quit");
    assert_eq!(rig.effects(), [Effect::Close(two, Close::AfterDrain)]);
}

#[test]
fn the_same_breach_of_the_protocol_is_told_once_a_minute() {
    let mut rig = Rig::new(&["vol1"]);
    // Somebody stays, so that the volume stays attached.
    rig.open("vol1", 7);
    let mut told = Vec::new();
    for _ in 0..100 {
        let conn = rig.open("vol1", 7);
        rig.say(conn, "dance");
        told.extend(rig.effects().into_iter().filter(|effect| matches!(effect, Effect::Warn(_))));
        rig.gone(conn);
    }
    assert_eq!(told.len(), 1, "{told:?}");
    let conn = rig.open("vol1", 7);
    rig.say(conn, "sing");
    assert!(
        rig.effects().iter().any(|effect| matches!(effect, Effect::Warn(warning) if warning.text.contains("sing")))
    );
}

#[test]
fn requests_of_no_client_are_answered_by_their_token() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    let Rig { frontend, volumes, .. } = &mut rig;
    frontend.submit(44, "vol1", azekura_base::Generation(7), Op::Trim { offset: 0, len: 4096 }, volumes);
    rig.answer_all();
    assert_eq!(rig.effects(), [Effect::Answered(44, Outcome::Done)]);
    assert_eq!(rig.heard(conn), "");
}

/// What may happen to a front end.
#[derive(Clone, Debug)]
enum Step {
    Connect(usize),
    Say(usize, usize),
    Gone(usize),
    Answer,
    Attach(bool),
    GiveBack,
    Stick(usize),
    Delete(usize),
    End,
    Known,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize).prop_map(Step::Connect),
        6 => (0..8usize, 0..4usize).prop_map(|(conn, line)| Step::Say(conn, line)),
        2 => (0..8usize).prop_map(Step::Gone),
        3 => Just(Step::Answer),
        4 => any::<bool>().prop_map(Step::Attach),
        2 => Just(Step::GiveBack),
        1 => (0..3usize).prop_map(Step::Stick),
        1 => (0..3usize).prop_map(Step::Delete),
        1 => Just(Step::End),
        2 => Just(Step::Known),
    ]
}

const NAMES: [&str; 3] = ["vol1", "vol2", "vol1@monday"];

/// The rest of a node, as the front end sees it: attachments are made and given back at some time.
struct Node {
    rig: Rig,
    open: Vec<u32>,
    attaching: Vec<String>,
    leaving: Vec<String>,
    held: Vec<(String, u64, u64)>,
    last: u64,
    looking: bool,
}

impl Node {
    fn effects(&mut self) {
        for effect in self.rig.effects() {
            match effect {
                Effect::Attach(VolumeUse { volume: name, .. }) => {
                    assert!(!self.attaching.contains(&name), "{name} is being attached already");
                    self.attaching.push(name);
                }
                Effect::GiveBack(VolumeUse { volume: name, .. }, attachment) => {
                    let at = self.held.iter().position(|(held, _, number)| *held == name && *number == attachment.0);
                    self.held.remove(at.expect("what is given back was held"));
                    self.leaving.push(name);
                }
                Effect::Ended(VolumeUse { volume: name, .. }, attachment) => {
                    self.held.retain(|(held, _, number)| *held != name || *number != attachment.0);
                }
                Effect::ReadConfiguration => self.looking = true,
                Effect::Close(conn, _) => {
                    self.open.retain(|open| *open != conn);
                    self.rig.gone(conn);
                }
                Effect::Nexus(..) | Effect::AttachToWrite(_) => panic!("no client has a name"),
                Effect::Answered(..) | Effect::Orphaned(_) | Effect::Warn(_) | Effect::Touched(_) => {}
                Effect::Reserves(..) | Effect::Heeds(..) => {}
            }
        }
    }

    fn attach(&mut self, well: bool) {
        let Some(name) = self.attaching.pop() else { return };
        self.last += 1;
        match self.rig.volumes.all.get(&name).map(|volume| volume.id.0).filter(|_| well) {
            Some(id) => {
                // A new attachment ends the one before.
                self.held.retain(|(held, ..)| *held != name);
                self.held.push((name.clone(), id, self.last));
                let attachment = self.last;
                self.rig.attached(&name, id, attachment);
            }
            None => {
                self.rig.front(|frontend, cx| frontend.volume_attached(&name.as_str().into(), Err("no".into()), cx));
            }
        }
    }

    fn say(&mut self, conn: usize, line: usize) {
        let Some(conn) = self.open.get(conn).copied() else { return };
        let lines = ["read 0 4096", "write 4096 hello", "flush", "read 0 100000"];
        if self.rig.frontend.opened().contains_key(&conn) {
            self.rig.say(conn, lines[line]);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Connect(name) => {
                let conn = self.rig.connect();
                self.open.push(conn);
                self.rig.say(conn, &format!("open {}", NAMES[name]));
            }
            Step::Say(conn, line) => self.say(conn, line),
            Step::Gone(conn) if conn < self.open.len() => {
                let conn = self.open.remove(conn);
                self.rig.gone(conn);
            }
            Step::Gone(_) => {}
            Step::Answer => self.rig.answer_all(),
            Step::Attach(well) => self.attach(well),
            Step::GiveBack => {
                if let Some(name) = self.leaving.pop() {
                    self.rig.frontend.volume_given_back(&name.as_str().into());
                }
            }
            Step::Stick(name) => {
                let stuck = &mut self.rig.volumes.stuck;
                if !stuck.remove(NAMES[name]) {
                    stuck.insert(NAMES[name].to_owned());
                }
            }
            Step::Delete(name) => {
                self.last += 1;
                self.rig.volumes.all.remove(NAMES[name]);
                if self.last.is_multiple_of(2) {
                    self.rig.volumes.add(NAMES[name], 1000 + self.last);
                }
                self.rig.front(azekura_frontend::Frontend::volumes_changed);
            }
            Step::End => {
                if let Some((_, id, attachment)) = self.held.pop() {
                    let ended = (azekura_base::VolumeId(id), azekura_base::Generation(attachment));
                    self.rig.volumes.ended.insert(ended);
                    self.rig.frontend.attachments_ended();
                }
            }
            Step::Known => {
                if std::mem::take(&mut self.looking) {
                    let revision = self.rig.volumes.revision;
                    self.rig.front(|frontend, cx| frontend.configuration_read(Some(revision), cx));
                }
            }
        }
        self.rig.turn();
        self.effects();
    }
}

proptest! {
    /// Whatever happens in whatever order: when all clients have gone and all is answered, nothing is held.
    #[test]
    fn nothing_is_left_behind(steps in prop::collection::vec(step(), 1..120)) {
        let rig = Rig::new(&NAMES);
        let mut node = Node {
            rig, open: Vec::new(), attaching: Vec::new(), leaving: Vec::new(), held: Vec::new(), last: 0, looking: false,
        };
        steps.into_iter().for_each(|step| node.step(step));
        node.rig.volumes.stuck.clear();
        for _ in 0..200 {
            for step in [Step::Gone(0), Step::Answer, Step::Attach(true), Step::GiveBack, Step::Known] {
                node.step(step);
            }
        }
        prop_assert!(node.rig.volumes.asked.is_empty());
        // What was deleted while it was held is nobody's to give back.
        let known = |(name, id, _): &&(String, u64, u64)| node.rig.volumes.all.get(name).is_some_and(|v| v.id.0 == *id);
        prop_assert_eq!(node.held.iter().filter(known).count(), 0, "{:?} is still held", node.held);
        prop_assert!(node.attaching.is_empty() && node.leaving.is_empty());
        prop_assert_eq!(node.rig.frontend.connections(), 0);
    }
}
