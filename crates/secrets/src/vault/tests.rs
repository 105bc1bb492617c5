use super::*;
use azekura_base::KeyId;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PLACE: KeyPlace = KeyPlace { cluster: 7, key: KeyId(5) };
const TOKEN: &str = "s.0123456789";

fn options(url: &str, folder: &TempDir) -> VaultOptions {
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    VaultOptions {
        url: url.to_owned(),
        key: "azekura".to_owned(),
        mount: "transit".to_owned(),
        namespace: Some("team/a".to_owned()),
        token_file,
        authorities: folder.path().join("ca"),
    }
}

/// A server that answers each request with one of these, and what it was asked.
struct Server {
    folder: TempDir,
    provider: VaultProvider,
    asked: JoinHandle<Vec<String>>,
}

fn server(answers: &[(u16, &str)]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers: Vec<String> = answers
        .iter()
        .map(|(status, body)| {
            format!("HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        })
        .collect();
    let asked = std::thread::spawn(move || {
        let one = |answer: &String| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !is_whole(&asked) {
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).unwrap();
                asked.extend_from_slice(&piece[..read]);
            }
            // Who reads no more than it wants may be gone.
            let _ = stream.write_all(answer.as_bytes());
            String::from_utf8(asked).unwrap()
        };
        answers.iter().map(one).collect()
    });
    let folder = tempfile::tempdir().unwrap();
    let provider = VaultProvider::new(options(&url, &folder)).unwrap();
    Server { folder, provider, asked }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn told(answer: (u16, &str)) -> String {
    server(&[answer]).provider.keks(7).unwrap_err().to_string()
}

#[test]
fn a_key_is_wrapped_with_its_place() {
    let server = server(&[(200, r#"{"data":{"ciphertext":"vault:v3:AAAA","key_version":3}}"#)]);
    let key = DataKey::of(&[7; 64]).unwrap();
    let wrapped = server.provider.wrap(PLACE, &key).unwrap();
    assert_eq!((wrapped.as_str(), version(&wrapped)), ("vault:v3:AAAA", Some(3)));
    let asked = server.asked.join().unwrap().remove(0);
    assert!(asked.starts_with("POST /v1/transit/encrypt/azekura HTTP/1.1\r\n"), "{asked}");
    let lower = asked.to_lowercase();
    assert!(lower.contains(&format!("x-vault-token: {TOKEN}\r\n")) && lower.contains("x-vault-namespace: team/a\r\n"));
    let body: serde_json::Value = serde_json::from_str(asked.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(STANDARD.decode(body["plaintext"].as_str().unwrap()).unwrap(), [7; 64]);
    assert_eq!(STANDARD.decode(body["associated_data"].as_str().unwrap()).unwrap(), belongs(PLACE));
}

#[test]
fn of_many_each_is_unwrapped_or_told_of() {
    let good = STANDARD.encode([9; 64]);
    let short = STANDARD.encode([9; 63]);
    let batch = format!(
        r#"{{"data":{{"batch_results":[{{"plaintext":"{good}"}},{{"error":"cipher: message authentication failed"}},
        {{"plaintext":"","error":"version is\ntoo new"}},{{"plaintext":"{short}"}},{{"plaintext":"?"}}]}}}}"#
    );
    // Status 400: some of them failed.
    let server = server(&[(400, batch.as_str())]);
    let wrapped = ["vault:v1:AA", "1:00", "vault:v1:AB", "vault:v9:AC", "vault:v1:AD", "vault:v1:AE"];
    let asked: Vec<_> = wrapped.iter().map(|text| (PLACE, *text)).collect();
    let opened = server.provider.unwrap(&asked).unwrap();
    assert_eq!(opened[0].as_ref().unwrap().bytes(), [9; 64]);
    assert!(matches!(opened[1], Err(SecretsError::Damaged { .. })));
    assert!(matches!(opened[2], Err(SecretsError::WrongKey { version: 1, .. })));
    assert!(matches!(&opened[3], Err(SecretsError::Refused { reason, .. }) if reason == "version is too new"));
    assert!(matches!(opened[4], Err(SecretsError::Damaged { .. })));
    assert!(matches!(opened[5], Err(SecretsError::Foreign { .. })));
    let asked = server.asked.join().unwrap().remove(0);
    assert!(asked.starts_with("POST /v1/transit/decrypt/azekura") && !asked.contains("1:00"), "{asked}");
}

#[test]
fn answers_that_fit_no_question_are_refused() {
    for (body, wanted) in [
        (r#"{"data":{"batch_results":[]}}"#, "more or fewer"),
        (r#"{"data":{}}"#, "nothing that transit answers"),
        ("<html>", "nothing that transit answers"),
    ] {
        let error = server(&[(200, body)]).provider.unwrap(&[(PLACE, "vault:v1:AA")]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    for ciphertext in ["vault:v0:AA", "vault:x", "", "vault:v1:A\\n", &format!("vault:v1:{}", "A".repeat(600))] {
        let answer = format!(r#"{{"data":{{"ciphertext":"{ciphertext}"}}}}"#);
        let refused = server(&[(200, answer.as_str())]).provider.wrap(PLACE, &DataKey::draw().unwrap()).unwrap_err();
        assert!(matches!(refused, SecretsError::Foreign { .. }), "{refused}");
    }
    let endless = format!(r#"{{"data":{{"ciphertext":"{}"}}}}"#, "A".repeat(2 << 20));
    assert!(server(&[(200, &endless)]).provider.keks(7).is_err(), "no more is read than an answer has");
}

#[test]
fn who_says_no_is_told_with_the_way_out() {
    let denied = r#"{"errors":["permission denied"]}"#;
    assert!(told((403, denied)).contains("no 'read' on transit/keys/azekura"), "{}", told((403, denied)));
    assert!(told((404, r#"{"errors":[]}"#)).contains("--vault-key"));
    assert!(told((503, r#"{"errors":["Vault is sealed"]}"#)).contains("Vault is sealed: it has to be unsealed"));
    assert!(told((500, "oops")).contains("status 500"));
    let standby = told((307, ""));
    assert!(standby.contains("standby"), "the token goes nowhere else: {standby}");
    let of_type = |kind: &str, derived: bool| {
        told((
            200,
            &format!(r#"{{"data":{{"type":"{kind}","derived":{derived},"latest_version":1,"keys":{{"1":5}}}}}}"#),
        ))
    };
    assert!(of_type("rsa-2048", false).contains("type rsa-2048") && of_type("aes256-gcm96", true).contains("derived"));
}

#[test]
fn versions_are_told_apart() {
    let key = |made: u64| {
        let body =
            format!(r#"{{"data":{{"type":"aes256-gcm96","latest_version":2,"keys":{{"2":{made},"1":5,"3":6}}}}}}"#);
        server(&[(200, body.as_str())]).provider.keks(7).unwrap()
    };
    let keks = key(9);
    assert_eq!(keks.iter().map(|kek| kek.version).collect::<Vec<_>>(), [1, 2], "the newest is the last");
    assert!(keks == key(9) && keks[0] == key(8)[0] && keks[1].mark != key(8)[1].mark);
}

#[test]
fn who_is_silent_is_not_waited_for_long() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut provider = VaultProvider::new(options(&url, &folder)).unwrap();
    provider.wait = Duration::from_millis(50);
    let begun = Instant::now();
    let error = provider.keks(7).unwrap_err();
    assert!(matches!(error, SecretsError::Away { .. }) && begun.elapsed() < PROVIDER_WAIT, "{error}");
    drop(listener);
    assert!(matches!(provider.keks(7), Err(SecretsError::Away { .. })));
}

#[test]
fn a_token_that_others_can_read_is_not_used() {
    let server = server(&[]);
    let token = server.folder.path().join("token");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = server.provider.keks(7).unwrap_err().to_string();
    assert!(error.contains("chmod 600") && error.contains("token"), "{error}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    for text in ["", "two words", "line\nline", "\u{fc}"] {
        std::fs::write(&token, text).unwrap();
        let error = server.provider.keks(7).unwrap_err().to_string();
        assert!(error.contains("no token in it"), "{error}");
    }
}

#[test]
fn options_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = options("https://vault.example:8200", &folder);
    assert!(VaultProvider::new(good.clone()).is_ok());
    for url in ["http://localhost:8200", "http://[::1]:8200", "https://[2001:db8::1]:8200/"] {
        assert!(VaultProvider::new(VaultOptions { url: url.to_owned(), ..good.clone() }).is_ok(), "{url}");
    }
    for url in ["http://vault:8200", "vault:8200", "ftp://vault", "", "https://u:p@vault", "https://vault/v1"] {
        assert!(VaultProvider::new(VaultOptions { url: url.to_owned(), ..good.clone() }).is_err(), "{url}");
    }
    for name in ["", "a/b", "..", "a b", "a?b", &"x".repeat(200)] {
        assert!(VaultProvider::new(VaultOptions { key: name.to_owned(), ..good.clone() }).is_err(), "{name}");
        let namespace = Some(format!("{name}/"));
        if name != "a/b" {
            assert!(VaultProvider::new(VaultOptions { namespace, ..good.clone() }).is_err(), "{name}");
            assert!(VaultProvider::new(VaultOptions { mount: format!("x/{name}"), ..good.clone() }).is_err());
        }
    }
    // Without authorities nobody is trusted.
    let error = VaultProvider::new(good).unwrap().keks(7).unwrap_err().to_string();
    assert!(error.contains("authorities"), "{error}");
}

proptest! {
    #[test]
    fn whatever_stands_in_a_record_has_a_version_or_none(text in "\\PC{0,40}", number in any::<u64>()) {
        let _ = version(&text);
        let wanted = u32::try_from(number).ok().filter(|version| *version > 0);
        prop_assert_eq!(version(&format!("vault:v{number}:AA")), wanted);
    }
}
