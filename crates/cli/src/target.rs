//! `azekura target …`: targets of several logical units.

use std::process::ExitCode;

use azekura_api::endpoint::{TargetCreate, TargetDelete, TargetList, TargetShow, UnitAdd, UnitRemove};
use azekura_api::{AddUnit, CreateTarget, NoQuery, RemoveUnits, TargetView};
use clap::{ArgGroup, Args, Subcommand};

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// Targets: several volumes in one iSCSI session, as its logical units.
///
/// Every volume is an iSCSI target of its own, without any of these commands. A target is for hosts that are to have
/// many volumes in few sessions, or that know them by target and number, as VMware does. Which host may open which
/// volume is said by the hosts' grants alone ('azekura host --help'): a host sees the units that it may open. A volume
/// of a target is not listed beside it in a discovery.
///
/// A number (LUN) is given once and never to another volume of the target, since hosts remember disks by it.
#[derive(Debug, Args)]
pub struct TargetCommand {
    #[command(subcommand)]
    command: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// Make a target.
    #[command(after_help = "Examples:\n  \
        azekura target create vmware --volume ds1 --volume ds2     units 0 and 1\n  \
        azekura target create accounts/db                          none yet, for volumes of the project 'accounts'\n  \
        iscsiadm -m discovery -t sendtargets -p NODE               on a host: it is listed\n  \
        iscsiadm -m node -T iqn.2026-01.io.azekura.targets:vmware -l")]
    Create(CreateArgs),
    /// Make a volume a unit of a target. Hosts with a session are told, and find it by looking again.
    #[command(after_help = "Examples:\n  \
        azekura target add vmware ds3             the next number\n  \
        azekura target add vmware ds4 --lun 10    this number; those that are passed over are not given later\n  \
        iscsiadm -m session -R                    on a Linux host: it finds the new disk")]
    Add(AddArgs),
    /// Take a unit from a target. The volume stays, and its number is not given again.
    ///
    /// Refused while the volume is attached, unless forced: a host that uses it would lose it. Have the host let it go
    /// first ('echo 1 > /sys/block/sdX/device/delete' on Linux, and log out where it was the last one).
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  \
        azekura target remove vmware ds1\n  \
        azekura target remove vmware --lun 2 --force"
    )]
    Remove(RemoveArgs),
    /// List all targets.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Show a target: its units, and what hosts call it.
    Show(NameArgs),
    /// Delete a target. Its volumes stay.
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Its name: as those of volumes, PROJECT/NAME in a project.
    name: String,
    /// A volume that is to be a unit of it, from 0 on in this order; may be given several times.
    #[arg(long = "volume", value_name = "VOLUME")]
    volumes: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The target.
    target: String,
    /// The volume: of the target's project, and in no other target.
    volume: String,
    /// Its number, from 0 to 255 [default: the next one].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..256))]
    lun: Option<u16>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("unit").required(true).args(["volume", "lun"]))]
struct RemoveArgs {
    /// The target.
    target: String,
    /// The volume that is to be no unit of it any more.
    volume: Option<String>,
    /// Or its number.
    #[arg(long, value_name = "N")]
    lun: Option<u16>,
    /// Also while it is attached: hosts that use it through this target lose it.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The target.
    target: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// The target.
    target: String,
    /// Also while volumes of it are attached: hosts that use them through this target lose them.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl RemoveArgs {
    fn run(self) -> Result<ExitCode, CliError> {
        let RemoveArgs { target, volume, lun, force, api } = self;
        let client = api.client()?;
        let lun = match (lun, volume) {
            (Some(lun), _) => lun,
            (None, volume) => {
                let volume = volume.unwrap_or_default();
                // No number comes to be another volume's meanwhile.
                let shown = client.ask::<TargetShow>([target.clone()], &NoQuery {})?;
                let unit = shown.units.iter().find(|unit| unit.volume == volume);
                let none = || CliError::missing(format!("the volume '{volume}' is no unit of the target '{target}'"));
                unit.ok_or_else(|| none().hint(format!("'azekura target show {target}' shows its units")))?.lun
            }
        };
        let left = client.ask::<UnitRemove>([target, lun.to_string()], &RemoveUnits { force })?;
        show(&left, api.json)
    }
}

impl TargetCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Target::Create(CreateArgs { name, volumes, api }) => {
                show(&api.client()?.send::<TargetCreate>([], &CreateTarget { name, volumes })?, api.json)
            }
            Target::Add(AddArgs { target, volume, lun, api }) => {
                show(&api.client()?.send::<UnitAdd>([target], &AddUnit { volume, lun })?, api.json)
            }
            Target::Remove(arguments) => arguments.run(),
            Target::List(api) => {
                let targets = api.client()?.ask::<TargetList>([], &NoQuery {})?;
                if api.json {
                    return print_json(&targets);
                }
                if targets.is_empty() {
                    return print("There are no targets of several units; every volume is a target of its own.\n");
                }
                print(&table(&targets))
            }
            Target::Show(NameArgs { target, api }) => {
                show(&api.client()?.ask::<TargetShow>([target], &NoQuery {})?, api.json)
            }
            Target::Delete(DeleteArgs { target, force, api }) => {
                api.client()?.ask::<TargetDelete>([target.clone()], &RemoveUnits { force })?;
                if api.json {
                    print_json(&serde_json::json!({ "deleted": target }))
                } else {
                    print(&format!("target {target} is deleted; its volumes stay\n"))
                }
            }
        }
    }
}

fn show(target: &TargetView, json: bool) -> Result<ExitCode, CliError> {
    if json { print_json(target) } else { print(&text(target)) }
}

fn text(target: &TargetView) -> String {
    let TargetView { name, iscsi_name, units, next_lun, .. } = target;
    let mut table = Table::new(&[("LUN", Align::Right), ("VOLUME", Align::Left)]);
    units.iter().for_each(|unit| table.row(vec![unit.lun.to_string(), unit.volume.clone()]));
    let units = if units.is_empty() { "It has no units.\n".to_owned() } else { table.render() };
    format!("target {name}, {iscsi_name}, next number {next_lun}\n{units}")
}

fn table(targets: &[TargetView]) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("UNITS", Align::Right),
        ("NEXT", Align::Right),
        ("ISCSI NAME", Align::Left),
    ]);
    for TargetView { name, iscsi_name, units, next_lun, .. } in targets {
        table.row(vec![name.clone(), units.len().to_string(), next_lun.to_string(), iscsi_name.clone()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::UnitView;

    #[test]
    fn a_target_is_shown_with_its_units() {
        let iscsi_name = "iqn.2026-01.io.azekura.targets:t".to_owned();
        let units = vec![UnitView { lun: 2, volume: "ds3".to_owned() }];
        let target = TargetView { name: "t".to_owned(), iscsi_name, units, next_lun: 3, created: String::new() };
        let shown = text(&target);
        assert!(shown.contains("azekura.targets:t, next number 3") && shown.contains("ds3"), "{shown}");
        let none = TargetView { units: Vec::new(), ..target.clone() };
        assert!(text(&none).ends_with("It has no units.\n"));
        assert!(table(&[target]).contains("iqn.2026-01.io.azekura.targets:t"));
    }
}
