//! The options of `azekura node` that say who has the keys (KEKs) of encrypted volumes' keys.

use anyhow::{Result, anyhow, ensure};
use azekura_control::DataKeys;
use azekura_secrets::{FileProvider, KeyProvider, KmipOptions, KmipProvider, VaultOptions, VaultProvider};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// Who has the KEKs (docs/operations/keys.md).
#[derive(Args, Clone, Debug)]
pub struct KeyArgs {
    /// The file with the key that the keys of encrypted volumes are wrapped with (docs/security.md): the same on each
    /// node, mode 0600, read whenever it is needed. A node with none of --key-file, --vault and --kmip serves all
    /// volumes but the encrypted ones.
    #[arg(long, value_name = "PATH")]
    pub key_file: Option<PathBuf>,

    /// The server whose transit engine wraps the keys of encrypted volumes: Vault or OpenBao, which keep their key for
    /// themselves (docs/operations/keys.md). http:// on this machine alone.
    #[arg(long, value_name = "URL", requires = "vault_key", requires = "vault_token_file")]
    pub vault: Option<String>,

    /// With --vault, the name of the key there, of type aes256-gcm96.
    #[arg(long, value_name = "NAME", requires = "vault")]
    pub vault_key: Option<String>,

    /// With --vault, the file with the token, which nobody else may read. It is read whenever a key is needed, so that
    /// it can be renewed.
    #[arg(long, value_name = "FILE", requires = "vault")]
    pub vault_token_file: Option<PathBuf>,

    /// With --vault, where the transit engine is mounted.
    #[arg(long, value_name = "PATH", default_value = "transit")]
    pub vault_mount: String,

    /// With --vault, the namespace that the engine is in.
    #[arg(long, value_name = "NAME", requires = "vault")]
    pub vault_namespace: Option<String>,

    /// With --vault, the file with the authorities that may have signed the server's certificate, in PEM.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    pub vault_ca: PathBuf,

    /// The KMIP server that gives out the key which wraps the keys of encrypted volumes; 5696 is the usual port
    /// (docs/operations/keys.md).
    #[arg(
        long,
        value_name = "HOST:PORT",
        requires = "kmip_keys",
        requires = "kmip_ca",
        requires = "kmip_certificate",
        requires = "kmip_private_key"
    )]
    pub kmip: Option<String>,

    /// With --kmip, the file that names the keys there, AES with 256 bits: a line 'VERSION IDENTIFIER' for each, with
    /// the unique identifier that the server gave it. The highest version wraps. The same on each node, read whenever
    /// a key is needed.
    #[arg(long, value_name = "FILE", requires = "kmip")]
    pub kmip_keys: Option<PathBuf>,

    /// With --kmip, the file with the authorities that may have signed the server's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "kmip")]
    pub kmip_ca: Option<PathBuf>,

    /// With --kmip, the file with this node's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "kmip")]
    pub kmip_certificate: Option<PathBuf>,

    /// With --kmip, the file with that certificate's private key, in PEM, which nobody else may read.
    #[arg(long, value_name = "FILE", requires = "kmip")]
    pub kmip_private_key: Option<PathBuf>,

    /// With more than one of --key-file, --vault and --kmip, which of them wraps new keys. The others only open what
    /// they have wrapped; 'azekura kek rewrap' moves that to the one that wraps.
    #[arg(long, value_name = "file|vault|kmip", value_parser = [FileProvider::NAME, VaultProvider::NAME, KmipProvider::NAME], hide_possible_values = true)]
    pub wrap_keys: Option<String>,
}

impl KeyArgs {
    /// The keys of encrypted volumes, as [`KeyArgs::data_keys`] gives them; who has them is looked at.
    ///
    /// # Errors
    /// As there.
    pub fn start(&self) -> Result<DataKeys> {
        let keys = self.data_keys()?;
        keys.look();
        Ok(keys)
    }

    /// The keys of encrypted volumes. Files and servers that can't be used are told of when a key is needed, and don't
    /// keep the node's copies away.
    ///
    /// # Errors
    /// When the options contradict each other, or one is malformed.
    pub fn data_keys(&self) -> Result<DataKeys> {
        let mut all: Vec<Arc<dyn KeyProvider>> = Vec::new();
        if let Some(path) = &self.key_file {
            all.push(Arc::new(FileProvider::new(path)));
        }
        if let Some(vault) = self.vault()? {
            all.push(Arc::new(vault));
        }
        if let Some(kmip) = self.kmip()? {
            all.push(Arc::new(kmip));
        }
        let Some(name) = &self.wrap_keys else {
            ensure!(
                all.len() < 2,
                "say with --wrap-keys which of {} wraps new keys",
                all.iter().map(|provider| provider.name()).collect::<Vec<_>>().join(", ")
            );
            return Ok(DataKeys::wrapped_by(all.first().cloned(), all));
        };
        let wraps = all.iter().find(|provider| provider.name() == name).cloned();
        let option = if name == FileProvider::NAME { "key-file" } else { name };
        let wraps = wraps.ok_or_else(|| anyhow!("--wrap-keys {name} needs --{option}"))?;
        Ok(DataKeys::wrapped_by(Some(wraps), all))
    }

    fn vault(&self) -> Result<Option<VaultProvider>> {
        let (Some(url), Some(key), Some(token_file)) = (&self.vault, &self.vault_key, &self.vault_token_file) else {
            return Ok(None);
        };
        let vault = VaultProvider::new(VaultOptions {
            url: url.clone(),
            key: key.clone(),
            mount: self.vault_mount.clone(),
            namespace: self.vault_namespace.clone(),
            token_file: token_file.clone(),
            authorities: self.vault_ca.clone(),
        });
        Ok(Some(vault?))
    }

    fn kmip(&self) -> Result<Option<KmipProvider>> {
        let files = (&self.kmip_keys, &self.kmip_ca, &self.kmip_certificate, &self.kmip_private_key);
        let (Some(server), (Some(keys), Some(authorities), Some(certificate), Some(private_key))) = (&self.kmip, files)
        else {
            return Ok(None);
        };
        let kmip = KmipProvider::new(KmipOptions {
            server: server.clone(),
            authorities: authorities.clone(),
            certificate: certificate.clone(),
            private_key: private_key.clone(),
            keys: keys.clone(),
        });
        Ok(Some(kmip?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn read(options: &[&str]) -> Result<KeyArgs, clap::Error> {
        let command = KeyArgs::augment_args(clap::Command::new("node").no_binary_name(true));
        KeyArgs::from_arg_matches(&command.try_get_matches_from(options)?)
    }

    const FILE: [&str; 2] = ["--key-file", "/kek"];
    const VAULT: [&str; 6] =
        ["--vault", "https://vault:8200", "--vault-key", "azekura", "--vault-token-file", "/token"];
    const KMIP: [&str; 10] = [
        "--kmip",
        "kmip:5696",
        "--kmip-keys",
        "/keys",
        "--kmip-ca",
        "/ca",
        "--kmip-certificate",
        "/cert",
        "--kmip-private-key",
        "/key",
    ];

    #[test]
    fn one_provider_wraps_and_of_several_it_is_said_which() {
        let wraps = |options: &[&str]| read(options).unwrap().data_keys().map(|keys| keys.wraps_by());
        assert_eq!(wraps(&[]).unwrap(), None);
        assert_eq!(wraps(&FILE).unwrap(), Some("file"));
        assert_eq!(wraps(&VAULT).unwrap(), Some("vault"));
        assert_eq!(wraps(&KMIP).unwrap(), Some("kmip"));
        let both = [&FILE[..], &VAULT].concat();
        assert!(wraps(&both).unwrap_err().to_string().contains("--wrap-keys which of file, vault"));
        assert_eq!(wraps(&[&both[..], &["--wrap-keys", "vault"]].concat()).unwrap(), Some("vault"));
        let missing = wraps(&[&both[..], &["--wrap-keys", "kmip"]].concat()).unwrap_err();
        assert!(missing.to_string().contains("needs --kmip"), "{missing}");
        let missing = wraps(&["--wrap-keys", "file"]).unwrap_err();
        assert!(missing.to_string().contains("needs --key-file"), "{missing}");
    }

    #[test]
    fn a_server_is_told_with_all_that_it_takes() {
        for options in [&VAULT[..2], &VAULT[..4], &VAULT[2..], &KMIP[..8], &KMIP[2..4]] {
            assert!(read(options).is_err(), "{options:?}");
        }
        assert!(read(&["--wrap-keys", "paper"]).is_err());
        let plain = ["--vault", "http://vault:8200", "--vault-key", "k", "--vault-token-file", "/t"];
        assert!(read(&plain).unwrap().data_keys().is_err_and(|error| error.to_string().contains("https://")));
    }
}
