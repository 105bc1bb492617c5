//! `azekura class …`

use std::process::ExitCode;

use azekura_api::endpoint::{ClassChange, ClassCreate, ClassList, ClassShow};
use azekura_api::{AckRule, ChangeClass, ClassHome, ClassView, CreateClass, FailureDomain, NoQuery, Period};
use azekura_base::LogicalBlock;
use clap::{Args, Subcommand, ValueEnum};

use super::output::{print, print_json};
use super::removal::DeleteClassArgs;
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// The home of a class whose volumes have one copy where they are attached. A site of that name is `attached/RACK` or
/// has another name.
const ATTACHED: &str = "attached";

/// Storage classes: how many copies volumes have, and what may fail at once.
#[derive(Debug, Args)]
pub struct ClassCommand {
    #[command(subcommand)]
    command: Class,
}

#[derive(Debug, Subcommand)]
enum Class {
    /// Make a storage class.
    #[command(after_help = "Examples:\n  \
        azekura class create safe --copies 3 --copies-min 2   writes go on with two of three copies\n  \
        azekura class create fast --copies 3 --ack majority   writes wait for two of three copies\n  \
        azekura class create single --copies 1                one copy: a lost device is lost data\n  \
        azekura class create patient --copies 2 --io-timeout never\n\
        \x20                                                       requests wait for a lost group, however long\n  \
        azekura class create lab --copies 2 --failure-domain device\n\
        \x20                                                       copies on one machine's devices\n  \
        azekura class create here --copies 2 --home berlin    one copy in this site, and used from there\n  \
        azekura class create near --copies 2 --home attached  one copy on the host that uses the volume")]
    Create(CreateArgs),
    /// List all storage classes.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Show one storage class.
    Show(ShowArgs),
    /// Change a storage class, and with it all its volumes.
    #[command(after_help = "What would move copies can't be changed: make another class for that.\n\n\
        Examples:\n  \
        azekura class set default --io-timeout 2m      clients wait longer for a group that is lost\n  \
        azekura class set default --io-timeout never   and for as long as that takes\n  \
        azekura class set default --overcommit 10")]
    Set(SetArgs),
    /// Delete a storage class that no volume uses, with its placement groups.
    #[command(visible_alias = "rm")]
    Delete(DeleteClassArgs),
}

/// What two copies never share.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Domain {
    Device,
    Host,
    Rack,
    Site,
}

impl From<Domain> for FailureDomain {
    fn from(domain: Domain) -> FailureDomain {
        match domain {
            Domain::Device => FailureDomain::Device,
            Domain::Host => FailureDomain::Host,
            Domain::Rack => FailureDomain::Rack,
            Domain::Site => FailureDomain::Site,
        }
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Ack {
    /// Every in-sync copy is durable.
    All,
    /// More than half of the copies are durable; reads go to the primary.
    Majority,
    /// More than half of the copies in the primary's site and one in every other site are durable; reads go to the
    /// primary.
    EachSite,
}

impl From<Ack> for AckRule {
    fn from(ack: Ack) -> AckRule {
        match ack {
            Ack::All => AckRule::All,
            Ack::Majority => AckRule::Majority,
            Ack::EachSite => AckRule::EachSite,
        }
    }
}

/// Seconds; `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
struct IoTimeout(Option<u64>);

fn io_timeout(text: &str) -> Result<IoTimeout, String> {
    if text == "never" {
        return Ok(IoTimeout(None));
    }
    let Period(seconds) = text.parse().map_err(|error| format!("{error}, or never"))?;
    Ok(IoTimeout(Some(seconds)))
}

/// Where one copy of every block is.
#[derive(Clone, Debug)]
enum Home {
    /// Where each volume is attached.
    Attached,
    At(ClassHome),
}

impl std::str::FromStr for Home {
    type Err = String;

    fn from_str(text: &str) -> Result<Home, String> {
        if text == ATTACHED { Ok(Home::Attached) } else { text.parse().map(Home::At) }
    }
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Name of the class.
    name: String,
    /// Copies of every block.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    copies: u32,
    /// What two copies of a block never share.
    #[arg(long, value_enum, default_value_t = Domain::Host)]
    failure_domain: Domain,
    /// When a write is acknowledged.
    #[arg(long, value_enum, default_value_t = Ack::All)]
    ack: Ack,
    /// With fewer copies than this, volumes can only be read.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    copies_min: u32,
    /// Volumes may promise this many times what can be stored on the devices (`azekura space`: usable).
    #[arg(long, value_name = "RATIO")]
    overcommit: Option<f64>,
    /// How long a read or write waits while none of its copies can serve it, before the client gets an I/O error: 1s to
    /// 1d, or never. A write that failed may still be applied, but not after a later write to the same blocks.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = io_timeout)]
    io_timeout: IoTimeout,
    /// Encrypt its volumes, each with a key of its own. Needs nodes with --key-file, --vault or --kmip.
    #[arg(long)]
    encrypt: bool,
    /// What clients count the blocks of its volumes in, bytes, unless the volume says: 512 or 4096.
    #[arg(long, value_name = "512|4096", default_value_t = LogicalBlock::default())]
    logical_block_size: LogicalBlock,
    /// Keep one copy of every block in this site, or in this rack of it, and serve requests from there while that can
    /// be: for those who use the volumes there. The other copies are wherever there is room for them.
    ///
    /// With `attached` each volume keeps one copy where it is attached: on that host, or in its rack or site where the
    /// host has no device. When it is attached elsewhere for five minutes, the copy follows in the background
    /// (`azekura cluster set follow-after`).
    #[arg(long, value_name = "SITE[/RACK]|attached")]
    home: Option<Home>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct SetArgs {
    /// Name of the class.
    name: String,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Volumes may promise this many times what can be stored on the devices (`azekura space`: usable).
    #[arg(long, value_name = "RATIO")]
    overcommit: Option<f64>,
    /// How long a read or write waits while none of its copies can serve it, before the client gets an I/O error: 1s to
    /// 1d, or never.
    #[arg(long, value_name = "TIME", value_parser = io_timeout)]
    io_timeout: Option<IoTimeout>,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Name of the class.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

impl ClassCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Class::Create(arguments) => {
                let body = CreateClass {
                    name: arguments.name,
                    copies: arguments.copies,
                    failure_domain: Some(arguments.failure_domain.into()),
                    ack_rule: Some(arguments.ack.into()),
                    copies_min: Some(arguments.copies_min),
                    overcommit_ratio: arguments.overcommit,
                    io_timeout_seconds: Some(arguments.io_timeout.0),
                    encrypt: arguments.encrypt,
                    logical_block_bytes: Some(arguments.logical_block_size).filter(|block| !block.is_default()),
                    home_attached: matches!(arguments.home, Some(Home::Attached)),
                    home: arguments.home.and_then(|home| if let Home::At(home) = home { Some(home) } else { None }),
                };
                let class = arguments.api.client()?.send::<ClassCreate>([], &body)?;
                show(&class, arguments.api.json)
            }
            Class::List(api) => {
                let classes = api.client()?.ask::<ClassList>([], &NoQuery {})?;
                if api.json {
                    return print_json(&classes);
                }
                if classes.is_empty() {
                    return print("There are no storage classes yet; the first volume makes one.\n");
                }
                print(&table(&classes))
            }
            Class::Set(SetArgs { name, change: Change { overcommit, io_timeout }, api }) => {
                let change = ChangeClass {
                    overcommit_ratio: overcommit,
                    io_timeout_seconds: io_timeout.map(|IoTimeout(seconds)| seconds),
                };
                let class = api.client()?.send::<ClassChange>([name], &change)?;
                show(&class, api.json)
            }
            Class::Delete(arguments) => arguments.run(),
            Class::Show(arguments) => {
                let class = arguments.api.client()?.ask::<ClassShow>([arguments.name], &NoQuery {})?;
                show(&class, arguments.api.json)
            }
        }
    }
}

fn show(class: &ClassView, json: bool) -> Result<ExitCode, CliError> {
    if json {
        return print_json(class);
    }
    let problem =
        class.problem.as_ref().map_or_else(String::new, |why| format!("No volume can be made in it now: {why}.\n"));
    print(&format!("{}{problem}", table(std::slice::from_ref(class))))
}

fn home(class: &ClassView) -> String {
    let place = if class.home_attached { ATTACHED } else { "-" };
    class.home.as_ref().map_or_else(|| place.to_owned(), ToString::to_string)
}

fn table(classes: &[ClassView]) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("COPIES", Align::Right),
        ("MINIMUM", Align::Right),
        ("APART", Align::Left),
        ("HOME", Align::Left),
        ("ACK", Align::Left),
        ("TIMEOUT", Align::Right),
        ("OVERCOMMIT", Align::Right),
        ("ENCRYPT", Align::Left),
        ("BLOCK", Align::Right),
        ("GROUPS", Align::Right),
        ("VOLUMES", Align::Right),
    ]);
    for class in classes {
        table.row(vec![
            class.name.clone(),
            class.copies.to_string(),
            class.copies_min.to_string(),
            class.failure_domain.to_string(),
            home(class),
            class.ack_rule.to_string(),
            class.io_timeout_seconds.map_or_else(|| "never".to_owned(), |seconds| Period(seconds).to_string()),
            class.overcommit_ratio.to_string(),
            if class.encrypt { "yes" } else { "no" }.to_owned(),
            class.logical_block_bytes.to_string(),
            class.groups.to_string(),
            class.volumes.to_string(),
        ]);
    }
    table.render()
}
