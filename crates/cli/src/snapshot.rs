//! `azekura snapshot …`, and what `azekura volume …` does with snapshots.

use std::process::ExitCode;

use azekura_api::endpoint::{
    SnapshotCreate, SnapshotDelete, SnapshotList, SnapshotShow, VolumeClone, VolumeRevert, VolumeSnapshots,
};
use azekura_api::{CloneVolume, CreateSnapshots, NoQuery, RevertVolume, ShowSnapshot, SnapshotView, VolumeView};
use clap::{Args, Subcommand};

use super::diff::DiffArgs;
use super::endpoints;
use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};
use azekura_base::Size;

/// Longest time to measure what comes back, before a snapshot is deleted, milliseconds.
const DELETE_MEASURE_MS: u64 = 3_000;

/// Make, list, compare and delete snapshots, and take volumes back to them.
///
/// A snapshot is a volume as it was at one instant. It is made in milliseconds whatever the volume's size, also while
/// it is written, and takes space only as the volume changes. Every node serves it read-only under the name
/// VOLUME@SNAPSHOT.
#[derive(Debug, Args)]
pub struct SnapshotCommand {
    #[command(subcommand)]
    command: Snapshot,
}

#[derive(Debug, Subcommand)]
enum Snapshot {
    /// Make a snapshot of a volume, or of several at one instant.
    #[command(after_help = "Examples:\n  \
        azekura snapshot create vol1                    named by the time\n  \
        azekura snapshot create vol1@before-upgrade\n  \
        azekura snapshot create db@monday --with wal    both at the same instant\n\n\
        Every write that was acknowledged before this command is in it. What a client has in its own caches is not: a \
        file system on it is as after a crash, which ext4, xfs and databases are made for; 'fsfreeze' or 'sync' before \
        it makes it tidy.")]
    Create(CreateArgs),
    /// List a volume's snapshots, or all.
    #[command(
        visible_alias = "ls",
        after_help = "HOLDS counts every copy of what was written between the snapshot before and \
        this one and is still shown by it or by what came later, as the devices said some seconds ago. At most that much comes back when it is deleted: what \
        younger snapshots or the volume show stays with them. 'azekura snapshot show' measures how much it is; \
        'azekura space' has the sums."
    )]
    List(ListArgs),
    /// Show one snapshot, what would come back if it were deleted, and where clients open it read-only.
    #[command(after_help = "Example:\n  azekura snapshot show vol1@before-upgrade\n\n\
        HOLDS is explained by 'azekura snapshot list --help'. FREES is what comes back if it is deleted now, with every \
        copy: all devices look into their maps for it, and read no data. For a snapshot with very much in it that may take \
        longer than 15 s: then the figure is said to be too small. It is 0 while a clone and something else lie on the \
        snapshot: what both show, and what only the snapshot shows, comes back when one of them is gone as well.")]
    Show(NameArgs),
    /// Print what has changed from a snapshot to another one, or to now, as ranges of bytes: what an incremental copy
    /// has to read.
    #[command(after_help = "Examples:\n  \
        azekura snapshot diff vol1@monday vol1@tuesday\n  \
        azekura snapshot diff vol1@monday               from monday to now\n  \
        azekura snapshot diff vol1@monday vol1@tuesday --json | jq .ranges\n\n\
        Whoever has a copy of vol1@monday makes it one of vol1@tuesday by reading the ranges of kind 'data' from \
        vol1@tuesday, and writing zeros to those of kind 'zero'; a copy of another size is cut off or grown with zeros \
        first. Every block that differs is named; blocks that were written again with the same contents may be, too. No data \
        is read: it takes the longer the more was written between the two, however large the volume is.\n\n\
        The volume as it is now goes on changing: to know exactly what was copied, make a snapshot and compare with that. \
        The second may be of a clone of the first one's volume, or the other way round.")]
    Diff(DiffArgs),
    /// Delete snapshots. Nothing else changes: neither the volume, nor older or younger snapshots, nor clones.
    #[command(
        visible_alias = "rm",
        after_help = "Example:\n  azekura snapshot delete vol1@before-upgrade\n\n\
        The space that only it held comes back in the background; how much is said. Measuring that ahead takes 3 s at most."
    )]
    Delete(DeleteArgs),
    /// Take a volume back to a snapshot. What it is now is kept as a snapshot for a day.
    #[command(after_help = "Example:\n  azekura snapshot revert vol1@before-upgrade\n\n\
        Unmount the volume first: a mounted file system does not notice, and destroys what it finds. This is refused \
        while clients have the volume; --force cuts them off.")]
    Revert(RevertArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The volume, or VOLUME@NAME to give the snapshot a name.
    #[arg(value_name = "VOLUME[@NAME]")]
    what: Target,
    /// Another volume, at the same instant and with the same name; may be repeated.
    #[arg(long = "with", value_name = "VOLUME")]
    with: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The volume [default: all].
    volume: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The snapshot: VOLUME@NAME, or VOLUME@TIME for the newest that is not younger.
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    snapshot: Target,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// The snapshots, by name.
    #[arg(value_name = "VOLUME@SNAPSHOT", required = true)]
    snapshots: Vec<Target>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct RevertArgs {
    /// The snapshot: VOLUME@NAME, or VOLUME@TIME for the newest that is not younger.
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    snapshot: Target,
    /// Cut off clients that have the volume.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Arguments of `azekura volume revert`.
#[derive(Debug, Args)]
pub struct RevertVolumeArgs {
    /// Name of the volume.
    name: String,
    /// To what it was then (UTC): 14:03:20, 2026-01-31T14:03:20Z, "10 minutes ago"; or the name of a snapshot.
    #[arg(long, value_name = "TIME")]
    at: String,
    /// Cut off clients that have the volume.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Arguments of `azekura volume clone`.
#[derive(Debug, Args)]
pub struct CloneArgs {
    /// The volume as it is now, or VOLUME@SNAPSHOT, or VOLUME@TIME (UTC) for the newest snapshot that is not younger.
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    source: Target,
    /// Name of the new volume.
    name: String,
    /// Clients of several nodes may use it at once [default: as for the source].
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    rekey: RekeyArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Whether a clone of an encrypted volume gets another data key.
#[derive(Clone, Copy, Debug, Args)]
pub struct RekeyArgs {
    /// Give it a data key of its own: its blocks are encrypted anew in the background, and need as much space as the
    /// source's afterwards. Without this it has its source's key.
    #[arg(long)]
    rekey: bool,
}

/// `VOLUME` or `VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    volume: String,
    snapshot: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (volume, snapshot) = match text.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot.to_owned())),
            None => (text, None),
        };
        if volume.is_empty() || snapshot.as_ref().is_some_and(String::is_empty) {
            return Err(format!("'{text}' is not VOLUME@SNAPSHOT"));
        }
        Ok(Target { volume: volume.to_owned(), snapshot })
    }
}

impl Target {
    /// A volume as it is now.
    pub fn volume(name: &str) -> Target {
        Target { volume: name.to_owned(), snapshot: None }
    }

    /// The volume, and the snapshot if one is named.
    pub fn parts(&self) -> (&str, Option<&str>) {
        (&self.volume, self.snapshot.as_deref())
    }

    /// The snapshot, which has to be named.
    pub fn named(&self) -> Result<(&str, &str), CliError> {
        let snapshot = self.snapshot.as_deref().ok_or_else(|| {
            CliError::new(format!("which snapshot of volume '{}'?", self.volume))
                .hint(format!("name it as {0}@SNAPSHOT; 'azekura snapshot list {0}' shows them", self.volume))
        })?;
        Ok((&self.volume, snapshot))
    }

    /// The volume and the snapshot, as they stand in a path.
    pub fn names(&self) -> Result<[String; 2], CliError> {
        let (volume, snapshot) = self.named()?;
        Ok([volume.to_owned(), snapshot.to_owned()])
    }
}

impl SnapshotCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Snapshot::Create(arguments) => create(arguments),
            Snapshot::List(arguments) => list(&arguments),
            Snapshot::Show(arguments) => {
                let names = arguments.snapshot.names()?;
                let snapshot = arguments.api.client()?.ask::<SnapshotShow>(names, &ShowSnapshot::default())?;
                if arguments.api.json { print_json(&snapshot) } else { print(&describe(&snapshot)) }
            }
            Snapshot::Diff(arguments) => arguments.run(),
            Snapshot::Delete(arguments) => delete(&arguments),
            Snapshot::Revert(RevertArgs { snapshot, force, api }) => {
                let (volume, to) = snapshot.named()?;
                revert(volume, to, force, &api)
            }
        }
    }
}

fn full_name(snapshot: &SnapshotView) -> String {
    format!("{}@{}", snapshot.volume, snapshot.name)
}

fn create(arguments: CreateArgs) -> Result<ExitCode, CliError> {
    let CreateArgs { what: Target { volume, snapshot: name }, with, api } = arguments;
    if let Some(odd) = with.iter().find(|volume| volume.contains('@')) {
        return Err(CliError::new(format!("'--with {odd}' is not a volume")).hint("all get the same snapshot name"));
    }
    let volumes = std::iter::once(volume).chain(with).collect();
    let made = api.client()?.send::<SnapshotCreate>([], &CreateSnapshots { volumes, name })?;
    if api.json {
        return print_json(&made);
    }
    let lines = made.iter().map(|snapshot| format!("Snapshot {} is made.\n", full_name(snapshot)));
    print(&lines.collect::<String>())
}

fn list(arguments: &ListArgs) -> Result<ExitCode, CliError> {
    let client = arguments.api.client()?;
    let snapshots = match &arguments.volume {
        Some(volume) => client.ask_all::<VolumeSnapshots, _>([volume.clone()])?,
        None => client.ask_all::<SnapshotList, _>([])?,
    };
    if arguments.api.json {
        return print_json(&snapshots);
    }
    if snapshots.is_empty() {
        return print("There are no snapshots. 'azekura snapshot create VOLUME' makes one.\n");
    }
    print(&table(&snapshots))
}

fn table(snapshots: &[SnapshotView]) -> String {
    let mut table = Table::new(&[
        ("SNAPSHOT", Align::Left),
        ("SIZE", Align::Right),
        ("HOLDS", Align::Right),
        ("CREATED", Align::Left),
        ("BY", Align::Left),
        ("EXPIRES", Align::Left),
    ]);
    for snapshot in snapshots {
        table.row(vec![
            full_name(snapshot),
            Size::new(snapshot.size_bytes).to_string(),
            Size::new(snapshot.held_bytes).to_string(),
            snapshot.created.clone(),
            snapshot.origin.to_string(),
            snapshot.expires.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

fn describe(snapshot: &SnapshotView) -> String {
    let frees = snapshot.freed_bytes.map_or_else(String::new, |bytes| {
        format!("  frees    {} if it is deleted\n", freed(bytes, &snapshot.freed_missing))
    });
    let mut text = format!(
        "  snapshot {}\n  size     {} ({} bytes)\n  holds    {}\n{frees}  created  {} by {}\n",
        full_name(snapshot),
        Size::new(snapshot.size_bytes),
        snapshot.size_bytes,
        Size::new(snapshot.held_bytes),
        snapshot.created,
        snapshot.origin
    );
    if let Some(expires) = &snapshot.expires {
        text += &format!("  expires  {expires}\n");
    }
    if !snapshot.clones.is_empty() {
        text += &format!("  clones   {}\n", snapshot.clones.join(", "));
    }
    text + &endpoints::lines(&snapshot.endpoints)
}

/// What comes back, as people read it.
fn freed(bytes: u64, missing: &[String]) -> String {
    let size = Size::new(bytes);
    if missing.is_empty() { size.to_string() } else { format!("at least {size} ({})", missing.join("; ")) }
}

fn delete(arguments: &DeleteArgs) -> Result<ExitCode, CliError> {
    let client = arguments.api.client()?;
    let measure = |measure_ms| ShowSnapshot { measure_ms: Some(measure_ms) };
    // All of them are there, or none is deleted.
    for target in &arguments.snapshots {
        client.ask::<SnapshotShow>(target.names()?, &measure(0))?;
    }
    let mut deleted = Vec::new();
    for target in &arguments.snapshots {
        let (volume, snapshot) = target.named()?;
        // If it can't be measured, it is deleted all the same.
        let measured = client.ask::<SnapshotShow>(target.names()?, &measure(DELETE_MEASURE_MS)).ok();
        if let Err(error) = client.ask::<SnapshotDelete>(target.names()?, &NoQuery {}) {
            let error = CliError::from(error);
            let names: Vec<&str> = deleted.iter().map(|(name, _): &(String, _)| name.as_str()).collect();
            return Err(if names.is_empty() { error } else { error.after(&format!("deleted: {}", names.join(", "))) });
        }
        deleted.push((format!("{volume}@{snapshot}"), measured));
    }
    if arguments.api.json {
        let names: Vec<&String> = deleted.iter().map(|(name, _)| name).collect();
        let all = |view: &SnapshotView| view.freed_bytes.filter(|_| view.freed_missing.is_empty());
        let freed: Vec<Option<u64>> = deleted.iter().map(|(_, view)| view.as_ref().and_then(all)).collect();
        return print_json(&serde_json::json!({ "deleted": names, "freed_bytes": freed }));
    }
    let line = |(name, view): &(String, Option<SnapshotView>)| match view {
        Some(SnapshotView { freed_bytes: Some(0), freed_missing, .. }) if freed_missing.is_empty() => {
            format!("Snapshot {name} is deleted; all that it held is still needed.\n")
        }
        Some(SnapshotView { freed_bytes: Some(bytes), freed_missing, .. }) => {
            let comes = freed(*bytes, freed_missing);
            format!("Snapshot {name} is deleted; {comes} will come back in the background.\n")
        }
        _ => format!("Snapshot {name} is deleted.\n"),
    };
    print(&deleted.iter().map(line).collect::<String>())
}

fn revert(volume: &str, to: &str, force: bool, api: &ApiArgs) -> Result<ExitCode, CliError> {
    let body = RevertVolume { to: to.to_owned(), force };
    let done = api.client()?.send::<VolumeRevert>([volume.to_owned()], &body)?;
    if api.json {
        return print_json(&done);
    }
    print(&format!(
        "Volume {volume} is what it was at {} (snapshot {}).\nWhat it was until now is {}, kept until {}.\n",
        done.to.created,
        full_name(&done.to),
        full_name(&done.kept),
        done.kept.expires.as_deref().unwrap_or("it is deleted")
    ))
}

/// Runs `azekura volume revert`.
pub fn revert_volume(arguments: &RevertVolumeArgs) -> Result<ExitCode, CliError> {
    revert(&arguments.name, &arguments.at, arguments.force, &arguments.api)
}

/// Makes a volume from a snapshot, or from another volume's present.
pub fn clone_from(
    source: Target,
    name: &str,
    size: Option<Size>,
    shared: bool,
    RekeyArgs { rekey }: RekeyArgs,
    api: &ApiArgs,
) -> Result<VolumeView, CliError> {
    let body = CloneVolume {
        name: name.to_owned(),
        from: source.snapshot,
        size_bytes: size.map(Size::bytes),
        shared: shared.then_some(true),
        rekey,
        secret: None,
    };
    Ok(api.client()?.send::<VolumeClone>([source.volume], &body)?)
}

/// Runs `azekura volume clone`.
pub fn clone_volume(arguments: CloneArgs) -> Result<ExitCode, CliError> {
    let CloneArgs { source, name, shared, rekey, api } = arguments;
    let made = clone_from(source, &name, None, shared, rekey, &api)?;
    if api.json {
        return print_json(&made);
    }
    let of = made.source.as_deref().unwrap_or("the source");
    let key = if rekey.rekey {
        format!("Its blocks get a data key of their own in the background: azekura volume key {}\n", made.name)
    } else {
        String::new()
    };
    print(&format!("Volume {} is made from {of}; it does not need its source any more.\n{key}", made.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let target: Target = "vol1@10 minutes ago".parse().unwrap();
        assert_eq!(target.names().unwrap(), ["vol1", "10 minutes ago"]);
        let bare: Target = "vol1".parse().unwrap();
        assert!(bare.names().unwrap_err().to_string().contains("vol1@SNAPSHOT"));
        for bad in ["", "@", "@x", "v@"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
