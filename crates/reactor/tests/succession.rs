//! A process that takes over the ports and devices of one that was just killed. Alone in its file, for it runs itself
//! a second time as the process to be killed.

#![allow(clippy::unwrap_used)]

use crate::support::{Echo, reactor};
use azekura_base::PageBuf;
use azekura_reactor::{DeviceOptions, Reactor};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

const FOLDER: &str = "AZEKURA_TEST_FOLDER";

/// Takes everything; the address is that of the TCP listener.
fn take(reactor: &mut Reactor<Echo>, folder: &Path, address: SocketAddr) -> SocketAddr {
    let options = DeviceOptions { create: true, size: Some(32 << 20) };
    let device = reactor.open_device(&folder.join("device"), options).unwrap();
    for n in 0..64u64 {
        reactor.write(device, n << 18, vec![PageBuf::zeroed(256 << 10).freeze()], true, n);
    }
    reactor.listen_unix(&folder.join("socket")).unwrap();
    let listener = reactor.listen_tcp(address).unwrap();
    reactor.local_address(listener).unwrap()
}

#[test]
fn a_successor_of_a_killed_process_gets_everything() {
    let mut reactor = reactor();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    if let Some(folder) = std::env::var_os(FOLDER) {
        println!("\naddress {}", take(&mut reactor, Path::new(&folder), any));
        loop {
            reactor.wait(None, &mut Vec::new()).unwrap();
        }
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut former = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "succession::a_successor_of_a_killed_process_gets_everything", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let address = BufReader::new(former.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("address ").map(|address| address.parse().unwrap()))
        .unwrap();
    former.kill().unwrap();
    former.wait().unwrap();
    assert_eq!(take(&mut reactor, folder.path(), address), address);
}
