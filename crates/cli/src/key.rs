//! `azekura key …`: whose certificates open what.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use azekura_api::endpoint::{GrantList, KeyCreate};
use azekura_api::{CreateKey, GrantProof, GrantView, KeyCreated, NoQuery, Period, Role};
use azekura_client::{NodeKey, key_of_pem};
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::token::{RevokeArgs, name_of, role};
use super::{ApiArgs, CliError};

/// The longest file with a certificate or a public key, bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// What libnbd, QEMU and nbdkit look for in a folder.
const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

/// Keys of clients: whose certificates open volumes over NBD with TLS, and ask the API over https://.
///
/// A key has a role, as a token has, and counts until it is revoked: of the certificate around it neither dates nor
/// issuer count. With --volume it is for clients of these volumes and their snapshots alone, and not for the API.
#[derive(Debug, Args)]
pub struct KeyCommand {
    #[command(subcommand)]
    command: KeyAction,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Make a key with a certificate, in a folder as libnbd and QEMU want it; the key is known to this machine alone.
    #[command(after_help = "Examples:\n  \
        azekura key new vm7 --volume vm7-root --volume vm7-data --out /etc/pki/vm7\n  \
        nbdinfo 'nbds://10.0.0.1:10809/vm7-root?tls-certificates=/etc/pki/vm7'\n  \
        qemu-img info --object tls-creds-x509,id=t,dir=/etc/pki/vm7,endpoint=client \\\n    \
        --image-opts driver=nbd,host=10.0.0.1,port=10809,export=vm7-root,tls-creds=t")]
    New(NewArgs),
    /// Let in a key that is there already.
    #[command(after_help = "Examples:\n  \
        azekura key add backup --role user --cert backup-cert.pem\n  \
        openssl pkey -in backup-key.pem -pubout | azekura key add backup --key /dev/stdin")]
    Add(AddArgs),
    /// List all keys that one may let in.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Revoke a key: from then on it opens nothing, and its clients' connections are closed.
    #[command(visible_alias = "rm")]
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
struct Granted {
    /// A name for people: who has it, or what for.
    name: String,
    /// What its owner may, as with tokens: 'user' opens volumes, 'operator' sees them.
    #[arg(long, value_parser = role, default_value = "user")]
    role: Role,
    /// It is for this volume and its snapshots alone, also for what comes to have the name; may be given several times.
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// The project that it is about [default: one's own, or 'default'].
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// When it ends: 12h, 90d [default: when it is revoked].
    #[arg(long, value_name = "TIME", visible_alias = "for")]
    ends_after: Option<Period>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct NewArgs {
    #[command(flatten)]
    granted: Granted,
    /// The folder for ca-cert.pem, client-cert.pem and client-key.pem; made with mode 0700 if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct AddArgs {
    #[command(flatten)]
    granted: Granted,
    /// A certificate with the key, in PEM.
    #[arg(long, value_name = "FILE", required_unless_present = "key", conflicts_with = "key")]
    cert: Option<PathBuf>,
    /// The public half of the key, in PEM.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

fn unusable(path: &Path, error: &impl std::fmt::Display) -> CliError {
    CliError::new(format!("{}: {error}", path.display()))
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), CliError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| unusable(path, &error))
}

/// What a file has of a key's public half.
fn read_key(path: &Path) -> Result<String, CliError> {
    let size = fs::metadata(path).map_or(0, |file| file.len());
    if size > FILE_BYTES_MAX {
        return Err(unusable(path, &"it is too long for a certificate or a key"));
    }
    let text = fs::read_to_string(path).map_err(|error| unusable(path, &error))?;
    let key = key_of_pem(&text).map_err(|error| {
        let told = unusable(path, &error);
        match text.contains("PRIVATE KEY") {
            true => told.hint(format!(
                "it has a private key, which goes nowhere; its public half: openssl pkey -in {} -pubout",
                path.display()
            )),
            false => told,
        }
    })?;
    Ok(key.to_string())
}

impl Granted {
    fn send(&self, key: String, point: Option<String>) -> Result<KeyCreated, CliError> {
        let body = CreateKey {
            name: self.name.clone(),
            role: self.role,
            key,
            point,
            volumes: Some(self.volumes.clone()).filter(|volumes| !volumes.is_empty()),
            project: self.project.clone(),
            ends_after_seconds: self.ends_after.map(|Period(seconds)| seconds),
        };
        Ok(self.api.client()?.send::<KeyCreate>([], &body)?)
    }

    fn told(&self, made: &KeyCreated, text: &str) -> Result<ExitCode, CliError> {
        if self.api.json { print_json(made) } else { print(text) }
    }
}

impl NewArgs {
    fn run(self) -> Result<ExitCode, CliError> {
        let NewArgs { granted, out } = self;
        let fault = |error| CliError::new(format!("can't make a key: {error}"));
        for file in [AUTHORITY, CERTIFICATE, KEY] {
            if out.join(file).exists() {
                return Err(unusable(&out.join(file), &"it is there already; name another folder, or move it away"));
            }
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&out).map_err(|error| unusable(&out, &error))?;
        let key = NodeKey::generate().map_err(|error| fault(error.to_string()))?;
        let point = key.point().map_err(|error| fault(error.to_string()))?;
        let name = key.name().map_err(|error| fault(error.to_string()))?;
        // Before anybody is let in by it.
        write_new(&out.join(KEY), 0o600, &key.to_pem())?;
        let digits = point.iter().map(|byte| format!("{byte:02x}")).collect();
        let made = granted.send(name.to_string(), Some(digits)).inspect_err(|_| {
            let _ = fs::remove_file(out.join(KEY));
        })?;
        write_new(&out.join(CERTIFICATE), 0o644, made.certificate.as_deref().unwrap_or_default())?;
        write_new(&out.join(AUTHORITY), 0o644, &made.authority)?;
        granted.told(&made, &format!("{} has a key and a certificate in {}\n", granted.name, out.display()))
    }
}

impl KeyCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            KeyAction::New(arguments) => arguments.run(),
            KeyAction::Add(AddArgs { granted, cert, key }) => {
                let path = cert.or(key).unwrap_or_default();
                let made = granted.send(read_key(&path)?, None)?;
                granted.told(&made, &format!("{} is let in by the key in {}\n", granted.name, path.display()))
            }
            KeyAction::List(api) => {
                let mut grants = api.client()?.ask::<GrantList>([], &NoQuery {})?;
                grants.retain(|grant| grant.proof == GrantProof::Key);
                if api.json { print_json(&grants) } else { print(&table(&grants)) }
            }
            KeyAction::Revoke(arguments) => arguments.run(),
        }
    }
}

fn table(grants: &[GrantView]) -> String {
    let columns = ["NAME", "ROLE", "VOLUMES", "ENDS", "CREATED", "BY", "KEY"].map(|title| (title, Align::Left));
    let mut table = Table::new(&columns);
    for grant in grants {
        let ends = grant.until.clone().unwrap_or_else(|| "never".to_owned());
        let volumes = grant.volumes.as_ref().map_or_else(|| "all".to_owned(), |names| names.join(", "));
        let key = grant.key.clone().unwrap_or_default();
        let (name, created, by) = (name_of(grant), grant.created.clone(), grant.by.clone());
        table.row(vec![name, grant.role.to_string(), volumes, ends, created, by, key]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_whose_key_opens_what() {
        let grant = GrantView {
            id: "063UfDVRKBz".into(),
            name: "vm7".into(),
            role: Role::User,
            proof: GrantProof::Key,
            key: Some("9f86".into()),
            project: "default".into(),
            volumes: Some(vec!["root".into(), "data".into()]),
            host: None,
            until: None,
            created: "2026-11-26T10:00:00Z".into(),
            by: "admin".into(),
        };
        let text = table(&[grant.clone(), GrantView { volumes: None, ..grant }]);
        assert!(text.contains("root, data") && text.contains("all") && text.contains("9f86"), "{text}");
    }
}
