//! What clients may of whom a key is asked, and what becomes of them when they may no more.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::{Bounds, Generation, GrantId, HostName, PeerKey, Role};
use azekura_frontend::{Admission, Close, Effect, HostProof, HostRight, Right};
use std::sync::Arc;

/// Who has these keys, with these roles, and these volumes or all.
fn admission(rights: &[(u8, Role, &[&str])]) -> Arc<Admission> {
    let right = |(key, role, names): &(u8, Role, &[&str])| {
        let volumes = names.iter().map(|name| (*name).to_owned()).collect();
        let volumes = Some(volumes).filter(|_| !names.is_empty());
        (PeerKey([*key; 32]), Right { name: format!("owner of {key}"), role: *role, bounds: Bounds::All, volumes })
    };
    let rights = rights.iter().map(right).collect();
    Arc::new(Admission { is_known: true, rights, ..Admission::default() })
}

fn rig(rights: &[(u8, Role, &[&str])]) -> Rig {
    let mut rig = Rig::new(&["v", "w", "v@monday", "w@monday"]);
    let admission = admission(rights);
    rig.front(|frontend, cx| frontend.admit_by(admission, cx));
    rig
}

#[test]
fn each_sees_what_is_for_him() {
    let mut rig = rig(&[(1, Role::User, &[]), (2, Role::User, &["w"]), (3, Role::Operator, &[])]);
    let plain = rig.connect();
    let [one, two, three] = [1, 2, 3].map(|key| rig.connect_with(Some(key)));
    // Twice, for listings are kept.
    for _ in 0..2 {
        for (conn, seen) in [(two, "w\n"), (plain, "v w\n"), (one, "v w\n"), (three, "v w\n")] {
            rig.say(conn, "list");
            assert_eq!(rig.heard(conn), seen);
        }
    }
    rig.say(three, "open v");
    assert!(rig.heard(three).contains("sees volumes and opens none"));
    rig.say(two, "open v");
    assert_eq!(rig.heard(two), "there is no such export\n", "the configuration is not asked for it either");
    rig.say(two, "open v@monday");
    assert_eq!(rig.heard(two), "there is no such export\n");
    rig.say(two, "open none");
    assert_eq!(rig.heard(two), "there is no such export\n");
    assert_eq!(rig.effects(), []);
    rig.say(two, "open w@monday");
    assert!(rig.heard(two).contains("opened w@monday"));
}

#[test]
fn a_stranger_hears_the_same_whatever_he_says() {
    let mut rig = rig(&[(1, Role::Metrics, &[])]);
    for key in [None, Some(1), Some(9)] {
        let conn = rig.connect_with(key);
        rig.say(conn, "list");
        let said = rig.heard(conn);
        assert!(said.contains("azekura key"), "{said}");
        for line in ["open v", "open none", "open v@monday", "take n v"] {
            rig.say(conn, line);
            assert_eq!(rig.heard(conn), said);
        }
    }
    let before = rig.connect();
    rig.say(before, "open none");
    assert_eq!(rig.effects(), [Effect::ReadConfiguration], "of others nothing is asked");
}

#[test]
fn who_may_no_more_is_cut_off_and_nobody_else() {
    let mut rig = rig(&[(1, Role::User, &["v"]), (2, Role::User, &["w"])]);
    let (one, two, plain) = (rig.connect_with(Some(1)), rig.connect_with(Some(2)), rig.connect());
    for (conn, name, id, generation) in [(one, "v", 1, 7), (two, "w", 2, 8)] {
        rig.say(conn, &format!("open {name}"));
        assert_eq!(rig.effects(), [Effect::Attach(name.into())]);
        rig.attached(name, id, generation);
    }
    rig.say(plain, "open v");
    rig.say(one, "write 0 hello");
    assert_eq!(rig.volumes.asked.len(), 1);

    let now = admission(&[(1, Role::User, &["w"]), (2, Role::User, &["w"])]);
    rig.front(|frontend, cx| frontend.admit_by(now, cx));
    let effects = rig.effects();
    assert!(effects.contains(&Effect::Close(one, Close::AtOnce)), "{effects:?}");
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Close(..))).count(), 1);
    rig.say(one, "write 0 more");
    assert_eq!(rig.volumes.asked.len(), 1, "nothing more of it is let in");
    rig.answer_all();
    rig.gone(one);
    assert_eq!(rig.effects(), [], "another client has the volume open");
    rig.say(two, "write 0 x");
    rig.say(plain, "write 0 x");
    assert_eq!(rig.volumes.asked.len(), 2);
    rig.answer_all();
    rig.gone(plain);
    assert_eq!(rig.effects(), [Effect::GiveBack("v".into(), Generation(7))]);

    rig.front(|frontend, cx| frontend.admit_by(admission(&[]), cx));
    assert!(rig.effects().contains(&Effect::Close(two, Close::AtOnce)));
}

/// Hosts by name, the number of their grants, and their volumes or all.
fn of_hosts(open: bool, hosts: &[(&str, u64, &[&str])]) -> Arc<Admission> {
    let right = |(name, grant, names): &(&str, u64, &[&str])| {
        let volumes = Some(names.iter().map(|name| (*name).to_owned()).collect()).filter(|_| !names.is_empty());
        let right = Right { name: (*name).to_owned(), role: Role::User, bounds: Bounds::All, volumes };
        (HostName::of_initiator(name).unwrap(), HostRight { grant: GrantId(*grant), proof: HostProof::Name, right })
    };
    Arc::new(Admission { is_known: true, open, hosts: hosts.iter().map(right).collect(), ..Admission::default() })
}

#[test]
fn a_host_is_let_in_by_its_name_and_sees_what_is_for_it() {
    let mut rig = Rig::new(&["v", "w", "w@monday"]);
    let conn = rig.connect_host();
    rig.say(conn, "call iqn.a");
    assert_eq!(rig.heard(conn), "come again\n", "nothing is known yet");
    rig.front(|frontend, cx| frontend.admit_by(of_hosts(false, &[("iqn.a", 1, &["w"])]), cx));
    for stranger in ["iqn.b", "nqn.a", "a"] {
        rig.say(conn, &format!("call {stranger}"));
        assert_eq!(rig.heard(conn), "not you\n", "{stranger}");
    }
    rig.say(conn, "open w");
    assert!(rig.heard(conn).contains("azekura host add"), "before it has said who it is there is nothing");
    rig.say(conn, "call IQN.A");
    rig.say(conn, "list");
    assert_eq!(rig.heard(conn), "w\n");
    rig.say(conn, "open v");
    assert_eq!(rig.heard(conn), "there is no such export\n");
    rig.say(conn, "open w@monday");
    assert!(rig.heard(conn).contains("opened w@monday"));
}

#[test]
fn an_open_cluster_lets_hosts_in_that_it_does_not_know_and_limits_those_that_it_does() {
    let mut rig = Rig::new(&["v", "w"]);
    rig.front(|frontend, cx| frontend.admit_by(of_hosts(true, &[("iqn.a", 1, &["w"])]), cx));
    for (name, seen) in [("iqn.a", "w\n"), ("iqn.b", "v w\n"), ("whatever", "v w\n")] {
        let conn = rig.connect_host();
        rig.say(conn, &format!("call {name}"));
        rig.say(conn, "list");
        assert_eq!(rig.heard(conn), seen, "{name}");
    }
}

#[test]
fn a_host_is_cut_off_when_another_grant_has_taken_the_place_of_its_own() {
    let mut rig = Rig::new(&["v", "v@monday"]);
    let closed = |rig: &mut Rig, conn| rig.effects().contains(&Effect::Close(conn, Close::AtOnce));
    rig.front(|frontend, cx| frontend.admit_by(of_hosts(true, &[("iqn.a", 1, &["v"])]), cx));
    let [user, asker, anybody] = [("iqn.a"), ("iqn.a"), ("iqn.b")].map(|name| {
        let conn = rig.connect_host();
        rig.say(conn, &format!("call {name}"));
        conn
    });
    rig.say(user, "open v@monday");
    rig.say(anybody, "open v@monday");
    assert!(rig.heard(user).contains("opened") && rig.heard(anybody).contains("opened"));
    // The same name and volumes: who has the grant now is to prove himself anew. And a grant for who had none.
    let now = of_hosts(true, &[("iqn.a", 2, &["v"]), ("iqn.b", 3, &[])]);
    rig.front(|frontend, cx| frontend.admit_by(now, cx));
    let effects = rig.effects();
    for conn in [user, asker, anybody] {
        assert!(effects.contains(&Effect::Close(conn, Close::AtOnce)), "{conn}: {effects:?}");
    }
    rig.say(asker, "open v@monday");
    assert_eq!(rig.heard(asker), "", "nothing more of it is looked at");

    let later = rig.connect_host();
    rig.say(later, "call iqn.c");
    rig.front(|frontend, cx| frontend.admit_by(of_hosts(false, &[]), cx));
    assert!(closed(&mut rig, later), "the cluster is not open any more");
}

#[test]
fn who_is_mistaken_again_and_again_waits_and_nobody_else() {
    let mut rig = Rig::new(&["v"]);
    let (liar, other) = (rig.connect(), rig.connect());
    for _ in 0..10 {
        rig.say(liar, "lie");
    }
    rig.say(liar, "list");
    assert_eq!(rig.heard(liar), "v\n", "ten are answered at once");
    let warnings = rig.effects().into_iter().filter(|effect| matches!(effect, Effect::Warn(_))).count();
    assert_eq!(warnings, 1, "and told of once");
    rig.say(liar, "lie");
    rig.say(liar, "list");
    rig.say(other, "list");
    assert_eq!((rig.heard(liar).as_str(), rig.heard(other).as_str()), ("", "v\n"));
    let at = rig.frontend.next_look().unwrap();
    assert!(at > rig.now && at <= rig.now + std::time::Duration::from_secs(1));
    rig.now = at;
    rig.turn();
    assert_eq!(rig.heard(liar), "v\n");
    rig.say(liar, "lie");
    rig.gone(liar);
    rig.turn();
    assert!(rig.effects().iter().all(|effect| !matches!(effect, Effect::Close(..))));
}
