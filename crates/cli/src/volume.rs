//! `azekura volume …`

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use azekura_api::endpoint::{
    VolumeAttach, VolumeCreate, VolumeDelete, VolumeDetach, VolumeLimit, VolumeList, VolumeResize, VolumeShow,
};
use azekura_api::{AttachVolume, CreateVolume, DeleteVolume, DetachVolume, NoQuery, ResizeVolume, VolumeView};
use clap::{Args, Subcommand};

use super::class::Ack;
use super::expose::ExposeCommand;
use super::limits::{LimitArgs, LimitVolumeArgs, limit};
use super::output::{print, print_json};
use super::protect::{ProtectArgs, protect};
use super::snapshot::{CloneArgs, RekeyArgs, RevertVolumeArgs, Target, clone_from, clone_volume, revert_volume};
use super::unlock::{ChangeSecretArgs, UnlockArgs, change_secret, read_secret, unlock};
use super::volume_key::{KeyArgs, RotateKeyArgs, key, rotate_key};
use super::volume_shown::{describe, size, table};
use super::{ApiArgs, CliError};
use azekura_base::{LogicalBlock, Size};

/// Make, list, resize, clone, protect and delete volumes.
#[derive(Debug, Args)]
pub struct VolumeCommand {
    #[command(subcommand)]
    command: Volume,
}

#[derive(Debug, Subcommand)]
enum Volume {
    /// Make a volume. It is thin: it takes no space until it is written.
    #[command(after_help = "Examples:\n  \
        azekura volume create vol1 10GiB                 two copies, on different machines\n  \
        azekura volume create db 500G --copies 3         three copies\n  \
        azekura volume create fast 1T --ack majority     three copies, a write waits for two\n  \
        azekura volume create scratch 1T --class single  with the policy of a storage class\n  \
        azekura volume create safe 1T --encrypt          devices and network have ciphertext only\n  \
        azekura volume create vm 1T --logical-block-size 4096   a disk with blocks of 4 KiB (\"4Kn\")\n  \
        azekura volume create test --from db@monday      what db was then, to write on\n\n\
        Sizes: 10GiB, 10G, 512M, 1.5T or a number of bytes; units are powers of 1024.")]
    Create(CreateArgs),
    /// List all volumes.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Show one volume, and where clients attach it.
    Show(NameArgs),
    /// Give a volume to a node's clients, until it is detached.
    #[command(after_help = "Examples:\n  \
        azekura volume attach vol1 --node n2           unless another node has it\n  \
        azekura volume attach vol1 --node n2 --force   and cut off whoever has it\n\n\
        Clients of any node that open a volume attach it by themselves while they use it, if no other node has it; \
        attaching it by name is for orchestrators, and for taking it away from a node that hangs. When this command \
        has succeeded, no write of whoever was cut off can be applied any more.")]
    Attach(AttachArgs),
    /// Take a volume away from a node, or with --force from its clients, which are cut off.
    #[command(after_help = "Examples:\n  \
        azekura volume detach vol1 --node n2           unless clients use it there\n  \
        azekura volume detach vol1 --node n2 --force   and cut off whoever does\n\n\
        When this command has succeeded, no write of who was cut off can be applied any more. Unmount first.")]
    Detach(DetachArgs),
    #[command(flatten)]
    Expose(ExposeCommand),
    /// Open a volume that is encrypted with a secret of its own.
    #[command(after_help = "Example:\n  azekura volume unlock safe --secret-file safe.secret\n\n\
        The nodes that it is attached to know its key from then on, until it is detached by name or they restart. The CSI \
        driver does the same by itself; by hand it is done after a node's restart, where nobody stages or publishes the \
        volume again (docs/operations/keys.md).")]
    Unlock(UnlockArgs),
    /// Wrap the key of such a volume with another secret. Clones and snapshots have that secret then, too.
    #[command(after_help = "Example:\n  \
        azekura volume change-secret safe --secret-file safe.secret --new-secret-file new.secret\n\n\
        No block is written, and nobody who has the volume notices.")]
    ChangeSecret(ChangeSecretArgs),
    /// Show the data key of an encrypted volume, and how far another one is that takes its place.
    Key(KeyArgs),
    /// Encrypt an encrypted volume, and all that shares its key, under another data key, while clients use it.
    #[command(after_help = "Examples:\n  \
        azekura volume rotate-key safe               it goes on by itself; 'azekura volume key safe' shows how far\n  \
        azekura volume rotate-key safe --wait 3600   and wait for the end of it\n\n\
        Writes have the new key at once, and the blocks that are there get it in the background: each is read and \
        written, so snapshots then share less with the volume. The former key stays as long as a snapshot is under it. \
        To change only what wraps the data key: 'azekura kek rewrap'.")]
    RotateKey(RotateKeyArgs),
    /// Delete a volume and all its data.
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
    /// Make a volume larger, or smaller. Clients see the new size with their next connection.
    #[command(after_help = "Examples:\n  \
        azekura volume resize vol1 20GiB\n  \
        azekura volume resize vol1 5GiB --shrink   what is cut off is kept as a snapshot for a day\n\n\
        Make the file system smaller before the volume.")]
    Resize(ResizeArgs),
    /// Make a volume that is what another one is, or was. It takes space only as the two come to differ.
    #[command(after_help = "Examples:\n  \
        azekura volume clone vol1 copy              what it is now\n  \
        azekura volume clone vol1@monday look       what it was at a snapshot\n  \
        azekura volume clone vol1@\"14:03:20\" look   and at a time (UTC), if it is protected\n\n\
        A clone is a volume like any other: its source, and the source's snapshots, can be deleted.")]
    Clone(CloneArgs),
    /// Take a volume back to what it was. What it is now is kept as a snapshot for a day.
    #[command(after_help = "Examples:\n  \
        azekura volume revert vol1 --at \"10 minutes ago\"\n  \
        azekura volume revert vol1 --at 14:03:20\n\n\
        Goes back to the newest snapshot that is not younger; 'azekura volume protect' makes them by itself. Unmount \
        the volume first: this is refused while clients have it, and --force cuts them off. To get single files back, \
        'azekura volume clone vol1@\"10 minutes ago\" look' and mount that.")]
    Revert(RevertVolumeArgs),
    /// Make snapshots of a volume by itself, every few seconds if you like, and thin them as they grow old.
    #[command(after_help = "Examples:\n  \
        azekura volume protect vol1 --every 10s --keep 1h --then 1h:24h,1d:30d\n      \
        one every 10 s, all of the last hour, one an hour of the last day, one a day of the last month\n  \
        azekura volume protect vol1 --off\n\n\
        None is made while nobody has the volume. Snapshots that you make yourself are never thinned.")]
    Protect(ProtectArgs),
    /// Limit what a volume's clients may ask for in a second, also while they use it.
    #[command(after_help = "Examples:\n  \
        azekura volume limit vol1 --iops 1000 --bandwidth 100MiB\n  \
        azekura volume limit vol1 --iops 500 --burst 60s   what is not asked for in a minute may be asked for later\n  \
        azekura volume limit vol1 --off\n\n\
        All limits are set anew: what is not named is not limited. Requests over a limit wait; none fails. Reads and writes \
        count together, at each node that clients of the volume connect to.")]
    Limit(LimitVolumeArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Name: letters, digits, '.', '_' and '-'.
    name: String,
    /// Size, such as 10GiB [default with --from: the snapshot's].
    #[arg(required_unless_present = "from")]
    size: Option<Size>,
    /// The snapshot that it is made from: VOLUME@SNAPSHOT.
    #[arg(long, value_name = "VOLUME@SNAPSHOT", conflicts_with_all = ["class", "copies", "ack", "logical_block_size"])]
    from: Option<Target>,
    /// Storage class ('azekura class list').
    #[arg(long)]
    class: Option<String>,
    /// Copies of every block, each on another machine [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    copies: Option<u32>,
    /// What clients count its blocks in, bytes: 512, or 4096 as disks called "4Kn" have, for clients that know such
    /// disks. It can't be changed later, and clones have the same [default: 512, or as the class says].
    #[arg(long, value_name = "512|4096")]
    logical_block_size: Option<LogicalBlock>,
    /// Clients of several nodes may use it at once: for clients that agree on who writes what.
    #[arg(long)]
    shared: bool,
    /// Encrypt it, with a key of its own that its snapshots and clones have, too. Needs nodes with --key-file,
    /// --vault or --kmip.
    #[arg(long, conflicts_with = "from")]
    encrypt: bool,
    /// Encrypt it, and wrap its key with the secret in this file: a passphrase of 12 bytes or more, or 'azekura-key:'
    /// and 64 hexadecimal digits. It is opened by 'azekura volume unlock', or by the CSI driver.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    rekey: RekeyArgs,
    /// When a write is acknowledged [default: all, or as the class says].
    #[arg(long, value_enum)]
    ack: Option<Ack>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// Name of the volume.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct AttachArgs {
    /// Name of the volume.
    name: String,
    /// The node whose clients get it.
    #[arg(long)]
    node: String,
    /// Cut off whoever has it.
    #[arg(long)]
    force: bool,
    /// Beside other nodes that have it shared: for clients that agree on who writes what.
    #[arg(long, conflicts_with = "exclusive")]
    shared: bool,
    /// For this node alone, although the volume was made to be shared.
    #[arg(long)]
    exclusive: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct DetachArgs {
    /// Name of the volume.
    name: String,
    /// The node that it is taken from [default: every node].
    #[arg(long)]
    node: Option<String>,
    /// Although clients use it there, which are cut off.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// Name of the volume.
    name: String,
    /// Don't ask.
    #[arg(long, short)]
    yes: bool,
    /// Although clients have it.
    #[arg(long)]
    force: bool,
    /// And all its snapshots. Clones stay as they are.
    #[arg(long)]
    snapshots: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct ResizeArgs {
    /// Name of the volume.
    name: String,
    /// New size, such as 20GiB.
    size: Size,
    /// It may become smaller; what it was is kept as a snapshot for a day.
    #[arg(long)]
    shrink: bool,
    /// With --shrink: cut off clients that have the volume.
    #[arg(long, requires = "shrink")]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl VolumeCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Volume::Create(arguments) => create(arguments),
            Volume::List(api) => list(&api),
            Volume::Show(arguments) => {
                let volume = arguments.api.client()?.ask::<VolumeShow>([arguments.name], &NoQuery {})?;
                if arguments.api.json { print_json(&volume) } else { print(&describe(&volume)) }
            }
            Volume::Attach(arguments) => attach(arguments),
            Volume::Detach(arguments) => detach(arguments),
            Volume::Expose(command) => command.run(),
            Volume::Unlock(arguments) => unlock(arguments),
            Volume::ChangeSecret(arguments) => change_secret(arguments),
            Volume::Key(arguments) => key(arguments),
            Volume::RotateKey(arguments) => rotate_key(arguments),
            Volume::Delete(arguments) => delete(&arguments),
            Volume::Resize(arguments) => resize(&arguments),
            Volume::Clone(arguments) => clone_volume(arguments),
            Volume::Revert(arguments) => revert_volume(&arguments),
            Volume::Protect(arguments) => protect(&arguments),
            Volume::Limit(arguments) => limit(&arguments),
        }
    }
}

fn create(arguments: CreateArgs) -> Result<ExitCode, CliError> {
    let CreateArgs {
        name,
        size: wanted,
        from,
        class,
        copies,
        ack,
        shared,
        encrypt,
        secret_file,
        rekey,
        limits,
        api,
        ..
    } = arguments;
    let logical_block_bytes = arguments.logical_block_size;
    let limits = limits.limits()?;
    let volume = if let Some(source) = from {
        let clone = clone_from(source, &name, wanted, shared, rekey, &api)?;
        match limits {
            Some(limits) => api.client()?.send::<VolumeLimit>([name], &limits)?,
            None => clone,
        }
    } else {
        // The grammar wants a size where there is no source.
        let size_bytes = wanted.map_or(0, Size::bytes);
        let ack_rule = ack.map(Into::into);
        let secret = secret_file.map(|path| read_secret(&path)).transpose()?;
        let client = if secret.is_some() { api.client()?.in_private()? } else { api.client()? };
        let body = CreateVolume {
            name,
            size_bytes,
            logical_block_bytes,
            class,
            copies,
            ack_rule,
            shared,
            encrypt,
            secret,
            limits,
        };
        client.send::<VolumeCreate>([], &body)?
    };
    if api.json {
        return print_json(&volume);
    }
    print(&format!("Volume {} is made.\n{}", volume.name, describe(&volume)))
}

fn list(api: &ApiArgs) -> Result<ExitCode, CliError> {
    let volumes = api.client()?.ask_all::<VolumeList, _>([])?;
    if api.json {
        return print_json(&volumes);
    }
    if volumes.is_empty() {
        return print("There are no volumes. 'azekura volume create NAME SIZE' makes one.\n");
    }
    print(&table(&volumes))
}

fn attach(arguments: AttachArgs) -> Result<ExitCode, CliError> {
    let AttachArgs { name, node, force, shared, exclusive, api } = arguments;
    let shared = (shared || exclusive).then_some(shared);
    let body = AttachVolume { node: node.clone(), shared, force };
    let volume = api.client()?.send::<VolumeAttach>([name.clone()], &body)?;
    if api.json { print_json(&volume) } else { print(&format!("Volume {name} is attached to {node}.\n")) }
}

fn detach(arguments: DetachArgs) -> Result<ExitCode, CliError> {
    let DetachArgs { name, node, force, api } = arguments;
    let volume = api.client()?.send::<VolumeDetach>([name.clone()], &DetachVolume { node, force })?;
    if api.json { print_json(&volume) } else { print(&format!("Volume {name} is detached.\n")) }
}

fn delete(arguments: &DeleteArgs) -> Result<ExitCode, CliError> {
    let client = arguments.api.client()?;
    let name = [arguments.name.clone()];
    if !arguments.yes {
        let volume = client.ask::<VolumeShow>(name.clone(), &NoQuery {})?;
        confirm(&volume)?;
    }
    let query = DeleteVolume { force: arguments.force, snapshots: arguments.snapshots };
    client.ask::<VolumeDelete>(name, &query)?;
    if arguments.api.json {
        return print_json(&serde_json::json!({ "deleted": arguments.name }));
    }
    print(&format!("Volume {} is deleted.\n", arguments.name))
}

/// Asks for the volume's name, so that a slip of the hand deletes nothing.
fn confirm(volume: &VolumeView) -> Result<(), CliError> {
    let refused = |message: &str| CliError::new(message).hint("add --yes to delete without being asked");
    if !std::io::stdin().is_terminal() {
        return Err(refused("the volume is not deleted: nobody can be asked here"));
    }
    let too = match volume.snapshots {
        0 => String::new(),
        1 => " and its snapshot".to_owned(),
        count => format!(" and its {count} snapshots"),
    };
    eprint!("This deletes volume {} and all its data ({}){too}. Type its name to go on: ", volume.name, size(volume));
    // If the question can't be shown, the answer won't be the name.
    let _shown = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_err() || answer.trim() != volume.name {
        return Err(refused("the volume is not deleted: that was not its name"));
    }
    Ok(())
}

fn resize(arguments: &ResizeArgs) -> Result<ExitCode, CliError> {
    let (wanted, shrink, force) = (arguments.size, arguments.shrink, arguments.force);
    let body = ResizeVolume { size_bytes: wanted.bytes(), shrink, force };
    let done = arguments.api.client()?.send::<VolumeResize>([arguments.name.clone()], &body)?;
    if arguments.api.json {
        return print_json(&done);
    }
    let mut text = format!("Volume {} has {} now.\n", done.volume.name, size(&done.volume));
    if let Some(kept) = &done.kept {
        let until = kept.expires.as_deref().unwrap_or("it is deleted");
        text += &format!("What it was until now is {}@{}, kept until {until}.\n", kept.volume, kept.name);
    }
    print(&text)
}
