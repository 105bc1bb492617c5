//! `azekura host …`: which hosts may use what over iSCSI and NVMe.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use azekura_api::endpoint::{GrantList, HostCreate};
use azekura_api::{ChapCreated, CreateChap, CreateHost, GrantProof, GrantView, HostCreated, NoQuery, Period};
use azekura_base::CHAP_MAX;
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::token::{RevokeArgs, name_of};
use super::{ApiArgs, CliError};

/// So much is read of a file with a secret, bytes.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// Hosts: which of them may use volumes over iSCSI and NVMe/TCP, and which volumes.
///
/// Where the setting api-access is 'grants', a host that is not listed is refused; where it is 'open', any is let in,
/// and who is listed may no more than that. A name alone proves nothing: whoever reaches the port can give himself any.
/// A host with --chap proves that it knows a secret: by CHAP over iSCSI, by DH-HMAC-CHAP over NVMe/TCP.
#[derive(Debug, Args)]
pub struct HostCommand {
    #[command(subcommand)]
    command: HostAction,
}

#[derive(Debug, Subcommand)]
enum HostAction {
    /// Let a host in.
    #[command(after_help = "Examples:\n  \
        azekura host add esx1 --iqn iqn.1998-01.com.vmware:esx1 --chap --volume vmfs-1 --volume vmfs-2\n  \
        azekura host add win2 --iqn iqn.1991-05.com.microsoft:win2 --chap-secret-file win2.secret --mutual\n  \
        azekura host add db7 --nqn \"$(cat /etc/nvme/hostnqn)\" --chap --volume db7")]
    Add(Box<AddArgs>),
    /// List all hosts that one may let in.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Remove a host: from then on it is refused, and its connections are closed.
    #[command(visible_alias = "rm")]
    Remove(RevokeArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    /// A name for people.
    name: String,
    /// What its iSCSI initiator is called; with open-iscsi: /etc/iscsi/initiatorname.iscsi.
    #[arg(long, value_name = "IQN", required_unless_present = "nqn", conflicts_with = "nqn")]
    iqn: Option<String>,
    /// What it is called over NVMe; with Linux: /etc/nvme/hostnqn.
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,
    /// It may use this volume and its snapshots alone, also what comes to have the name; may be given several times.
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// It proves by CHAP, or over NVMe by DH-HMAC-CHAP, that it knows a secret, which is made and printed once.
    #[arg(long, conflicts_with = "chap_secret_file")]
    chap: bool,
    /// The same, with the secret in this file: 12 to 255 bytes, and many initiators take at most 16; for NVMe what nvme
    /// gen-dhchap-key makes.
    #[arg(long, value_name = "FILE")]
    chap_secret_file: Option<PathBuf>,
    /// Its name for CHAP [default: its iSCSI name].
    #[arg(long, value_name = "USER", conflicts_with = "nqn")]
    chap_user: Option<String>,
    /// The target proves another secret to it, if it asks for that; which is made and printed once.
    #[arg(long, conflicts_with = "mutual_secret_file")]
    mutual: bool,
    /// The same, with the secret in this file.
    #[arg(long, value_name = "FILE")]
    mutual_secret_file: Option<PathBuf>,
    /// The target's name for CHAP [default: azekura].
    #[arg(long, value_name = "USER", conflicts_with = "nqn")]
    mutual_user: Option<String>,
    /// The project that it is about [default: one's own, or 'default'].
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// When it ends: 12h, 90d [default: when it is removed].
    #[arg(long, value_name = "TIME", visible_alias = "for")]
    ends_after: Option<Period>,
    #[command(flatten)]
    api: ApiArgs,
}

/// The name, which is to be one of the protocol that its option says.
fn host(iqn: Option<String>, nqn: Option<String>) -> Result<String, CliError> {
    let wrong = |option: &str, name: &str, begins: &str| {
        Err(CliError::new(format!("--{option} '{name}': such a name begins with {begins}")))
    };
    match (iqn, nqn) {
        (Some(name), _) if name.starts_with("nqn.") => wrong("iqn", &name, "'iqn.', 'eui.' or 'naa.'; is it --nqn?"),
        (Some(name), _) => Ok(name),
        (None, Some(name)) if !name.starts_with("nqn.") => wrong("nqn", &name, "'nqn.'; is it --iqn?"),
        (None, name) => Ok(name.unwrap_or_default()),
    }
}

/// What is to be proved, by the options that begin with `--{which}`.
fn proof(which: &str, made: bool, file: Option<PathBuf>, user: Option<String>) -> Result<Option<CreateChap>, CliError> {
    let secret = match file {
        Some(path) => Some(read_secret(&path)?),
        None if made => None,
        None if user.is_some() => {
            return Err(CliError::new(format!(
                "--{which}-user says whose secret it is: --{which}, or --{which}-secret-file"
            )));
        }
        None => return Ok(None),
    };
    Ok(Some(CreateChap { user, secret }))
}

/// The secret in a file, without the end of its line.
fn read_secret(path: &Path) -> Result<String, CliError> {
    let unusable = |why: String| CliError::new(format!("{}: {why}", path.display()));
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| unusable(error.to_string()))?;
    let secret = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if secret.len() > CHAP_MAX || secret.contains('\n') {
        return Err(unusable(format!("a secret is one line of at most {CHAP_MAX} bytes")));
    }
    Ok(secret.to_owned())
}

/// What people are told of a host that is let in: secrets that were made are told this once.
fn told(made: &HostCreated) -> String {
    let HostCreated { grant, chap, mutual } = made;
    let host = grant.host.as_ref().map(|host| host.name.as_str()).unwrap_or_default();
    let mut text = format!("{host} is let in as {}\n", grant.name);
    for (whose, proof) in [("the host's", chap), ("the target's", mutual)] {
        let Some(ChapCreated { user, secret }) = proof else { continue };
        if !host.starts_with("nqn.") {
            text.push_str(&format!("{whose} name for CHAP: {}\n", user));
        }
        if let Some(secret) = secret {
            text.push_str(&format!("{whose} secret, told this once: {secret}\n"));
        }
    }
    if chap.is_none() {
        text.push_str("it proves nothing: whoever reaches the port can give himself this name\n");
    }
    text
}

impl AddArgs {
    fn run(self) -> Result<ExitCode, CliError> {
        let AddArgs { name, iqn, nqn, volumes, ends_after, api, .. } = self;
        let chap = proof("chap", self.chap, self.chap_secret_file, self.chap_user)?;
        let mutual = proof("mutual", self.mutual, self.mutual_secret_file, self.mutual_user)?;
        let body = CreateHost {
            name,
            host: host(iqn, nqn)?,
            volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
            chap,
            mutual,
            project: self.project,
            ends_after_seconds: ends_after.map(|Period(seconds)| seconds),
        };
        let made = api.client()?.send::<HostCreate>([], &body)?;
        if api.json { print_json(&made) } else { print(&told(&made)) }
    }
}

impl HostCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            HostAction::Add(arguments) => arguments.run(),
            HostAction::List(api) => {
                let mut grants = api.client()?.ask::<GrantList>([], &NoQuery {})?;
                grants.retain(|grant| grant.proof == GrantProof::Host);
                if api.json { print_json(&grants) } else { print(&table(&grants)) }
            }
            HostAction::Remove(arguments) => arguments.run(),
        }
    }
}

fn table(grants: &[GrantView]) -> String {
    let columns = ["NAME", "HOST", "PROVES", "VOLUMES", "ENDS", "CREATED", "BY"].map(|title| (title, Align::Left));
    let mut table = Table::new(&columns);
    for grant in grants {
        let ends = grant.until.clone().unwrap_or_else(|| "never".to_owned());
        let volumes = grant.volumes.as_ref().map_or_else(|| "all".to_owned(), |names| names.join(", "));
        let (host, proves) = match &grant.host {
            None => (String::new(), "nothing"),
            Some(host) => (
                host.name.clone(),
                match (&host.chap_user, &host.mutual_user) {
                    (None, _) => "nothing",
                    (Some(_), None) => "CHAP",
                    (Some(_), Some(_)) => "CHAP, mutual",
                },
            ),
        };
        table.row(vec![
            name_of(grant),
            host,
            proves.to_owned(),
            volumes,
            ends,
            grant.created.clone(),
            grant.by.clone(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::{HostView, Role};

    #[test]
    fn a_table_tells_which_host_uses_what() {
        let grant = GrantView {
            id: "063UfDVRKBz".into(),
            name: "esx1".into(),
            role: Role::User,
            proof: GrantProof::Host,
            key: None,
            project: "default".into(),
            volumes: Some(vec!["a".into(), "b".into()]),
            host: Some(HostView {
                name: "iqn.1998-01.com.vmware:esx1".into(),
                chap_user: Some("me".into()),
                mutual_user: None,
            }),
            until: None,
            created: "2026-11-26T10:00:00Z".into(),
            by: "admin".into(),
        };
        let text = table(&[grant.clone(), GrantView { volumes: None, ..grant }]);
        assert!(
            text.contains("a, b") && text.contains("all") && text.contains("vmware:esx1") && text.contains("CHAP"),
            "{text}"
        );
    }

    #[test]
    fn a_secret_is_a_line_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for (text, secret) in [
            ("twelve bytes\n", Some("twelve bytes")),
            ("a b\r\n", Some("a b")),
            ("a\nb\n", None),
            (&"x".repeat(300), None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_secret(&path).ok().as_deref(), secret, "{text:?}");
        }
        assert!(read_secret(&folder.path().join("missing")).is_err());
        assert!(proof("chap", false, None, Some("me".into())).is_err());
        assert_eq!(proof("chap", false, None, None).unwrap(), None);
        assert_eq!(proof("chap", true, None, None).unwrap(), Some(CreateChap { user: None, secret: None }));
    }

    #[test]
    fn a_name_is_of_the_protocol_of_its_option() {
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(host(some("iqn.a"), None).unwrap(), "iqn.a");
        assert_eq!(host(None, some("nqn.a")).unwrap(), "nqn.a");
        assert!(host(some("nqn.a"), None).is_err() && host(None, some("iqn.a")).is_err());
    }
}
