//! `azekura store rebuild-map`: a device whose map is damaged or gone gets one that is made from its log.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::store::lock_soon;

use azekura_base::{DeviceId, LayerId, PgId, Size};
use azekura_cli::{CliError, Progress, print, print_json};
use azekura_map_db::CheckpointDb;
use azekura_model::history::Copied;
use azekura_model::{DeviceView, Key};
use azekura_server::{DeviceDir, LogFile, put_file, read_copy, read_layers};
use azekura_store::{Identity, Inspector, KnownLayers, Rebuild, RebuildReport, RebuildSettings, RebuildStep, SavedMap};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The map that is being written. One that was begun and not ended is written anew.
const NEW: &str = "map.redb.rebuilding";
/// The map as nodes read it.
const MAP: &str = "map.redb";
/// Former maps that are kept, at most.
const KEPT_MAX: u32 = 1000;
/// What takes no longer needs no word.
const SILENT: Duration = Duration::from_secs(2);

/// Make the map of a device anew from its log, when the map is damaged or gone.
#[derive(Debug, Args)]
#[command(
    long_about = "Make the map of a device anew from its log, when the map is damaged or gone.\n\n\
    The map says where each block of the device is; it is a file in the node's data folder. Without it the device is out \
    of service, although all of its blocks are there. Stop the node, or leave it running while the device is out of \
    service. This command reads the headers of the log, some 2 % of the device, and writes a new map. The old one stays \
    beside it, as map.redb.damaged-1.\n\n\
    The log does not remember everything: what was trimmed or overwritten long ago may show again in the new map. So no \
    copy on this device is served as it is. When the node starts, each is compared with another copy of its group, and \
    only blocks that differ are sent.\n\n\
    Where this device has the only copy in sync of a group, there is nothing to compare it with: the group is not served. \
    --accept-possibly-old lets it be served as the log shows it.",
    after_help = "Examples:\n  \
        azekura store rebuild-map /var/lib/azekura/device-0 --dry-run      what would come of it\n  \
        azekura store rebuild-map /var/lib/azekura/device-0\n  \
        azekura store rebuild-map /var/lib/azekura/device-0 --accept-possibly-old\n                                              \
        and the last copies of groups are served as they are"
)]
pub struct RebuildMapArgs {
    /// The device's folder: DATA/device-0 of a node's data folder.
    dir: PathBuf,
    /// Read the log and say what its map would be; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Serve copies without comparing them where this device has the only one in sync; with =all, also where others
    /// are in sync by the configuration, and none of them will come back. Blocks that were trimmed or overwritten may
    /// come back, as they were then.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "last")]
    accept_possibly_old: Option<Accept>,
    /// Make a new map although the present one can be opened.
    #[arg(long)]
    anyway: bool,
    /// The data folder whose copy of the configuration says which layers and groups there are [default: the folder
    /// that the device's is in].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Memory for what the log says of blocks. With less than some 130 bytes for each block that was written alone, the
    /// log is read several times.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Size,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Which copies are served without being compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Accept {
    /// Those that are the only ones in sync.
    Last,
    /// All.
    All,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    report: RebuildReport,
    /// Groups whose only copy in sync is on this device, and that are not accepted.
    last_copies: Vec<PgId>,
    /// Nothing was written.
    dry_run: bool,
    /// Where the former map is kept.
    former_map: Option<PathBuf>,
}

impl RebuildMapArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let dir = DeviceDir::open(&self.dir).map_err(|error| {
            CliError::new(format!("{error:#}"))
                .hint("give the folder of a device: DATA/device-0 of a node's data folder")
        })?;
        let log = lock_log(&self.dir)?;
        let device = self.check_identity(&dir, &log)?;
        self.check_need()?;
        let known = self.known(device)?;
        let accepted = match self.accept_possibly_old {
            None => BTreeSet::new(),
            Some(Accept::Last) => known.last.clone(),
            Some(Accept::All) => known.groups.clone(),
        };
        let DeviceView { living, parents, merging, newest, groups, last } = known;
        let settings = RebuildSettings {
            layers: KnownLayers { living, parents, merging, newest },
            groups,
            accepted,
            segments_ready: dir.file.segments_ready,
            memory_bytes: self.memory.bytes(),
        };
        let mut progress = Telling::new();
        let failed = |error: &dyn std::fmt::Display| CliError::new(format!("{}: {error}", self.dir.display()));
        let mut rebuild = Rebuild::new(log, &settings, &mut |step, done, all| progress.tell(step, done, all))
            .map_err(|e| failed(&e))?;
        let former_map = if self.dry_run { None } else { self.save(&mut rebuild, &mut progress)? };
        drop(progress);
        let report = rebuild.report();
        let last_copies = last.into_iter().filter(|pg| !report.accepted.contains(pg)).collect();
        let outcome = Outcome { report, last_copies, dry_run: self.dry_run, former_map };
        if self.json { print_json(&outcome) } else { print(&outcome.text()) }
    }

    /// The log is that of the device, and belongs to a cluster.
    fn check_identity(&self, dir: &DeviceDir, log: &LogFile) -> Result<DeviceId, CliError> {
        let wrong = |what: String| CliError::new(format!("{}: {what}", self.dir.display()));
        let read = log.0.try_clone().map_err(|error| wrong(error.to_string()))?;
        let Identity { cluster, device, instance } =
            Inspector::open(LogFile(read)).map_err(|error| wrong(error.to_string()))?.identity();
        let (uuid, of) = (format!("{cluster:032x}"), &dir.file);
        if of.instance != instance
            || of.id.is_some_and(|id| id != device)
            || of.cluster.as_ref().is_some_and(|c| *c != uuid)
        {
            return Err(wrong(format!(
                "its log is that of device {device} of cluster {uuid}, and device.json is another's"
            ))
            .hint("put back the device.json that belongs to the log"));
        }
        Ok(device)
    }

    /// Refuses where the map is there and can be opened: what is wrong in a part of it the node mends by itself.
    fn check_need(&self) -> Result<(), CliError> {
        let path = self.dir.join(MAP);
        if self.anyway || std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) || !path.exists() {
            return Ok(());
        }
        match CheckpointDb::open(&path).and_then(|map| map.root()) {
            Ok(Some(_)) => Err(CliError::new(format!("the map {} can be opened: nothing was changed", path.display()))
                .hint(
                    "what is damaged in a part of a map its node mends by itself; 'azekura store check' names what \
                     differs, and --anyway makes a new map all the same",
                )),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    fn known(&self, device: DeviceId) -> Result<DeviceView, CliError> {
        let above = self.dir.canonicalize().ok().and_then(|dir| dir.parent().map(Path::to_path_buf));
        let folder = self.data.clone().or(above).unwrap_or_else(|| PathBuf::from("."));
        let copy = read_copy(&folder).map_err(|error| CliError::new(format!("{error:#}")).hint(WHERE_FROM))?;
        let copy = copy.ok_or_else(|| {
            CliError::new(format!("there is no configuration.json in {}", folder.display())).hint(WHERE_FROM)
        })?;
        let cluster = DeviceDir::open(&self.dir).ok().and_then(|dir| dir.file.cluster);
        if cluster.is_some_and(|cluster| cluster != copy.cluster) {
            return Err(CliError::new(format!("{} is of another cluster than the device", folder.display()))
                .hint("name the data folder of a node of the device's cluster with --data"));
        }
        let parents = read_layers(&self.dir).map_err(|error| {
            CliError::new(format!("the layers of the device {} can't be read: {error}", self.dir.display()))
                .hint("start its node once, which writes them anew")
        })?;
        known(&copy, &parents, device)
            .map_err(|what| CliError::new(format!("{}: {what}", folder.display())).hint(WHERE_FROM))
    }

    /// Writes the map beside the present one, and puts it in that one's place. Gives where that is kept.
    fn save(&self, rebuild: &mut Rebuild<'_, LogFile>, progress: &mut Telling) -> Result<Option<PathBuf>, CliError> {
        let (new, map) = (self.dir.join(NEW), self.dir.join(MAP));
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            CliError::new(format!("can't {what} {}: {error}; the map is as it was", new.display()))
        };
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("remove", &error)),
            _ => {}
        }
        let written = CheckpointDb::open(&new)
            .and_then(|mut map| rebuild.save(&mut map, &mut |step, done, all| progress.tell(step, done, all)));
        if let Err(error) = written {
            // What was begun is of no use; if it stays, the next try removes it.
            let _ = std::fs::remove_file(&new);
            return Err(
                failed("write", &error.what()).hint("the map takes some 0.5 % of what the device holds, in its folder")
            );
        }
        own_as(&new, &self.dir.join("device.json")).map_err(|error| failed("give away", &error))?;
        let kept = keep(&map).map_err(|error| failed("keep the former map beside", &error))?;
        put_file(&new, &map).map_err(|error| failed("put into place", &error))?;
        Ok(kept)
    }
}

const WHERE_FROM: &str = "start the node once, which writes its copy of the configuration anew; or name the data folder \
                          of another node with --data";

/// The device's log, which no node has open.
fn lock_log(dir: &Path) -> Result<LogFile, CliError> {
    let path = dir.join("log");
    let file = File::open(&path).map_err(|error| CliError::new(format!("can't open {}: {error}", path.display())))?;
    lock_soon(&file, File::try_lock).map_err(|error| {
        CliError::new(format!("can't make a map for {}: {error}", dir.display()))
            .hint("a node has the device open, or another command looks into it; stop it first")
    })?;
    Ok(LogFile(file))
}

/// The file gets the owner of another one, and is for nobody else: the node may run as another user.
fn own_as(path: &Path, other: &Path) -> std::io::Result<()> {
    let owner = std::fs::metadata(other)?;
    let own = std::fs::metadata(path)?;
    if (own.uid(), own.gid()) != (owner.uid(), owner.gid()) {
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()))?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
}

/// Gives a file a second name, under which it stays when the first is given to another one.
fn keep(map: &Path) -> std::io::Result<Option<PathBuf>> {
    for number in 1..=KEPT_MAX {
        let kept = map.with_file_name(format!("{MAP}.damaged-{number}"));
        match std::fs::hard_link(map, &kept) {
            Ok(()) => return Ok(Some(kept)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::Error::other(format!("there are {KEPT_MAX} former maps already: remove some")))
}

/// What a copy of the configuration says.
fn known(copy: &Copied, parents: &[(LayerId, LayerId)], device: DeviceId) -> Result<DeviceView, String> {
    let mut view = DeviceView::default();
    for (name, key) in &copy.keys {
        let broken = |error: serde_json::Error| format!("the record {name} can't be read: {error}");
        let value = || key.value.clone();
        match Key::parse(name.as_bytes()) {
            Some(Key::Layer(_)) => view.add_layer(&serde_json::from_value(value()).map_err(broken)?),
            Some(Key::Counter("layers")) => view.add_next_layer(serde_json::from_value(value()).map_err(broken)?),
            Some(Key::Group(_)) => view.add_group(&serde_json::from_value(value()).map_err(broken)?, device),
            _ => {}
        }
    }
    // The device may have been told of layers that are younger than the copy.
    for (layer, parent) in parents.iter().filter(|(layer, _)| *layer > view.newest) {
        view.parents.insert(*layer, *parent);
    }
    Ok(view)
}

impl Outcome {
    fn text(&self) -> String {
        let RebuildReport { segments, segments_with_log, leaves, live_blocks, groups, .. } = self.report;
        let of = if self.dry_run { "the new map would have" } else { "the new map has" };
        let mut text = format!(
            "{segments_with_log} of {segments} segments hold log; {of} {leaves} leaves, {live_blocks} blocks, {groups} groups\n"
        );
        let mut note = |count: u64, what: &str| {
            if count > 0 {
                text.push_str(&format!("note: {count} {what}\n"));
            }
        };
        let report = &self.report;
        note(report.unreadable_blocks, "blocks of the log can't be read: what they said is missing");
        note(
            u64::from(report.segments_partial),
            "segments have no summary, as the last one of a log: their blocks are compared as if they were not there",
        );
        note(u64::from(report.segments_given_up), "segments were left out, so that there is room to write");
        note(report.writes_left_out, "writes were left out, of which the log does not show that they were committed");
        note(
            report.groups_unknown,
            "groups of the log have no copy here by the node's copy of the configuration: given up long ago, or younger \
             than that copy. Their blocks were left out; what is missing is sent",
        );
        note(report.ambiguous_blocks, "blocks may be older than the last that was written");
        note(
            report.accepted.len() as u64,
            "groups have their last copy here, and it counts as the log shows it: what was trimmed or overwritten may be back",
        );
        if !self.last_copies.is_empty() {
            let ids: Vec<String> = self.last_copies.iter().map(ToString::to_string).collect();
            text.push_str(&format!(
                "warning: the only copy in sync of {} groups is here ({}), and nothing can be compared with it: they are \
                 not served. With --accept-possibly-old they are, as the log shows them: blocks that were trimmed or \
                 overwritten may be back as they were\n",
                self.last_copies.len(),
                ids.join(", ")
            ));
        }
        match (&self.former_map, self.dry_run) {
            (_, true) => text.push_str("nothing was written\n"),
            (Some(kept), false) => text.push_str(&format!("the former map is kept as {}\n", kept.display())),
            (None, false) => {}
        }
        if !self.dry_run {
            text.push_str("start the node: its copies here are compared with the others, and are in sync after that\n");
        }
        text
    }
}

/// Tells how far it is, when it takes long.
struct Telling {
    begun: Instant,
    told: Instant,
    progress: Option<Progress>,
}

impl Telling {
    fn new() -> Telling {
        let now = Instant::now();
        Telling { begun: now, told: now, progress: None }
    }

    fn tell(&mut self, step: RebuildStep, done: u64, all: u64) {
        let now = Instant::now();
        if now - self.begun < SILENT || self.progress.is_some() && now - self.told < SILENT {
            return;
        }
        self.told = now;
        let what = match step {
            RebuildStep::Headers => "looking for segments",
            RebuildStep::Survey => "reading what the log says of groups and layers",
            RebuildStep::Blocks => "reading what the log says of blocks",
            RebuildStep::Save => "saving the map",
        };
        let percent = (done * 100).checked_div(all).unwrap_or(100);
        self.progress.get_or_insert_with(Progress::new).part(done, all, format!("{what}: {percent} %"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn copy(keys: &[(&str, serde_json::Value)]) -> Copied {
        let keys: serde_json::Map<String, serde_json::Value> = keys
            .iter()
            .map(|(name, value)| (format!("/azekura/v1/{name}"), json!({ "revision": 1, "value": value })))
            .collect();
        serde_json::from_value(json!({ "version": 1, "cluster": "c", "life": "l", "revision": 1, "keys": keys }))
            .unwrap()
    }

    fn layer(id: u64, parent: Option<u64>, state: &str, into: Option<u64>) -> serde_json::Value {
        json!({ "id": id, "volume": 1, "parent": parent, "state": state, "into": into })
    }

    fn group(id: u32, in_sync: &[u32], members: &[u32]) -> serde_json::Value {
        json!({ "id": id, "class": "c", "epoch": 1, "primary": 1, "in_sync": in_sync, "members": members })
    }

    #[test]
    fn what_the_configuration_says_of_a_device() {
        let copy = copy(&[
            ("layers/1", layer(1, None, "merging", Some(3))),
            ("layers/3", layer(3, Some(1), "frozen", None)),
            ("layers/4", layer(4, Some(3), "head", None)),
            ("layers/5", layer(5, None, "deleted", None)),
            ("layers/3/dropped/7", json!({})),
            ("counters/layers", json!(9)),
            ("groups/1", group(1, &[7], &[7, 8])),
            ("groups/2", group(2, &[7, 8], &[7, 8])),
            ("groups/3", group(3, &[8], &[8, 7])),
            ("groups/4", group(4, &[8], &[8])),
        ]);
        let parents = [(LayerId(4), LayerId(2)), (LayerId(9), LayerId(4))];
        let known = known(&copy, &parents, DeviceId(7)).unwrap();
        assert_eq!(known.groups, [1, 2, 3].map(PgId).into());
        assert_eq!(known.last, [PgId(1)].into());
        assert_eq!(known.living, [3, 4].map(LayerId).into());
        assert_eq!(known.merging, [(LayerId(1), LayerId(3))].into());
        assert_eq!(known.newest, LayerId(8));
        let parents = [(3, 1), (4, 3), (9, 4)].map(|(layer, parent)| (LayerId(layer), LayerId(parent)));
        assert_eq!(known.parents, parents.into(), "the configuration counts, and what is younger than its copy");
        assert!(super::known(&super::tests::copy(&[("layers/1", json!(3))]), &[], DeviceId(7)).is_err());
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn former_maps_have_names_of_their_own() {
        let folder = std::env::temp_dir().join(format!("azekura-former-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let map = folder.join(MAP);
        assert_eq!(keep(&map).unwrap(), None, "there is none");
        for number in 1..=3 {
            std::fs::write(&map, number.to_string()).unwrap();
            let kept = keep(&map).unwrap().unwrap();
            std::fs::remove_file(&map).unwrap();
            assert!(kept.ends_with(format!("{MAP}.damaged-{number}")));
            assert_eq!(std::fs::read_to_string(&kept).unwrap(), number.to_string());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
