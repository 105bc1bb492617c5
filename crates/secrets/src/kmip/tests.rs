use super::*;
use crate::hex;
use azekura_base::KeyId;
use message::{No, length};
use proptest::prelude::*;
use std::path::Path;
use ttlv::{Item, Tag, write};

/// What PyKMIP 0.11's server answers, with a key of the bytes 1 to 32 that it calls "2".
const ANSWER: &str = "42007b0100000110\
    42007a0100000048420069010000002042006a0200000004000000010000000042006b02000000040000000200000000\
    4200920900000008000000006b0a472542000d02000000040000000100000000\
    42000f01000000b842005c05000000040000000a0000000042007f05000000040000000000000000\
    42007c010000009042005705000000040000000200000000420094070000000132000000000000004\
    2008f01000000684200400100000060420042050000000400000001000000004200450100000028\
    42004308000000200102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20\
    4200280500000004000000030000000042002a02000000040000010000000000";

/// What it answers where there is no such key.
const MISSING: &str = "42007b01000000b0\
    42007a0100000048420069010000002042006a0200000004000000010000000042006b02000000040000000200000000\
    4200920900000008000000006b0a472542000d02000000040000000100000000\
    42000f010000005842005c05000000040000000a0000000042007f05000000040000000100000000\
    42007e0500000004000000010000000042007d070000001b\
    436f756c64206e6f74206c6f63617465206f626a6563743a2039390000000000";

fn bytes(text: &str) -> Vec<u8> {
    hex::read(text).unwrap().to_vec()
}

fn answer() -> Vec<u8> {
    bytes(ANSWER)
}

#[test]
fn a_request_is_as_the_specification_has_it() {
    let wanted = "4200780100000090\
        4200770100000048420069010000002042006a0200000004000000010000000042006b02000000040000000200000000\
        42005002000000040001000000000000\
        42000d02000000040000000100000000\
        42000f010000003842005c05000000040000000a000000004200790100000020\
        4200940700000001310000000000000042004205000000040000000100000000";
    assert_eq!(hex::write(&get("1")), wanted);
}

#[test]
fn a_key_is_found_in_an_answer() {
    let answer = answer();
    assert_eq!(length(&answer[..8]), Ok(answer.len() as u32 - 8));
    let key = key_in(&answer[8..], "2").unwrap();
    assert_eq!(*key, (1..=32).collect::<Vec<u8>>());
    assert_eq!(key_in(&answer[8..], "1"), Err(No::Foreign("it is about another key")));
}

/// The answer with one 4-byte value changed, which is behind this tag.
fn with(tag: &str, number: u32) -> Vec<u8> {
    let (mut bytes, tag) = (answer(), hex::read(tag).unwrap());
    let at = bytes.windows(3).rposition(|window| *window == **tag).unwrap();
    bytes[at + 8..at + 12].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[test]
fn other_keys_are_none() {
    let no = |tag, number| key_in(&with(tag, number)[8..], "2").unwrap_err();
    assert_eq!(no("420057", 3), No::Kind("is no symmetric key"));
    assert_eq!(no("420042", 2), No::Kind("is not given as it is"));
    assert_eq!(no("420028", 2), No::Kind("is not for AES"));
    let mut short = answer();
    let at = short.windows(3).position(|window| window == [0x42, 0, 0x43]).unwrap();
    short[at + 7] = 24;
    assert!(key_in(&short[8..], "2").is_err());
}

#[test]
fn who_says_no_is_told() {
    let no = key_in(&bytes(MISSING)[8..], "99").unwrap_err();
    let told = "Could not locate object: 99 (there is no such key, or this client may not know of it)";
    assert_eq!(no, No::Refused(told.to_owned()));
}

#[test]
fn what_is_no_answer_is_told() {
    assert!(length(b"HTTP/1.1").is_err() && length(b"").is_err() && length(&[0x42, 0, 0x78, 1, 0, 0, 0, 0]).is_err());
    assert_eq!(key_in(&[], "1"), Err(No::Foreign("something is missing in it")));
}

fn provider(server: &str, folder: &Path) -> KmipProvider {
    let file = |name| folder.join(name);
    let (authorities, certificate, private_key, keys) = (file("ca"), file("cert"), file("key"), file("keys"));
    KmipProvider::new(KmipOptions { server: server.into(), authorities, certificate, private_key, keys }).unwrap()
}

#[test]
fn a_file_names_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (path, provider) = (folder.path().join("keys"), provider("kmip:5696", folder.path()));
    std::fs::write(&path, "# ours\n2 7f-a b\n1 12\n").unwrap();
    assert_eq!(provider.names().unwrap(), Names::from([(1, "12".into()), (2, "7f-a b".into())]));
    let long = format!("1 {}", "x".repeat(300));
    for (text, told) in [
        ("", "names no key"),
        ("1", "line 1: there is no space"),
        ("1 12\n1 13", "line 2: the version was there"),
        ("0 12", "no number from 1 on"),
        (long.as_str(), "the identifier is none"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = provider.names().unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
    // What needs no server is answered without one.
    std::fs::write(&path, "1 12\n").unwrap();
    let place = KeyPlace { cluster: 7, key: KeyId(5) };
    let opened = provider.unwrap(&[(place, "2:00"), (place, "?")]).unwrap();
    assert!(matches!(opened[0], Err(SecretsError::NoVersion { version: 2, .. })), "{opened:?}");
    assert!(matches!(opened[1], Err(SecretsError::Damaged { .. })));
}

#[test]
fn a_server_has_a_name_and_a_port() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(provider("[::1]:5696", folder.path()).host, "::1");
    for server in ["", "kmip", "kmip:x", ":5696", "a b:5696", "kmip:70000"] {
        let mut options = provider("kmip:1", folder.path()).options;
        options.server = server.into();
        assert!(KmipProvider::new(options).is_err(), "{server}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = (length(&bytes), key_in(&bytes, "1"));
    }

    #[test]
    fn what_is_damaged_is_a_key_or_an_error(at in 8usize..280, to in any::<u8>(), cut in 8usize..280) {
        let mut bytes = answer();
        bytes[at] = to;
        let _ = key_in(&bytes[8..], "2");
        let _ = key_in(&bytes[8..cut], "2");
    }

    #[test]
    fn what_was_written_is_read(parts in proptest::collection::vec((0u32..0xff_ffff, any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..9)) {
        let mut written = Vec::new();
        parts.iter().for_each(|(tag, kind, bytes)| write(&mut written, Tag(*tag), *kind, bytes));
        prop_assert_eq!(written.len() % 8, 0);
        let mut rest = &written[..];
        for (tag, kind, bytes) in &parts {
            let (item, behind) = Item::read(rest).unwrap();
            prop_assert_eq!(item, Item { tag: Tag(*tag), kind: *kind, bytes });
            rest = behind;
        }
        prop_assert!(rest.is_empty());
    }
}
