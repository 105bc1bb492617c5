//! The options that say how configuration servers are known, and what is proved to them.

use azekura_base::PeerKey;
use azekura_meta::client::{Servers, ShownFiles, TlsFiles, User};
use clap::Args;
use std::path::PathBuf;

/// How the servers of `--config` are known, and who this machine is to them.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigServerArgs {
    /// With https:// in --config, the file with the certificates of the authorities that sign the servers', PEM. A
    /// server's certificate has to be for the name or address that is in --config. These files are read for each new
    /// connection, so renewed ones count without a restart (docs/operations/configuration-security.md).
    #[arg(long, value_name = "FILE", env = "AZEKURA_CONFIG_CA", requires = "config")]
    pub config_ca: Option<PathBuf>,

    /// The certificate that is shown to the configuration servers, PEM. Where etcd has users, its common name says
    /// which one this machine is.
    #[arg(long, value_name = "FILE", env = "AZEKURA_CONFIG_CERT", requires = "config_key", requires = "config_ca")]
    pub config_cert: Option<PathBuf>,

    /// The key of that certificate, PEM, in a file that nobody else may read.
    #[arg(long, value_name = "FILE", env = "AZEKURA_CONFIG_KEY", requires = "config_cert")]
    pub config_key: Option<PathBuf>,

    /// The user of etcd that this machine is, by a password.
    #[arg(
        long,
        value_name = "NAME",
        env = "AZEKURA_CONFIG_USER",
        requires = "config_password_file",
        requires = "config"
    )]
    pub config_user: Option<String>,

    /// Where --config is a node's --serve-config, a key by which it is known besides those that this node knows of
    /// other nodes: for one start, after that node's key was replaced. Its log has it.
    #[arg(long, value_name = "KEY", requires = "config", conflicts_with = "config_ca")]
    pub config_fingerprint: Option<PeerKey>,

    /// With --config-user, the file with the password in its first line, which nobody else may read.
    #[arg(long, value_name = "FILE", env = "AZEKURA_CONFIG_PASSWORD_FILE", requires = "config_user")]
    pub config_password_file: Option<PathBuf>,
}

impl ConfigServerArgs {
    /// Servers at these addresses, as the options say.
    #[must_use]
    pub fn servers(&self, endpoints: Vec<String>) -> Servers {
        let pair = self.config_cert.clone().zip(self.config_key.clone());
        let shown = pair.map(|(certificate, key)| ShownFiles { certificate, key });
        let tls = self.config_ca.clone().map(|authorities| TlsFiles { authorities, shown });
        let user = self.config_user.clone().zip(self.config_password_file.clone());
        let user = user.map(|(name, password_file)| User { name, password_file });
        Servers { endpoints, tls, user, ..Servers::default() }
    }

    /// Whether servers at these addresses are nodes of the cluster that speak TLS (`--serve-config`), and no etcd.
    #[must_use]
    pub fn are_the_clusters(&self, endpoints: &[String]) -> bool {
        self.config_ca.is_none() && endpoints.iter().any(|endpoint| endpoint.trim().starts_with("https://"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command, FromArgMatches};

    fn read(options: &str) -> Result<Servers, clap::Error> {
        let command = Command::new("node").no_binary_name(true).arg(Arg::new("config").long("config"));
        let found = ConfigServerArgs::augment_args(command).try_get_matches_from(options.split_whitespace())?;
        Ok(ConfigServerArgs::from_arg_matches(&found)?.servers(vec!["https://e:1".into()]))
    }

    #[test]
    fn options_that_need_each_other_come_together() {
        assert_eq!(read("").unwrap(), vec!["https://e:1".to_owned()].into());
        let all = "--config https://e:1 --config-ca ca --config-cert c --config-key k --config-user u --config-password-file p";
        let servers = read(all).unwrap();
        let shown = Some(ShownFiles { certificate: "c".into(), key: "k".into() });
        assert_eq!(servers.tls, Some(TlsFiles { authorities: "ca".into(), shown }));
        assert_eq!(servers.user, Some(User { name: "u".into(), password_file: "p".into() }));
        for half in
            ["--config-cert c --config-key k", "--config-ca ca --config-cert c", "--config-ca ca --config-key k"]
        {
            assert!(read(&format!("--config e:1 {half}")).is_err(), "{half}");
        }
        let of_cluster = ConfigServerArgs::default();
        assert!(of_cluster.are_the_clusters(&["http://a:1".into(), " https://b:1".into()]));
        assert!(!of_cluster.are_the_clusters(&["http://a:1".into(), "a:1".into()]));
        let etcd = ConfigServerArgs { config_ca: Some("ca".into()), ..of_cluster };
        assert!(!etcd.are_the_clusters(&["https://b:1".into()]));
        let key = "ab".repeat(32);
        assert!(read(&format!("--config https://e:1 --config-fingerprint {key}")).is_ok());
        assert!(read(&format!("--config https://e:1 --config-ca ca --config-fingerprint {key}")).is_err());
        assert!(read("--config-user u").is_err() && read("--config-password-file p").is_err());
        assert!(read("--config-ca ca").is_err() && read("--config e:1 --config-ca ca").is_ok(), "for --config alone");
        assert!(read("--config-user u --config-password-file p").is_err());
    }
}
