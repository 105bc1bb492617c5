use super::*;
use azekura_base::KeyId;
use proptest::prelude::*;

const PLACE: KeyPlace = KeyPlace { cluster: 7, key: KeyId(5) };
const PASSPHRASE: &str = "correct horse battery";
/// Cheap enough to be tried a hundred times.
const CHEAP: Derivation = Derivation::Argon2id { memory_kib: 256, passes: 2, lanes: 2 };

fn secret(text: &str) -> VolumeSecret {
    VolumeSecret::read(text).unwrap()
}

fn key_text(digits: &str) -> String {
    format!("{KEY_PREFIX}{}", digits.repeat(32))
}

fn draw() -> DataKey {
    DataKey::draw().unwrap()
}

fn is_wrong(outcome: &Result<DataKey, SecretsError>) -> bool {
    matches!(outcome, Err(SecretsError::WrongSecret { .. }))
}

#[test]
fn a_key_comes_back_by_its_secret_in_its_place_only() {
    for (own, other) in [(PASSPHRASE.to_owned(), "correct horse batterY".to_owned()), (key_text("09"), key_text("0a"))]
    {
        let own = secret(&own);
        let derivation = if matches!(own.0, Form::Passphrase(_)) { CHEAP } else { Derivation::Hkdf };
        let key = draw();
        let wrapped = own.wrap_at(derivation, PLACE, &key).unwrap();
        assert_ne!(own.wrap_at(derivation, PLACE, &key).unwrap(), wrapped, "each has a salt and a nonce of its own");
        assert_eq!(own.unwrap(PLACE, &wrapped).unwrap().bytes(), key.bytes());
        assert!(is_wrong(&secret(&other).unwrap(PLACE, &wrapped)));
        for elsewhere in [KeyPlace { cluster: 8, ..PLACE }, KeyPlace { key: KeyId(6), ..PLACE }] {
            assert!(is_wrong(&own.unwrap(elsewhere, &wrapped)));
        }
        let cut = &wrapped[..wrapped.len() - 2];
        assert!(matches!(own.unwrap(PLACE, cut), Err(SecretsError::Damaged { .. })));
    }
}

#[test]
fn what_is_wrapped_says_what_it_costs() {
    let wrapped = secret(PASSPHRASE).wrap(PLACE, &draw()).unwrap();
    assert!(wrapped.starts_with("argon2id:65536:3:4:"), "{wrapped}");
    assert!(secret(PASSPHRASE).unwrap(PLACE, &wrapped).is_ok());
    assert!(secret(&key_text("09")).wrap(PLACE, &draw()).unwrap().starts_with("hkdf-sha256:"));
}

/// As another implementation of argon2id, HKDF and AES-256-GCM (Python's cryptography) wraps the bytes 0 to 63.
#[test]
fn what_others_have_wrapped_opens() {
    let bytes: Vec<u8> = (0..64).collect();
    let salt = "000102030405060708090a0b0c0d0e0f";
    let by_passphrase = "000102030405060708090a0b18f7a91c3b29c37b6bab67d552877e785b8cfec54898e95cc06d056f959ab4e9ce2472\
                         32e0dce69380a100e33234f7ccb681237f12a2c963e0a2125aa40fa7f42804ff2ff01c4aa4b7d184a60d52d7fa";
    let by_key = "000102030405060708090a0bcd171d7b6b350a0f05a0976b8bd8ea8c44de49a7ec97a12df09f627759d6b42e0ab1492bfbf836d4\
                  5f6aacd2538698778f2ff76fa9c2c3e557a696af0cfcb871579da14dce19ddcbaf0e0eba2dc98fcf";
    let wrapped = format!("argon2id:256:2:2:{salt}:{by_passphrase}");
    assert_eq!(secret(PASSPHRASE).unwrap(PLACE, &wrapped).unwrap().bytes(), bytes);
    let wrapped = format!("hkdf-sha256:{salt}:{by_key}");
    assert_eq!(secret(&key_text("09")).unwrap(PLACE, &wrapped).unwrap().bytes(), bytes);
}

/// What docs/formats/data-keys.md shows, with the cost that is used.
#[test]
fn the_record_of_the_document_opens() {
    let golden = include_str!("../../../model/tests/golden/data_key_csi.json");
    let record: serde_json::Value = serde_json::from_str(golden).unwrap();
    let generation = &record["generations"][0];
    let key = secret(PASSPHRASE).unwrap(PLACE, generation["wrapped"].as_str().unwrap()).unwrap();
    assert!(key.has_check(KeyId(5), generation["check"].as_str().unwrap()));
}

#[test]
fn a_salt_or_a_cost_that_was_altered_opens_nothing() {
    let own = secret(PASSPHRASE);
    let wrapped = own.wrap_at(CHEAP, PLACE, &draw()).unwrap();
    let parts: Vec<&str> = wrapped.split(':').collect();
    for (at, other) in [(1, "512"), (2, "3"), (3, "1"), (4, "000102030405060708090a0b0c0d0e0f")] {
        let mut altered = parts.clone();
        altered[at] = other;
        assert!(is_wrong(&own.unwrap(PLACE, &altered.join(":"))), "{at}");
    }
}

#[test]
fn the_wrong_kind_of_secret_is_told() {
    let (passphrase, key) = (secret(PASSPHRASE), secret(&key_text("09")));
    let told = |outcome: Result<DataKey, SecretsError>| outcome.unwrap_err().to_string();
    let wrapped = passphrase.wrap_at(CHEAP, PLACE, &draw()).unwrap();
    assert!(told(key.unwrap(PLACE, &wrapped)).contains("wrapped with a passphrase"));
    let wrapped = key.wrap(PLACE, &draw()).unwrap();
    assert!(told(passphrase.unwrap(PLACE, &wrapped)).contains("wrapped with a key"));
}

#[test]
fn secrets_that_are_none_are_told_and_not_shown() {
    for (text, why) in [
        (String::new(), "12 bytes"),
        ("hunter2".to_owned(), "12 bytes"),
        ("hunter2hunt\n".to_owned(), "12 bytes"),
        ("hunter2".repeat(200), "more than 1024"),
        (format!("{KEY_PREFIX}hunter2"), "64 hexadecimal digits"),
        (key_text("0"), "64 hexadecimal digits"),
    ] {
        let told = VolumeSecret::read(&text).unwrap_err().to_string();
        assert!(told.contains(why) && !told.contains("hunter2"), "{told}");
    }
    assert_eq!(format!("{:?}", secret(PASSPHRASE)), "VolumeSecret(…)");
}

#[test]
fn an_end_of_line_does_not_count() {
    let wrapped = secret(PASSPHRASE).wrap_at(CHEAP, PLACE, &draw()).unwrap();
    for end in ["\n", "\r\n"] {
        assert!(secret(&format!("{PASSPHRASE}{end}")).unwrap(PLACE, &wrapped).is_ok());
    }
    assert!(is_wrong(&secret(&format!("{PASSPHRASE}\n\n")).unwrap(PLACE, &wrapped)));
}

#[test]
fn a_record_can_not_ask_for_any_amount_of_work() {
    let (salt, sealed) = ("00".repeat(16), "00".repeat(92));
    for numbers in [
        "127:1:1",
        "262145:1:1",
        "4294967295:1:1",
        "4294967296:1:1",
        "256:0:1",
        "256:17:1",
        "256:1:0",
        "256:1:17",
        "+256:1:1",
        "0256:1:1",
        "256:1",
        "",
    ] {
        let text = format!("argon2id:{numbers}:{salt}:{sealed}");
        assert!(matches!(Record::read(&text), Err(SecretsError::Damaged { .. })), "{numbers}");
    }
    assert!(Record::read(&format!("argon2id:128:16:16:{salt}:{sealed}")).is_ok(), "argon2id wants 8 KiB a lane");
    assert!(secret(PASSPHRASE).unwrap(PLACE, &format!("argon2id:128:1:16:{salt}:{sealed}")).is_err());
    for text in [format!("hkdf-sha256:{salt}:{sealed}:"), format!("pbkdf2:{salt}:{sealed}"), salt] {
        assert!(Record::read(&text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(
        memory_kib in 128u32..=1 << 18, passes in 1u32..=16, lanes in 1u32..=16, is_key: bool,
        salt: [u8; SALT_BYTES], sealed in prop::collection::vec(any::<u8>(), 92),
    ) {
        let derivation = if is_key { Derivation::Hkdf } else { Derivation::Argon2id { memory_kib, passes, lanes } };
        let record = Record { derivation, salt, sealed };
        prop_assert_eq!(Record::read(&record.to_string()).unwrap(), record);
    }

    #[test]
    fn nonsense_is_refused(
        text in "(argon2id|hkdf-sha256|)(:[0-9]{0,6}){0,4}(:[0-9a-f]{32})?(:[0-9a-f]{180,186}|\\PC{0,20})",
    ) {
        if let Ok(record) = Record::read(&text) {
            prop_assert_eq!(record.to_string(), text);
        }
    }

    #[test]
    fn damaged_records_open_nothing(at in 0usize..228, to in any::<u8>()) {
        let own = secret(&key_text("09"));
        let wrapped = own.wrap(PLACE, &draw()).unwrap();
        let mut bytes = wrapped.clone().into_bytes();
        bytes[at] = to & 0x7f;
        let damaged = String::from_utf8(bytes).unwrap();
        prop_assume!(!damaged.eq_ignore_ascii_case(&wrapped));
        prop_assert!(own.unwrap(PLACE, &damaged).is_err());
    }
}
