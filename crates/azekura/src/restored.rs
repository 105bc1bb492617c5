//! `azekura cluster restored`: the way on after the configuration was restored from a backup.
//!
//! No node serves then, so this command asks the configuration server itself.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use azekura_base::DeviceId;
use azekura_cli::{CliError, print, print_json};
use azekura_meta::MetaClient;
use azekura_meta::client::Servers;
use azekura_meta::server::EmbeddedServer;
use azekura_model::MetaError;
use azekura_model::history::Copied;
use azekura_model::transitions::restored::{Restoration, RestoredSummary};
use azekura_server::{ConfigServerArgs, as_node, config_database, read_copy};
use clap::Args;

/// How long nodes that have ended may still be taken for alive: longer than their leases.
const ALIVE_WAIT: Duration = Duration::from_secs(15);

/// Go on with a configuration that was restored from a backup.
#[derive(Debug, Args)]
#[command(
    long_about = "Go on with a configuration that was restored from a backup, or make it anew from a node's copy.\n\n\
    Stop all nodes first. What changed after the backup is taken from the copies that nodes keep in their data folders: \
    name one or more with --data, that of the node that was stopped last if in doubt. Then start all nodes. Volumes are \
    served when all devices have said what they hold; 'azekura status' tells for which it waits.",
    after_help = "Examples:\n  \
        azekura cluster restored --config http://10.0.0.9:2379 --data /var/lib/azekura\n  \
        azekura cluster restored --data /var/lib/azekura      the node of this folder serves the configuration\n  \
        azekura cluster restored --config http://10.0.0.9:2379 --without 3\n                                              \
        nodes run, and device 3 does not come back"
)]
pub struct RestoredArgs {
    /// The configuration servers, separated by commas [default: the database in the data folder].
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', env = "AZEKURA_CONFIG")]
    config: Vec<String>,
    #[command(flatten)]
    config_servers: ConfigServerArgs,
    /// Where --config is a node's --serve-config that speaks TLS: the data folder of a node, whose key is shown.
    #[arg(long, value_name = "DIR", requires = "config")]
    as_node: Option<PathBuf>,
    /// A node's data folder, or a copy of its configuration.json in a folder. May be given several times. One of them
    /// has the database, unless --config names servers.
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Go on with what the backup has. Volumes, snapshots and devices that were added after it are not known any more.
    #[arg(long, conflicts_with = "data")]
    backup_only: bool,
    /// A device that does not come back, by its number. Writes that only it has are lost. May be given several times.
    #[arg(long, value_name = "DEVICE")]
    without: Vec<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl RestoredArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| CliError::new(format!("can't start a thread: {error}")))?;
        runtime.block_on(self.go())
    }

    async fn go(&self) -> Result<ExitCode, CliError> {
        let mut copies = Vec::new();
        for folder in &self.data {
            copies.extend(self.copy_in(folder)?);
        }
        if let (Some(folder), []) = (self.data.first(), &copies[..]) {
            return Err(no_copy(folder));
        }
        let server = if self.config.is_empty() { Some(self.serve().await?) } else { None };
        let servers = match &server {
            Some(server) => vec![format!("http://{}", server.address())].into(),
            None => self.servers()?,
        };
        let outcome = self.restore(servers, copies).await;
        if let Some(server) = server {
            server.stop().await;
        }
        outcome
    }

    /// The servers of `--config`.
    fn servers(&self) -> Result<Servers, CliError> {
        let servers = self.config_servers.servers(self.config.clone());
        match &self.as_node {
            Some(folder) => as_node(folder, servers, self.config_servers.config_fingerprint)
                .map_err(|error| CliError::new(format!("{error:#}"))),
            None => Ok(servers),
        }
    }

    /// Serves the database of the one data folder that has one.
    async fn serve(&self) -> Result<EmbeddedServer, CliError> {
        let database = self.data.iter().map(|folder| config_database(folder)).find(|path| path.exists());
        let database = database.ok_or_else(|| {
            CliError::new("which configuration was restored?")
                .hint("name its servers with --config, or the data folder of the node that serves it with --data")
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        EmbeddedServer::start(&database, address)
            .await
            .map_err(|error| CliError::new(format!("{:#}", anyhow::Error::new(error))).hint("stop the node first"))
    }

    async fn restore(&self, servers: Servers, copies: Vec<Copied>) -> Result<ExitCode, CliError> {
        let client = MetaClient::connect(servers).await.map_err(failed)?;
        let without: BTreeSet<DeviceId> = self.without.iter().copied().map(DeviceId).collect();
        self.check_devices(&client, &without)?;
        if self.data.is_empty() && !self.backup_only {
            if without.is_empty() {
                return Err(CliError::new("whose copy is to complete the backup?")
                    .hint("name the data folder of a node with --data; --backup-only goes on without any"));
            }
            return self.excuse(&client, &without).await;
        }
        let mut models = client.watch_model();
        let ended = tokio::time::timeout(ALIVE_WAIT, models.wait_for(|model| model.alive.is_empty())).await;
        drop(ended); // Who is alive still is named below.
        let summary = client.declare_restored(&Restoration { copies, without }).await.map_err(failed)?;
        if self.json { print_json(&json(&summary)) } else { print(&describe(&summary)) }
    }

    /// Groups that are closed need not wait for these devices.
    async fn excuse(&self, client: &MetaClient, without: &BTreeSet<DeviceId>) -> Result<ExitCode, CliError> {
        let model = client.model();
        let restored = model.cluster.as_ref().and_then(|cluster| cluster.restored.as_ref());
        if restored.is_none_or(|restored| restored.under_way) {
            return Err(CliError::new("no group waits for a device: --without alone is for after a restore")
                .hint("name a data folder with --data, too"));
        }
        client.open_without(without).await.map_err(failed)?;
        let names: Vec<String> = without.iter().map(ToString::to_string).collect();
        print(&format!("Nobody waits for what these devices hold: {}.\n", names.join(", ")))
    }

    /// The copy in a folder. One that is named for its database need not have any.
    fn copy_in(&self, folder: &Path) -> Result<Option<Copied>, CliError> {
        let copy = read_copy(folder).map_err(|error| CliError::new(format!("{error:#}")))?;
        let is_served = self.config.is_empty() && config_database(folder).exists();
        if copy.is_none() && !is_served { Err(no_copy(folder)) } else { Ok(copy) }
    }

    fn check_devices(&self, client: &MetaClient, without: &BTreeSet<DeviceId>) -> Result<(), CliError> {
        let model = client.model();
        let known = |device: &&DeviceId| model.cluster.is_none() || model.devices.contains_key(device);
        match without.iter().find(|device| !known(device)) {
            Some(device) if self.data.is_empty() => Err(CliError::new(format!("there is no device {device}"))
                .hint("--without takes a device's number; 'azekura device list' shows them")),
            _ => Ok(()),
        }
    }
}

fn no_copy(folder: &Path) -> CliError {
    let what = format!("{} has no configuration.json", folder.display());
    CliError::new(what)
        .hint("name a node's data folder, or one with a copy of that file; --backup-only goes on without any")
}

fn failed(error: MetaError) -> CliError {
    let failed = CliError::new(error.to_string());
    match error.hint() {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

fn json(summary: &RestoredSummary) -> serde_json::Value {
    let seen = summary.seen.iter().map(|(node, revision)| serde_json::json!({ "node": node, "revision": revision }));
    serde_json::json!({
        "life": summary.life,
        "revision": summary.revision,
        "copy_revision": summary.copy_revision,
        "groups": summary.groups,
        "kept": summary.kept,
        "removed": summary.removed,
        "seen": seen.collect::<Vec<_>>(),
    })
}

fn describe(summary: &RestoredSummary) -> String {
    let mut text = match summary.copy_revision {
        Some(copy) => format!(
            "The configuration of revision {} was completed from a copy of revision {copy}.\n",
            summary.revision
        ),
        None => format!("The configuration of revision {} is used as it is.\n", summary.revision),
    };
    for (node, revision) in &summary.seen {
        if summary.copy_revision.unwrap_or(summary.revision) < *revision {
            text += &format!(
                "warning: node {node} has seen revision {revision}; if its copy is newer, run this again with its data folder\n"
            );
        }
    }
    for name in &summary.kept {
        text += &format!("kept, although it may have been deleted: {name}\n");
    }
    for name in &summary.removed {
        text += &format!("removed, because its number was given twice: {name}\n");
    }
    text + &format!(
        "{} placement groups open when all devices have said what they hold. Start all nodes; 'azekura status' tells how far \
         it is.\n",
        summary.groups
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_have_seen_more_are_named() {
        let seen = vec![("n1".to_owned(), 120), ("n2".to_owned(), 90)];
        let summary =
            RestoredSummary { revision: 80, copy_revision: Some(100), groups: 64, seen, ..RestoredSummary::default() };
        let text = describe(&summary);
        assert!(text.contains("node n1 has seen revision 120") && !text.contains("node n2"), "{text}");
        assert!(text.starts_with("The configuration of revision 80 was completed from a copy of revision 100."));
    }
}
