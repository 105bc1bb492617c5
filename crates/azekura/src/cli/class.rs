//! `azekura class …`

use std::process::ExitCode;

use azekura_control::api::{ClassView, CreateClass};
use azekura_meta::model::{AckRule, FailureDomain};
use clap::{Args, Subcommand, ValueEnum};

use super::api::segment;
use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

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
        azekura class create lab --copies 2 --failure-domain device\n\
        \x20                                                       copies on one machine's devices")]
    Create(CreateArgs),
    /// List all storage classes.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Show one storage class.
    Show(ShowArgs),
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
    /// Volumes may promise this many times the devices' size.
    #[arg(long, value_name = "RATIO")]
    overcommit: Option<f64>,
    #[command(flatten)]
    api: ApiArgs,
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
                };
                let class: ClassView = arguments.api.client()?.post("/v1/classes", &body)?;
                show(&class, arguments.api.json)
            }
            Class::List(api) => {
                let classes: Vec<ClassView> = api.client()?.get("/v1/classes")?;
                if api.json {
                    return print_json(&classes);
                }
                if classes.is_empty() {
                    return print("There are no storage classes yet; the first volume makes one.\n");
                }
                print(&table(&classes))
            }
            Class::Show(arguments) => {
                let path = format!("/v1/classes/{}", segment(&arguments.name));
                let class: ClassView = arguments.api.client()?.get(&path)?;
                show(&class, arguments.api.json)
            }
        }
    }
}

fn show(class: &ClassView, json: bool) -> Result<ExitCode, CliError> {
    if json { print_json(class) } else { print(&table(std::slice::from_ref(class))) }
}

fn table(classes: &[ClassView]) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("COPIES", Align::Right),
        ("MINIMUM", Align::Right),
        ("APART", Align::Left),
        ("ACK", Align::Left),
        ("OVERCOMMIT", Align::Right),
        ("GROUPS", Align::Right),
        ("VOLUMES", Align::Right),
    ]);
    for class in classes {
        table.row(vec![
            class.name.clone(),
            class.copies.to_string(),
            class.copies_min.to_string(),
            class.failure_domain.to_string(),
            class.ack_rule.to_string(),
            class.overcommit_ratio.to_string(),
            class.groups.to_string(),
            class.volumes.to_string(),
        ]);
    }
    table.render()
}
