//! Meets clients that we did not write, over real sockets: libnbd's tools, QEMU's, and fio.
#![allow(clippy::unwrap_used)]

use crate::support::server::Server;
use azekura_base::VolumeId;
use azekura_frontend::{Export, Verbs};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("azekura-nbd-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a client to its end: whether it succeeded, and all it printed.
fn try_run(package: &str, folder: &Path, program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("can't run {program} ({e}): install the Debian package {package}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn run(package: &str, folder: &Folder, program: &str, arguments: &[&str]) -> String {
    let (succeeded, text) = try_run(package, &folder.0, program, arguments);
    assert!(succeeded, "{program} {arguments:?} failed: {text}");
    text
}

fn libnbd(folder: &Folder, program: &str, arguments: &[&str]) -> String {
    run("libnbd-bin", folder, program, arguments)
}

fn qemu(folder: &Folder, program: &str, arguments: &[&str]) -> String {
    run("qemu-utils", folder, program, arguments)
}

/// Bytes that look like nothing in particular, the same ones for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A disk image of `length` bytes in which data and holes take turns.
fn image(length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    let mut at = 0;
    for turn in 1.. {
        let size = (turn as usize * 37 * 4096) % (700 << 10) + 4096;
        if at + size > bytes.len() {
            return bytes;
        }
        if turn % 3 != 0 {
            bytes[at..at + size].copy_from_slice(&noise(turn, size));
        }
        at += size;
    }
    bytes
}

#[test]
fn nbdinfo_describes_an_export() {
    let folder = Folder::new("info");
    let export = Export { description: "a volume".into(), ..Export::new("vol1", VolumeId(1), 64 * MIB) };
    let server = Server::start(&folder.0, vec![export]);
    for uri in [server.uri("vol1"), server.tcp_uri("vol1"), server.uri("")] {
        let json = libnbd(&folder, "nbdinfo", &["--json", &uri]);
        for expected in [
            "\"protocol\": \"newstyle-fixed\"",
            "\"structured\": true",
            "\"export-name\": \"vol1\"",
            "\"description\": \"a volume\"",
            "\"export-size\": 67108864",
            "\"is_read_only\": false",
            "\"can_cache\": true",
            "\"can_df\": true",
            "\"can_fast_zero\": true",
            "\"can_flush\": true",
            "\"can_fua\": true",
            "\"can_multi_conn\": true",
            "\"can_trim\": true",
            "\"can_zero\": true",
            "\"block_size_minimum\": 1",
            "\"block_size_preferred\": 4096",
            "\"block_size_maximum\": 33554432",
            "\"base:allocation\"",
        ] {
            assert!(json.contains(expected), "{uri}: no {expected} in {json}");
        }
    }
}

#[test]
fn nbdinfo_lists_exports_and_knows_read_only_ones() {
    let folder = Folder::new("list");
    let frozen = Export { verbs: Verbs::READ_ONLY, ..Export::new("snapshot", VolumeId(1), 8 * MIB) };
    let server = Server::start(&folder.0, vec![Export::new("vol1", VolumeId(1), MIB), frozen]);
    let list = libnbd(&folder, "nbdinfo", &["--list", &server.tcp_uri("")]);
    assert!(list.contains("export=\"vol1\"") && list.contains("export=\"snapshot\""), "{list}");
    libnbd(&folder, "nbdinfo", &["--is", "read-only", &server.uri("snapshot")]);
    assert_eq!(libnbd(&folder, "nbdinfo", &["--size", &server.uri("snapshot")]).trim(), "8388608");
    let (succeeded, _) = try_run("libnbd-bin", &folder.0, "nbdinfo", &["--can", "trim", &server.uri("snapshot")]);
    assert!(!succeeded, "a read-only export offered to trim");
    let (succeeded, text) = try_run("libnbd-bin", &folder.0, "nbdinfo", &[&server.uri("nothing")]);
    assert!(!succeeded && text.contains("No such file or directory"), "{text}");
    let (succeeded, text) = try_run("libnbd-bin", &folder.0, "nbdinfo", &[&server.uri("")]);
    assert!(!succeeded, "there is no default among two exports: {text}");
}

#[test]
fn nbdinfo_maps_holes() {
    let folder = Folder::new("map");
    let server = Server::start(&folder.0, vec![Export::new("vol1", VolumeId(1), 4 * MIB)]);
    server.volume("vol1").memory().write(MIB, &[1; 8192]);
    let map = libnbd(&folder, "nbdinfo", &["--map", &server.uri("vol1")]);
    let lines: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        ["0", "1048576", "3", "hole,zero"],
        ["1048576", "8192", "0", "data"],
        ["1056768", "3137536", "3", "hole,zero"],
    ];
    assert_eq!(lines, expected);
}

#[test]
fn nbdcopy_brings_an_image_in_and_out() {
    let folder = Folder::new("copy");
    let server = Server::start(&folder.0, vec![Export::new("vol1", VolumeId(1), 48 * MIB)]);
    let bytes = image(48 * MIB);
    std::fs::write(folder.file("in.img"), &bytes).unwrap();
    libnbd(&folder, "nbdcopy", &["--flush", "in.img", &server.uri("vol1")]);
    assert!(server.volume("vol1").memory().bytes == bytes, "what arrived is not what was sent");
    assert!(server.volume("vol1").memory().allocated.contains(&false), "holes arrived as data");
    libnbd(&folder, "nbdcopy", &[&server.tcp_uri("vol1"), "out.img"]);
    assert!(std::fs::read(folder.file("out.img")).unwrap() == bytes, "what came back is not what was sent");
    // The largest requests that are offered, and several connections at once.
    libnbd(
        &folder,
        "nbdcopy",
        &["--request-size=33554432", "--connections=4", "--no-extents", &server.uri("vol1"), "big.img"],
    );
    assert!(std::fs::read(folder.file("big.img")).unwrap() == bytes);
}

#[test]
fn qemu_io_reads_back_its_patterns() {
    let folder = Folder::new("qemu-io");
    let server = Server::start(&folder.0, vec![Export::new("vol1", VolumeId(1), 16 * MIB)]);
    let script = [
        "write -P 0x11 0 1M",
        "write -P 0x22 -f 1000 3001",
        "write -P 0x33 4097 1",
        "aio_write -P 0x44 2M 2M",
        "aio_flush",
        "write -z 64k 64k",
        "write -z -u 512k 256k",
        "discard 3M 512k",
        "flush",
        "read -P 0x11 0 1000",
        "read -P 0x22 1000 3001",
        "read -P 0x11 4001 96",
        "read -P 0x33 4097 1",
        "read -P 0x11 4098 61438",
        "read -P 0 64k 64k",
        "read -P 0x11 128k 384k",
        "read -P 0 512k 256k",
        "read -P 0x44 2M 1M",
        "read -P 0 3M 512k",
        "read -P 0x44 3584k 512k",
        "read -P 0 8M 8M",
    ];
    let uri = server.uri("vol1");
    let mut arguments = vec!["-f", "raw"];
    script.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    let text = qemu(&folder, "qemu-io", &arguments);
    assert!(!text.contains("failed") && !text.contains("error"), "{text}");
    let (_, text) = try_run("qemu-utils", &folder.0, "qemu-io", &["-f", "raw", "-c", "read -P 0x55 0 4k", &uri]);
    assert!(text.contains("verification failed"), "a wrong pattern must be noticed: {text}");
}

#[test]
fn qemu_img_converts_and_compares() {
    let folder = Folder::new("qemu-img");
    let server = Server::start(&folder.0, vec![Export::new("vol1", VolumeId(1), 32 * MIB)]);
    let bytes = image(32 * MIB);
    std::fs::write(folder.file("in.img"), &bytes).unwrap();
    qemu(&folder, "qemu-img", &["convert", "-f", "raw", "-O", "qcow2", "in.img", "in.qcow2"]);
    let (uri, tcp) = (server.uri("vol1"), server.tcp_uri("vol1"));
    qemu(&folder, "qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", "in.qcow2", &uri]);
    assert!(server.volume("vol1").memory().bytes == bytes);
    let text = qemu(&folder, "qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &tcp, "in.qcow2"]);
    assert!(text.contains("Images are identical"), "{text}");
    qemu(&folder, "qemu-img", &["convert", "-f", "raw", "-O", "raw", &tcp, "out.img"]);
    assert!(std::fs::read(folder.file("out.img")).unwrap() == bytes);
    let map = qemu(&folder, "qemu-img", &["map", "-f", "raw", "--output=json", &uri]);
    assert!(map.contains("\"data\": false"), "{map}");
    server.volume("vol1").memory().write(12345, b"changed");
    let (same, _) =
        try_run("qemu-utils", &folder.0, "qemu-img", &["compare", "-f", "raw", "-F", "raw", &uri, "in.img"]);
    assert!(!same, "a changed image must not compare equal");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let folder = Folder::new("fio");
    let server = Server::start(&folder.0, vec![Export::new("vol1", VolumeId(1), 32 * MIB)]);
    let uri = format!("--uri={}", server.uri("vol1"));
    let job = |name: &str, more: &[&str]| {
        let name = format!("--name={name}");
        let mut arguments = vec![name.as_str(), "--ioengine=nbd", uri.as_str(), "--size=32m", "--randseed=1"];
        arguments.extend(more);
        run("fio", &folder, "fio", &arguments)
    };
    job("random", &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--fsync=64"]);
    let mixed = "--bssplit=512/20:4k/40:60k/20:1m/20";
    job("mixed", &["--rw=randwrite", mixed, "--iodepth=16", "--verify=crc32c", "--verify_fatal=1"]);
    job("trim", &["--rw=randtrimwrite", "--bs=16k", "--iodepth=8"]);
}
