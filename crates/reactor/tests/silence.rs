//! A peer whose machine is gone without a word. It lives in a network namespace of its own, which is cut off.

#![allow(clippy::unwrap_used)]

use crate::support::{Echo, accept, during, until};
use azekura_reactor::{CloseReason, Event, KeepAlive, Options, Reactor};
use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A namespace with one link to this one.
struct Far {
    name: String,
    port: String,
    process: Option<Child>,
}

fn ip(words: &[&str]) -> bool {
    let command = Command::new("ip").args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    command.is_ok_and(|status| status.success())
}

impl Far {
    /// `None` where this process may not make one.
    fn new(near: &str, far: &str) -> Option<Far> {
        let number = std::process::id() % 100_000;
        let made = Far { name: format!("azk{number}"), port: format!("azk{number}"), process: None };
        let (name, port) = (&*made.name, &*made.port);
        let made_so = ip(&["netns", "add", name])
            && ip(&["link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name])
            && ip(&["addr", "add", near, "dev", port])
            && ip(&["link", "set", port, "up"])
            && ip(&["-n", name, "addr", "add", far, "dev", "eth0"])
            && ip(&["-n", name, "link", "set", "eth0", "up"]);
        made_so.then_some(made)
    }

    /// Connects, sends a byte, and is silent from then on.
    fn connect(&mut self, to: SocketAddr) {
        let script = format!("exec 3<>/dev/tcp/{}/{}; printf x >&3; exec sleep 300", to.ip(), to.port());
        let command = Command::new("ip").args(["netns", "exec", &self.name, "bash", "-c", &script]).spawn();
        self.process = Some(command.unwrap());
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        ip(&["netns", "del", &self.name]);
        ip(&["link", "del", &self.port]);
    }
}

#[test]
fn a_silent_peer_whose_machine_is_gone_is_noticed_and_one_that_is_there_stays() {
    let Some(mut far) = Far::new("198.18.77.1/30", "198.18.77.2/30") else {
        eprintln!("skipped: it takes root and the command ip to make network namespaces");
        return;
    };
    let second = Duration::from_secs(1);
    let keep_alive = KeepAlive { idle: second, interval: second, silence_max: 3 * second };
    let mut reactor = Reactor::<Echo>::new(Options { keep_alive, ..Options::default() }).unwrap();
    let listener = reactor.listen_tcp(([198, 18, 77, 1], 0).into()).unwrap();
    far.connect(reactor.local_address(listener).unwrap());
    let conn = accept(&mut reactor, listener);
    until(&mut reactor, |event| matches!(event, Event::Received { .. }).then_some(()));
    reactor.kick(conn);
    let events = during(&mut reactor, 6 * second);
    assert!(events.is_empty(), "its machine answers for it: {events:?}");
    assert!(ip(&["-n", &far.name, "link", "set", "eth0", "down"]));
    let reason = until(&mut reactor, |event| match event {
        Event::Closed { reason: CloseReason::Error(error), .. } => Some(error.kind()),
        _ => None,
    });
    assert!(matches!(reason, std::io::ErrorKind::TimedOut | std::io::ErrorKind::HostUnreachable), "{reason:?}");
}
