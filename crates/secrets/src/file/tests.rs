use super::*;
use crate::version_of;
use azekura_base::KeyId;
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

const PLACE: KeyPlace = KeyPlace { cluster: 7, key: KeyId(5) };

struct Fixture {
    _folder: TempDir,
    provider: FileProvider,
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn with(text: &str, mode: u32) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kek");
    write(&path, text, mode);
    Fixture { provider: FileProvider::new(&path), _folder: folder }
}

fn line(version: u32, byte: u8) -> String {
    format!("{version} {}\n", hex::write(&[byte; 32]))
}

impl Fixture {
    fn unwrap(&self, place: KeyPlace, wrapped: &str) -> Result<DataKey, SecretsError> {
        self.provider.unwrap(&[(place, wrapped)])?.remove(0)
    }
}

fn draw() -> DataKey {
    DataKey::draw().unwrap()
}

#[test]
fn a_key_comes_back_in_its_place_only() {
    let fixture = with(&format!("# ours\n\n{}", line(3, 9)), 0o600);
    let key = draw();
    let wrapped = fixture.provider.wrap(PLACE, &key).unwrap();
    assert!(wrapped.starts_with("3:") && wrapped.len() == 2 + 2 * (12 + 64 + 16), "{wrapped}");
    assert!(fixture.provider.wrap(PLACE, &key).unwrap() != wrapped, "each has a nonce of its own");
    assert_eq!(fixture.unwrap(PLACE, &wrapped).unwrap().bytes(), key.bytes());
    for other in [KeyPlace { cluster: 8, ..PLACE }, KeyPlace { key: KeyId(6), ..PLACE }] {
        assert!(matches!(fixture.unwrap(other, &wrapped), Err(SecretsError::WrongKey { .. })));
    }
}

#[test]
fn the_newest_version_wraps_and_former_ones_open() {
    let fixture = with(&line(1, 1), 0o600);
    let key = draw();
    let old = fixture.provider.wrap(PLACE, &key).unwrap();
    write(&fixture.provider.path, &format!("{}{}", line(2, 2), line(1, 1)), 0o600);
    let new = fixture.provider.wrap(PLACE, &key).unwrap();
    assert!(new.starts_with("2:"));
    for wrapped in [&old, &new] {
        assert_eq!(fixture.unwrap(PLACE, wrapped).unwrap().bytes(), key.bytes());
    }
    write(&fixture.provider.path, &line(2, 2), 0o600);
    assert_eq!(fixture.unwrap(PLACE, &new).unwrap().bytes(), key.bytes());
    assert!(matches!(fixture.unwrap(PLACE, &old), Err(SecretsError::NoVersion { version: 1, .. })));
}

#[test]
fn marks_tell_keys_apart_and_nothing_of_them() {
    let fixture = with(&format!("{}{}", line(2, 2), line(1, 1)), 0o600);
    let keks = fixture.provider.keks(7).unwrap();
    assert_eq!(keks.iter().map(|kek| kek.version).collect::<Vec<_>>(), [1, 2], "the newest is the last");
    assert!(keks.iter().all(|kek| kek.mark.len() == 16) && keks[0].mark != keks[1].mark);
    assert_eq!(with(&line(5, 1), 0o600).provider.keks(7).unwrap()[0].mark, keks[0].mark, "the same key elsewhere");
    assert!(fixture.provider.keks(8).unwrap()[0].mark != keks[0].mark, "of another cluster");
    let wrapped = fixture.provider.wrap(PLACE, &draw()).unwrap();
    assert_eq!((version_of("file", &wrapped), version_of("kmip", &wrapped)), (Some(2), Some(2)));
    for other in [("file", "x:00"), ("vault", &*wrapped), ("paper", &*wrapped)] {
        assert_eq!(version_of(other.0, other.1), None);
    }
}

#[test]
fn another_key_of_the_same_version_opens_nothing() {
    let fixture = with(&line(1, 1), 0o600);
    let wrapped = fixture.provider.wrap(PLACE, &draw()).unwrap();
    write(&fixture.provider.path, &line(1, 2), 0o600);
    let error = fixture.unwrap(PLACE, &wrapped).unwrap_err();
    assert!(error.to_string().contains("is not the key"), "{error}");
}

#[test]
fn files_that_are_none_are_told_with_the_way_out() {
    let cases = [
        (line(1, 1), 0o640, "has mode 0640"),
        (line(1, 1), 0o604, "chmod 600"),
        (String::new(), 0o600, "holds no key"),
        ("# nothing\n".into(), 0o600, "holds no key"),
        (format!("\n0 {}", "0".repeat(64)), 0o600, "line 2: the version is no number"),
        (format!("1 {}", "0".repeat(63)), 0o600, "64 hexadecimal digits"),
        (format!("1 {}", "x".repeat(64)), 0o600, "64 hexadecimal digits"),
        ("0".repeat(64), 0o600, "no space"),
        (format!("{}{}", line(1, 1), line(1, 2)), 0o600, "there before"),
        ("#".repeat(70_000), 0o600, "at most 65536 bytes"),
    ];
    for (text, mode, told) in cases {
        let error = with(&text, mode).provider.keks(7).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
        assert!(!error.contains("0000"), "keys are not told: {error}");
    }
    let missing = FileProvider::new(Path::new("/nowhere/kek")).keks(7).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/kek"), "{missing}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_records_open_nothing(at in 0usize..186, to in any::<u8>(), text in "\\PC{0,40}") {
        let fixture = with(&line(1, 1), 0o600);
        let wrapped = fixture.provider.wrap(PLACE, &draw()).unwrap();
        let mut bytes = wrapped.clone().into_bytes();
        bytes[at] = to & 0x7f;
        let damaged = String::from_utf8(bytes).unwrap();
        prop_assume!(!damaged.eq_ignore_ascii_case(&wrapped));
        prop_assert!(fixture.unwrap(PLACE, &damaged).is_err());
        prop_assert!(fixture.unwrap(PLACE, &text).is_err());
    }
}
