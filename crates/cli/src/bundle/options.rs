//! A node's options, as a support bundle tells them: those that are named here, and of all others only that they are
//! there.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::net::{Net, WITHHELD};
use crate::config_file::NODE;

/// Options whose values are told. None is a secret: secrets are in files, and the options name these.
const TOLD: [&str; 62] = [
    "api",
    "api-access",
    "api-names",
    "ask-loopback-hosts",
    "client-connections",
    "client-memory",
    "config",
    "config-ca",
    "config-cert",
    "config-fingerprint",
    "config-key",
    "config-password-file",
    "config-user",
    "core-dumps",
    "data",
    "device-size",
    "device-timeout",
    "devices",
    "disk",
    "iscsi",
    "join",
    "key-file",
    "kmip",
    "kmip-ca",
    "kmip-certificate",
    "kmip-keys",
    "leave-scattered",
    "light-scrub-hours",
    "listen",
    "log",
    "memory",
    "name",
    "nbd",
    "nbd-plain",
    "nbd-socket",
    "nbd-socket-group",
    "nbd-socket-mode",
    "nbd-transport",
    "nvme",
    "nvme-discovery",
    "power-loss-protected",
    "rack",
    "scrub-days",
    "serve-config",
    "serve-config-transport",
    "shards",
    "shards-without-devices",
    "site",
    "token-file",
    "transport",
    "trusted-config",
    "vault",
    "vault-ca",
    "vault-key",
    "vault-mount",
    "vault-namespace",
    "vault-token-file",
    "vhost-folder",
    "vhost-socket",
    "vhost-socket-group",
    "vhost-socket-mode",
    "wrap-keys",
];
/// Options that name a file with a secret.
const FILES: [&str; 6] =
    ["key-file", "vault-token-file", "kmip-private-key", "config-key", "config-password-file", "token-file"];

/// What a file of options says.
#[derive(Debug, Default)]
pub struct Options {
    /// The options that are told, as they may stand in a file.
    pub text: String,
    /// The node's data folder, where the file names it.
    pub data: Option<PathBuf>,
    /// Files with secrets.
    pub secret_files: Vec<PathBuf>,
}

/// Reads a file of options; what must not be told is known to the net from then on. Comments are left out.
///
/// # Errors
/// When it is no TOML: then nothing says what in it is a secret. The reason does not quote it.
pub fn read(text: &str, net: &mut Net) -> Result<Options, String> {
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1);
        let line = line.map(|line| format!(" (line {line})")).unwrap_or_default();
        format!("it is no TOML{line}, so that nothing says what in it is a secret")
    })?;
    let mut options = Options::default();
    let mut told = Vec::new();
    for (table, values) in document.get_ref() {
        let (NODE, DeValue::Table(values)) = (table.get_ref().as_ref(), values.get_ref()) else {
            all_texts(values.get_ref(), &mut |text| net.know(text));
            told.push((format!("# {} = ", table.get_ref()), None));
            continue;
        };
        told.push((format!("[{NODE}]"), Some(Vec::new())));
        for (name, value) in values {
            let (name, value) = (name.get_ref().as_ref(), value.get_ref());
            let mut texts = Vec::new();
            all_texts(value, &mut |text| texts.push(text.to_owned()));
            if FILES.contains(&name) {
                options.secret_files.extend(texts.iter().map(PathBuf::from));
            }
            if !TOLD.contains(&name) {
                texts.iter().for_each(|text| net.know(text));
                told.push((format!("{name} = "), None));
                continue;
            }
            texts.iter().for_each(|text| passwords_of_urls(text, net));
            if name == "data" {
                options.data = texts.first().map(PathBuf::from);
            }
            told.push((format!("{name} = "), Some(vec![written(value)])));
        }
    }
    // What a name at the end has made known may stand in a value before.
    for (name, values) in told {
        let value = values.map_or_else(|| format!("\"{WITHHELD}\""), |values| values.concat());
        options.text += &format!("{name}{}\n", net.clean(&value));
    }
    Ok(options)
}

/// A value as it may stand in a file.
fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| written(value.get_ref())).collect();
            format!("[{}]", values.join(", "))
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => format!("\"{WITHHELD}\""),
    }
}

fn all_texts(value: &DeValue<'_>, tell: &mut impl FnMut(&str)) {
    match value {
        DeValue::String(text) => tell(text),
        DeValue::Integer(number) => tell(number.as_str()),
        DeValue::Array(values) => values.iter().for_each(|value| all_texts(value.get_ref(), tell)),
        DeValue::Table(values) => values.iter().for_each(|(_, value)| all_texts(value.get_ref(), tell)),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Boolean(_) => {}
    }
}

/// A password in a URL may stand elsewhere without its URL.
fn passwords_of_urls(text: &str, net: &mut Net) {
    for url in text.split(',') {
        let after = url.split_once("://").map(|(_, after)| after);
        let user = after.and_then(|after| after.rsplit_once('@')).map(|(user, _)| user);
        if let Some((_, password)) = user.and_then(|user| user.split_once(':')) {
            net.know(password);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::net::is_secret_name;
    use super::*;

    const FILE: &str = r#"
        # the old password was correct-horse
        [node]
        name = "n1"
        config = ["https://root:hunter2hunter@10.0.0.1:2379", "https://10.0.0.2:2379"]
        token-file = "/etc/azekura/join.token"
        data = "/srv/azekura"
        devices = 2
        log = "json"
        rack = "r-staple-battery"
        etcd-password = "staple-battery"
        core-dumps = false

        [other]
        thing = "open-sesame"
    "#;

    #[test]
    fn options_that_are_known_are_told() {
        let mut net = Net::default();
        let options = read(FILE, &mut net).unwrap();
        for told in [
            "name = \"n1\"",
            "devices = 2",
            "core-dumps = false",
            "token-file = \"/etc/azekura/join.token\"",
            "config = [\"https://[withheld]@10.0.0.1:2379\", \"https://10.0.0.2:2379\"]",
            "etcd-password = \"[withheld]\"",
            "rack = \"r-[withheld]\"",
            "# other = \"[withheld]\"",
        ] {
            assert!(options.text.contains(told), "{told}\n{}", options.text);
        }
        for secret in ["hunter2", "staple", "sesame", "horse"] {
            assert!(!options.text.contains(secret), "{secret}\n{}", options.text);
        }
        assert_eq!(options.data, Some("/srv/azekura".into()));
        assert_eq!(options.secret_files, [PathBuf::from("/etc/azekura/join.token")]);
        assert_eq!(net.clean("asked with hunter2hunter; staple-battery"), "asked with [withheld]; [withheld]");
    }

    #[test]
    fn what_is_no_toml_is_not_told() {
        let reason = read("[node]\npassword = hunter2hunter", &mut Net::default()).unwrap_err();
        assert!(reason.contains("line 2") && !reason.contains("hunter"), "{reason}");
    }

    #[test]
    fn no_option_that_is_told_has_the_name_of_a_secret() {
        assert!(TOLD.is_sorted());
        let secrets: Vec<_> = TOLD.iter().filter(|name| is_secret_name(name)).collect();
        assert!(secrets.is_empty(), "{secrets:?}");
    }
}
