//! `azekura csi orphans`: volumes, snapshots and attachments that the driver has made and that nobody in Kubernetes
//! owns any more, and their end where that is asked for (docs/csi.md).
//!
//! - `found` says what nobody owns: pure, from what the cluster has and what Kubernetes knows.
//! - `owners` is what Kubernetes knows, and `kubernetes` asks for it.
//!
//! The cluster is looked at first: what is made meanwhile is not looked at at all. In doubt somebody owns what is
//! there.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use azekura_api::Period;
use azekura_base::Size;
use clap::Args;
use serde::Serialize;
use tonic::Status;

use crate::Outcome;
use crate::cluster::Cluster;
use crate::controller::Controller;
use crate::error::CsiError;
use crate::proto::{ControllerUnpublishVolumeRequest, DeleteVolumeRequest};

mod found;
mod kubernetes;
mod owners;

use found::{Found, Kind, Look, Orphan};
use kubernetes::{Access, Kubernetes};

/// Options of `azekura csi orphans`, besides those that say whom to ask.
#[derive(Debug, Args)]
pub(crate) struct OrphansArgs {
    /// Where Kubernetes is: https://HOST:PORT with --kubernetes-ca and --kubernetes-token-file, or
    /// http://127.0.0.1:8001 beside 'kubectl proxy' [default: in a pod, the Kubernetes that it runs in].
    #[arg(long, value_name = "URL")]
    kubernetes: Option<String>,
    /// A file with a token of Kubernetes [default: in a pod, that of its account].
    #[arg(long, value_name = "FILE")]
    kubernetes_token_file: Option<PathBuf>,
    /// A file with the certificates of the authorities that sign Kubernetes' own [default: in a pod, its].
    #[arg(long, value_name = "FILE")]
    kubernetes_ca: Option<PathBuf>,
    /// Look only at volumes of this project ('default': those without one).
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// What is younger is shown, and stays.
    #[arg(long, value_name = "TIME", default_value = "1d")]
    older_than: Period,
    /// What stands before the identity of a claim in names of volumes: external-provisioner's --volume-name-prefix.
    #[arg(long, value_name = "WORD", default_value = "pvc")]
    volume_prefix: String,
    /// The same of snapshots: external-snapshotter's --snapshot-name-prefix.
    #[arg(long, value_name = "WORD", default_value = "snapshot")]
    snapshot_prefix: String,
    /// Delete what is found, if nothing speaks against it. Needs --project or --only-kubernetes.
    #[arg(long)]
    delete: bool,
    /// No other Kubernetes keeps volumes in this Azekura cluster: its volumes would look like nobody's here.
    #[arg(long)]
    only_kubernetes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What has become of something that was to be deleted.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    orphan: Orphan,
    /// It is gone.
    deleted: bool,
    /// Why it is still there, where deleting it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// All that is printed.
#[derive(Debug, Serialize)]
struct Report {
    orphans: Vec<Shown>,
    /// What nothing can be said of.
    notes: Vec<String>,
}

fn failed(status: &Status, hint: &'static str) -> CsiError {
    CsiError { message: status.message().to_owned(), hint }
}

impl OrphansArgs {
    /// Looks, deletes if that is asked for, and prints.
    ///
    /// # Errors
    /// When the cluster or Kubernetes does not tell all, when deleting is not to be, or has failed.
    pub(crate) fn run(self, cluster: Cluster, driver: &str) -> Result<(), CsiError> {
        self.check()?;
        let access = Access {
            url: self.kubernetes.clone(),
            token: self.kubernetes_token_file.clone(),
            authorities: self.kubernetes_ca.clone(),
        };
        let kubernetes = Kubernetes::new(&access)?;
        let hint = "name a node with --api, and a token with --token-file";
        let volumes = cluster.volumes().map_err(|status| failed(&status, hint))?;
        let snapshots = cluster.snapshots().map_err(|status| failed(&status, hint))?;
        let owners = kubernetes.owners(driver)?;
        let look = self.look();
        let Found { orphans, notes } = look.find(&volumes, &snapshots, &owners);
        if self.delete && !volumes.iter().any(|volume| owners.name_volume(&volume.name)) {
            return Err(CsiError {
                message: format!("Kubernetes has no PersistentVolume of '{driver}' whose volume is in this cluster"),
                hint: "is it the right Kubernetes, and the right --driver-name? Nothing was deleted; one volume can be \
                       deleted with 'azekura volume delete'",
            });
        }
        let controller = Controller::new(cluster);
        let ended = |orphan| if self.delete { end(&controller, orphan) } else { untouched(orphan) };
        let report = Report { orphans: orphans.into_iter().map(ended).collect(), notes };
        let text = if self.json { json(&report)? } else { report.text(self.delete) };
        print(&text)?;
        match report.orphans.iter().find_map(|shown| shown.error.as_ref()) {
            None => Ok(()),
            Some(first) => Err(CsiError {
                message: format!("not all could be deleted: {first}"),
                hint: "what is left is in the list; ask again when the reason is gone",
            }),
        }
    }

    fn check(&self) -> Result<(), CsiError> {
        if self.delete && self.project.is_none() && !self.only_kubernetes {
            return Err(CsiError {
                message: "whose volumes may be deleted? Another Kubernetes' volumes look like nobody's here".to_owned(),
                hint: "give --project NAME, if this Kubernetes has a project of its own, or --only-kubernetes, if no \
                       other one keeps volumes in this cluster",
            });
        }
        Ok(())
    }

    fn look(&self) -> Look {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Look {
            volume_prefix: self.volume_prefix.clone(),
            snapshot_prefix: self.snapshot_prefix.clone(),
            project: self.project.clone(),
            age_seconds: self.older_than.0,
            now,
        }
    }
}

fn untouched(orphan: Orphan) -> Shown {
    Shown { orphan, deleted: false, error: None }
}

/// Ends something by the calls that Kubernetes would make, which refuse what is used.
fn end(controller: &Controller, orphan: Orphan) -> Shown {
    if orphan.stays.is_some() {
        return untouched(orphan);
    }
    let outcome: Outcome<()> = match (orphan.kind, crate::names::parts(&orphan.name)) {
        (Kind::Attachment, _) => controller
            .controller_unpublish_volume(ControllerUnpublishVolumeRequest {
                volume_id: orphan.name.clone(),
                node_id: orphan.node.clone().unwrap_or_default(),
                ..ControllerUnpublishVolumeRequest::default()
            })
            .map(drop),
        (Kind::Snapshot, Some((volume, name))) => controller.remove_snapshot(volume, name),
        (Kind::Snapshot, None) => Err(Status::internal("a snapshot without a volume")),
        (Kind::Volume, _) => controller
            .delete_volume(DeleteVolumeRequest { volume_id: orphan.name.clone(), ..DeleteVolumeRequest::default() })
            .map(drop),
    };
    let error = outcome.err().map(|status| status.message().to_owned());
    Shown { orphan, deleted: error.is_none(), error }
}

fn json(report: &Report) -> Result<String, CsiError> {
    let text = serde_json::to_string_pretty(report);
    let text = text.map_err(|error| CsiError { message: error.to_string(), hint: "ask without --json" })?;
    Ok(format!("{text}\n"))
}

impl Report {
    /// A line for each, as people read them.
    fn text(&self, delete: bool) -> String {
        let mut text = String::new();
        let mut may_go = 0;
        for Shown { orphan, deleted, error } in &self.orphans {
            let what = match (orphan.kind, orphan.size_bytes, &orphan.node) {
                (Kind::Attachment, _, Some(node)) => format!("attachment {} to {node}", orphan.name),
                (Kind::Attachment, _, None) => format!("attachment {}", orphan.name),
                (Kind::Snapshot, Some(size), _) => format!("snapshot {} ({})", orphan.name, Size::new(size)),
                (Kind::Volume, Some(size), _) => format!("volume {} ({})", orphan.name, Size::new(size)),
                (Kind::Snapshot, None, _) => format!("snapshot {}", orphan.name),
                (Kind::Volume, None, _) => format!("volume {}", orphan.name),
            };
            let fate = match (deleted, error, &orphan.stays) {
                (true, _, _) => "deleted".to_owned(),
                (false, Some(error), _) => format!("NOT DELETED: {error}"),
                (false, None, Some(stays)) => format!("stays: {stays}"),
                (false, None, None) => {
                    may_go += 1;
                    "nobody's".to_owned()
                }
            };
            text.push_str(&format!("{what}, since {}: {fate}\n", orphan.since));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        if self.orphans.is_empty() {
            text.push_str("Nothing is left over.\n");
        } else if may_go > 0 && !delete {
            text.push_str(&format!("{may_go} can be deleted: --delete (docs/csi.md)\n"));
        }
        text
    }
}

/// Prints. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<(), CsiError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CsiError {
            message: format!("can't write to standard output: {error}"),
            hint: "is what reads it still there?",
        }),
        _ => Ok(()),
    }
}
