use super::*;
use proptest::prelude::*;
use std::fs::{Permissions, set_permissions, write};

fn of(endpoint: &str) -> Servers {
    vec![endpoint.to_owned()].into()
}

fn refusal(servers: &Servers) -> String {
    servers.addresses().unwrap_err().to_string()
}

#[test]
fn an_address_has_a_port_and_perhaps_a_scheme() {
    for (given, url, name) in [
        ("10.0.0.1:2379", "http://10.0.0.1:2379", None),
        (" http://etcd-0.example:2379/", "http://etcd-0.example:2379", None),
        ("https://10.0.0.1:2379", "https://10.0.0.1:2379", Some("10.0.0.1")),
        ("https://[fd00::1]:2379", "https://[fd00::1]:2379", Some("fd00::1")),
        ("https://etcd-0.example:2379/", "https://etcd-0.example:2379", Some("etcd-0.example")),
    ] {
        let address = address(given).unwrap();
        assert_eq!(address.url, url);
        assert_eq!(address.name.map(|name| name.to_str().into_owned()).as_deref(), name, "{given}");
    }
    for given in ["", "etcd", ":2379", "127.0.0.1:99999", "ftp://a:1", "https://", "https://a b:2379", "https://:1"] {
        assert!(matches!(address(given), Err(EtcdError::Endpoint { .. })), "{given}");
    }
}

#[test]
fn what_is_asked_for_holds_for_each_address() {
    let folder = tempfile::tempdir().unwrap();
    let password_file = folder.path().join("password");
    write(&password_file, "secret\n").unwrap();
    set_permissions(&password_file, Permissions::from_mode(0o600)).unwrap();
    let user = Some(User { name: "azekura".into(), password_file });
    let tls = Some(TlsFiles { authorities: "missing.pem".into(), shown: None });
    assert!(refusal(&of("https://a:1")).contains("--config-ca FILE"));
    assert!(refusal(&Servers { tls: tls.clone(), ..of("http://a:1") }).contains("write https://"));
    assert!(refusal(&Servers { tls, ..of("https://a:1") }).contains("missing.pem (--config-ca)"));
    let clear = refusal(&Servers { user: user.clone(), ..of("10.0.0.1:2379") });
    assert!(clear.contains("in clear"), "{clear}");
    for local in ["127.0.0.1:2379", "[::1]:2379", "[::ffff:127.0.0.1]:1", "localhost:2379"] {
        assert!(Servers { user: user.clone(), ..of(local) }.addresses().is_ok(), "{local}");
    }
}

#[test]
fn a_password_is_the_first_line_of_its_owners_file() {
    let folder = tempfile::tempdir().unwrap();
    let user = User { name: "azekura".into(), password_file: folder.path().join("password") };
    let password = |text: &[u8], mode| {
        write(&user.password_file, text).unwrap();
        set_permissions(&user.password_file, Permissions::from_mode(mode)).unwrap();
        user.password()
    };
    assert!(user.password().unwrap_err().contains("--config-password-file"));
    assert_eq!(password(b"with spaces \n", 0o600).unwrap(), "with spaces ");
    assert_eq!(password(b"no end", 0o400).unwrap(), "no end");
    assert!(password(b"secret", 0o640).unwrap_err().contains("chmod 600"));
    for nothing in [&b""[..], b"\nsecond", b"\xff"] {
        assert!(password(nothing, 0o600).is_err());
    }
    assert!(password(&vec![b'x'; 5000], 0o600).unwrap_err().contains("more than 4096 bytes"));
}

proptest! {
    #[test]
    fn no_address_ends_the_program(given in "\\PC*", host in "[a-z0-9.:\\[\\]-]{0,20}", port: u32) {
        for text in [given, format!("https://{host}:{port}"), format!("{host}:{port}")] {
            if let Ok(found) = address(&text) {
                prop_assert_eq!(address(&found.url).map_err(|error| error.to_string()), Ok(found));
            }
        }
    }
}
