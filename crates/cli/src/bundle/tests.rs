use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::json;

use super::archive::{BUNDLE_BYTES_MAX, PART_BYTES_MAX};
use super::*;

/// The files of a packed bundle.
fn unpacked(bundle: &Bundle) -> BTreeMap<String, String> {
    let packed = bundle.pack().unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(packed.as_slice()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path.strip_prefix("azekura-support-20261127T190411Z/").unwrap().to_owned(), text);
    }
    files
}

const AT: u64 = 1_795_806_251;

#[test]
fn a_bundle_says_what_is_in_it_and_what_is_not() {
    let mut bundle = Bundle::new(AT, Net::default());
    bundle.answer("volumes", "cluster/volumes.json", "The volumes", &json!([{ "name": "db", "secret": "x" }]));
    bundle.lacks("nodes/n3.metrics.txt", "n3 is away,\nas with token=hunter2");
    let files = unpacked(&bundle);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["README.txt", "cluster/volumes.json", "manifest.json"]);
    let list: serde_json::Value = serde_json::from_str(&files["manifest.json"]).unwrap();
    assert_eq!(list["files"][0]["file"], "cluster/volumes.json");
    assert_eq!(list["missing"][0]["why"], "n3 is away,; as with token=[withheld]");
    for told in ["azekura 0.", "2026-11-27T19:04:11Z", "cluster/volumes.json (", "n3 is away"] {
        assert!(files["README.txt"].contains(told), "{told}\n{}", files["README.txt"]);
    }
}

#[test]
fn parts_and_the_bundle_are_bounded() {
    let mut bundle = Bundle::new(AT, Net::default());
    let many: Vec<_> =
        (0..200_000).map(|number| json!({ "name": format!("volume-{number}"), "in_use": true })).collect();
    bundle.answer("volumes", "v.json", "Volumes", &many);
    bundle.answer("stats", "s.json", "Too large", &json!({ "nodes": vec![json!({ "name": "n" }); 1_000_000] }));
    let line = format!("a line of a log{}\n", " ".repeat(1000));
    let log = line.repeat(PART_BYTES_MAX / line.len() + 1000) + "the last line\n";
    for number in 0..8 {
        bundle.text(&format!("{number}.log"), "A log", &log, Keep::End);
    }
    let files = unpacked(&bundle);
    assert!(files.values().map(String::len).sum::<usize>() <= BUNDLE_BYTES_MAX);
    assert!(files.values().all(|text| text.len() <= PART_BYTES_MAX));
    let volumes: Vec<serde_json::Value> = serde_json::from_str(&files["v.json"]).unwrap();
    assert_eq!(volumes[0]["name"], "volume-0");
    assert!(files["README.txt"].contains(&format!("Only the first {} of 200000.", volumes.len())));
    assert!(files["0.log"].starts_with("a line") && files["0.log"].ends_with("the last line\n"));
    let missing: Vec<_> = bundle.missing().iter().map(|missing| missing.file.as_str()).collect();
    assert_eq!(missing, ["s.json", "7.log"]);
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.tar.gz");
    check_place(&path).unwrap();
    write_new(&path, b"one").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    for refused in [check_place(&path), write_new(&path, b"two")] {
        assert!(refused.is_err());
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"one");
    let error = check_place(&folder.path().join("no/b")).unwrap_err();
    assert!(error.message().contains("can't use the folder") && error.message().contains("No such file"));
    assert!(check_place(&path.join("b")).unwrap_err().message().contains("is no folder"));
    check_place(Path::new("no-folder-is-named")).unwrap();
    // Nothing can be written to it, and it stays.
    let full = Path::new("/dev/full");
    assert!(check_place(full).unwrap_err().message().contains("is there already"));
}

/// A secret of each kind, drawn anew.
fn secrets() -> impl Strategy<Value = Vec<String>> {
    let token = "azka_[0-9A-Za-z]{60}";
    let join = "azkj_[0-9A-Za-z]{103}";
    let nvme = "DHHC-1:01:[0-9A-Za-z+/]{48}:";
    let kek = "[0-9a-f]{64}";
    let password = "[A-Z][a-z]{6}[0-9]{4}[a-z]{4}";
    let lines = "[0-9A-Za-z+/]{64}\n[0-9A-Za-z+/]{30}==";
    [token, join, nvme, kek, password, password, password, lines].map(Strategy::boxed).to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn planted_secrets_are_nowhere_in_the_archive(secrets in secrets(), json_log in any::<bool>()) {
        let [token, join, nvme, kek, etcd, chap, unknown, pem] = &secrets[..] else { unreachable!() };
        let key = format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n");
        let mut net = Net::default();
        let config = format!(
            "[node]\nname = \"n1\"\nconfig = \"https://root:{etcd}@10.0.0.1:2379\"\nnew-secret = \"{unknown}\"\n\
             key-file = \"/etc/azekura/kek\"\n# {token}\n"
        );
        let options = options::read(&config, &mut net).unwrap();
        net.know_file(&format!("1 {kek}\n"));
        let mut bundle = Bundle::new(AT, net);
        bundle.text(OPTIONS, "Options", &options.text, Keep::Beginning);
        let said = format!(
            "node has {token}, host CHAP secret '{chap}', --token {join} {nvme} at http://root:{etcd}@e:1 {kek} \
             new {unknown} password={chap}\n{key}"
        );
        let log = if json_log { format!("{}\n", json!({ "level": "INFO", "message": said })) } else { said.clone() };
        bundle.text("machine/journal.log", "A log", &log, Keep::End);
        let grant = json!([{ "name": "ann", "token": token, "host": { "name": "esx", "secret": chap }, "by": said }]);
        bundle.answer("grants", "cluster/grants.json", "Grants", &grant);
        let status = json!({ "healthy": false, "problems": [said], "wrapped": kek, "new": { "key": key } });
        bundle.answer("status", "cluster/status.json", "Status", &status);
        bundle.lacks("nodes/n2.metrics.txt", &said);
        for (file, text) in unpacked(&bundle) {
            for secret in secrets.iter().flat_map(|secret| secret.lines()) {
                prop_assert!(!text.contains(secret), "{file} has {secret}:\n{text}");
            }
        }
    }
}
