use proptest::prelude::*;

use super::*;

fn clean(text: &str) -> String {
    Net::default().clean(text)
}

const TOKEN: &str = "azka_063UfDVRKBz7hG3kL9pQ2sT5vX8zB1cD4fG6jK0mN3qR7tV9xZ2a";

#[test]
fn secrets_that_say_what_they_are() {
    let shown = format!("shown {TOKEN}.");
    for (text, told) in [
        (shown.as_str(), "shown [withheld]"),
        ("azkj_063UfDVRKBz7hG3kL9pQ2 was used", "[withheld] was used"),
        ("X-Vault-Token hvs.CAESIJ7aB", "X-Vault-Token [withheld]"),
        ("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR: it", "[withheld] it"),
        ("Authorization: Basic cm9vdDpodW50ZXI=\nx", "Authorization: [withheld]\nx"),
        ("said Bearer abc def", "said Bearer [withheld] def"),
        ("asks http://root:a/b@c@10.0.0.1:2379/v3, now", "asks http://[withheld]@10.0.0.1:2379/v3, now"),
    ] {
        assert_eq!(clean(text), told);
    }
}

#[test]
fn values_with_the_name_of_a_secret() {
    for (text, told) in [
        ("password=hunter2 x", "password=[withheld] x"),
        ("etcd_password = \"hunter \\\" 2\" # x", "etcd_password = \"[withheld]\" # x"),
        ("{\"chap_secret\":\"hunter 2\",\"device\":\"3\"}", "{\"chap_secret\":\"[withheld]\",\"device\":\"3\"}"),
        (r#"{"message":"{\"passphrase\": \"hunter 2\"}"}"#, r#"{"message":"{\"passphrase\": \"[withheld]\"}"}"#),
        ("azekura --vault-token hunter2 --hours 3", "azekura --vault-token [withheld] --hours 3"),
        ("the password 'hunter 2' is wrong", "the password '[withheld]' is wrong"),
        ("psk: hunter2", "psk: [withheld]"),
    ] {
        assert_eq!(clean(text), told);
    }
}

#[test]
fn a_private_key_goes_whole_and_a_certificate_stays() {
    let key = "a\n-----BEGIN PRIVATE KEY-----\nMC4CAQ\nAwB\n-----END PRIVATE KEY-----\nb\n";
    assert_eq!(clean(key), "a\n[withheld]\nb\n");
    assert_eq!(clean(&key.replace('\n', "\\n")), "a\\n[withheld]\\nb\\n");
    assert_eq!(clean("-----BEGIN EC PRIVATE KEY-----\nMC4CAQ"), "[withheld]");
    let certificate = "-----BEGIN CERTIFICATE-----\nMC4CAQ\n-----END CERTIFICATE-----\n";
    assert_eq!(clean(certificate), certificate);
}

#[test]
fn names_of_hosts_are_as_good_as_passwords() {
    let text = "host iqn.1998-01.com.vmware:esx1-0a1b opens iqn.2026-01.io.azekura:vol1";
    assert_eq!(clean(text), "host iqn.[withheld] opens iqn.2026-01.io.azekura:vol1");
    let text = "nqn.2014-08.org.nvmexpress:uuid:5b1e and nqn.2014-08.org.nvmexpress.discovery";
    assert_eq!(clean(text), "nqn.[withheld] and nqn.2014-08.org.nvmexpress.discovery");
}

/// What a search for a fault needs, in the words of real logs.
#[test]
fn what_is_no_secret_stays() {
    for text in [
        "2026-11-27T19:04:11.301942Z  WARN azekura_server::bridge::reports: device 3 has not answered for 1012 ms",
        "{\"timestamp\":\"2026-11-27T19:04:11.301942Z\",\"level\":\"WARN\",\"device\":\"3\",\"target\":\"azekura_store::log\"}",
        "Nov 27 19:04:11 n1 azekura[812]: can't open /var/lib/azekura/device-0/map.redb: Input/output error (os error 5)",
        "azekura_secrets::file: the key file /etc/azekura/kek is not there",
        "volume pvc-5b1e7c0a-9d1f-4a53-8a39-3a2b9a0c7e11 is attached to n2 at 10.0.0.2:7101, epoch 17",
        "azekura_keks_lacking 0\nazekura_volume_reads_total{volume=\"db\",size=\"4KiB\"} 17",
        "/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_S64HNE0R",
        "token_file = /etc/azekura/n2.token; key-file = \"/etc/azekura/kek\"",
    ] {
        assert_eq!(clean(text), text);
    }
}

#[test]
fn what_is_known_is_found_in_any_dress() {
    let mut net = Net::default();
    net.know_file("# the key of keys, version one\n1 sesame-open\n");
    net.know("abc");
    assert_eq!(net.clean("xsesame-openx, the key of keys abc 1"), "x[withheld]x, the key of keys abc 1");
    assert!(!format!("{net:?}").contains("sesame"));
}

proptest! {
    /// Nothing that is drawn at random gets through, wherever it stands.
    #[test]
    fn keys_do_not_get_through(
        bytes in prop::array::uniform32(any::<u8>()),
        before in "[ -~]{0,12}[ =:\"'(,]",
        after in "([ \"'),;\n][ -~]{0,12})?",
    ) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // In base 62, as tokens have it.
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let text: String = bytes.iter().map(|byte| char::from(digits[usize::from(*byte) % 62])).collect();
        let token = format!("azka_{text}");
        for secret in [&hex, &token] {
            let cleaned = clean(&format!("{before}{secret}{after}"));
            prop_assert!(!cleaned.contains(&secret[6..22]), "{cleaned}");
        }
    }

    /// Any value gets caught by its name.
    #[test]
    fn passwords_do_not_get_through(
        secret in "[A-Za-z0-9!#$%&()*+,./;<>?@^_|~-]{6,40}",
        name in "(etcd_|CHAP-|x\\.)?(password|secret|token|passphrase|psk|kek)",
        form in 0..6,
        before in "[a-z ]{0,10} ",
    ) {
        let text = match form {
            0 => format!("{before}{name}={secret}"),
            1 => format!("{before}{name} = \"{secret}\" x"),
            2 => format!("{before}{{\"{name}\":\"{secret}\",\"n\":1}}"),
            3 => format!("{before}--{name} {secret} x"),
            4 => format!("{before}{{\\\"{name}\\\": \\\"{secret}\\\"}}"),
            _ => format!("{before}http://root:{secret}@10.0.0.1:1/x"),
        };
        let cleaned = clean(&text);
        prop_assert!(!cleaned.contains(&secret), "{text}\n{cleaned}");
        prop_assert!(cleaned.contains(WITHHELD));
    }

    /// Any bytes are taken, and a second time nothing changes.
    #[test]
    fn any_text_is_taken(text in "(\\PC|[\\\\\"'=:@/ \n-])*", known in "\\PC{0,10}") {
        let mut net = Net::default();
        net.know(&known);
        let once = net.clean(&text);
        prop_assert!(known.trim().len() < 6 || !once.contains(known.trim()) || WITHHELD.contains(known.trim()));
        net.clean(&once);
    }
}
