//! `azekura project …`: what belongs together, and how much of it there may be.

use std::process::ExitCode;
use std::str::FromStr;

use azekura_api::endpoint::{
    GrantList, ProjectChange, ProjectCreate, ProjectDelete, ProjectList, ProjectShow, VolumeList,
};
use azekura_api::{ChangeProject, CreateProject, ErrorCode, GrantView, NoQuery, ProjectQuota, ProjectView};
use azekura_base::{Size, project_of};
use azekura_client::Client;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// Names of each kind that 'project show' tells.
const NAMES_MAX: usize = 20;

/// Projects: volumes and grants that belong together, kept apart from those of others, with quotas.
///
/// A project's volumes are named PROJECT/NAME everywhere. Tokens and keys with the roles owner, user and csi are for
/// one project: for their owners there are no other volumes. 'default' is always there; its volumes have no '/' in
/// their names, and it has no quota. Projects keep tenants apart where the setting api-access is 'grants' ('azekura
/// cluster show').
#[derive(Debug, Args)]
pub struct ProjectCommand {
    #[command(subcommand)]
    command: Project,
}

#[derive(Debug, Subcommand)]
enum Project {
    /// Make a project.
    #[command(after_help = "Examples:\n  \
        azekura project create accounts --bytes 10TiB --volumes 100 --snapshots 1000\n  \
        azekura project create lab --class single --iops 5000\n  \
        azekura token create ann --role owner --project accounts")]
    Create(CreateArgs),
    /// List all projects that one has to do with.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Show a project: what it may have, what it has, and how that is named.
    Show(NameArgs),
    /// Change what a project may have. A quota may be less than what is used: then nothing more is made.
    #[command(after_help = "Examples:\n  \
        azekura project set accounts --bytes 20TiB\n  \
        azekura project set accounts --iops none --class default --class fast")]
    Set(SetArgs),
    /// Delete a project that has neither volumes nor grants.
    #[command(visible_alias = "rm")]
    Delete(NameArgs),
}

#[derive(Debug, Args)]
struct NameArgs {
    /// Name of the project.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

/// So much, or `none`: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quota<T>(Option<T>);

fn quota<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Quota<T>, String> {
    if text == "none" {
        return Ok(Quota(None));
    }
    text.parse().map(|amount| Quota(Some(amount))).map_err(|error| format!("{error}, or none"))
}

#[derive(Debug, Args)]
struct Quotas {
    /// Sum of its volumes' sizes, such as 10TiB; or none.
    #[arg(long, value_name = "SIZE", value_parser = quota::<Size>)]
    bytes: Option<Quota<Size>>,
    /// Number of its volumes; or none.
    #[arg(long, value_name = "N", value_parser = quota::<u64>)]
    volumes: Option<Quota<u64>>,
    /// Number of the snapshots of all its volumes; or none.
    #[arg(long, value_name = "N", value_parser = quota::<u64>)]
    snapshots: Option<Quota<u64>>,
    /// Sum of its volumes' limits, requests a second: each volume needs a limit then (--iops); or none.
    #[arg(long, value_name = "N", value_parser = quota::<u64>)]
    iops: Option<Quota<u64>>,
    /// A storage class that its new volumes may have; may be given several times [default: all].
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
}

impl Quotas {
    fn bytes(&self) -> Option<Option<u64>> {
        self.bytes.map(|Quota(size)| size.map(Size::bytes))
    }

    fn number(of: Option<Quota<u64>>) -> Option<Option<u64>> {
        of.map(|Quota(number)| number)
    }
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Name of the project: at most 63 characters.
    name: String,
    #[command(flatten)]
    quotas: Quotas,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct SetArgs {
    /// Name of the project.
    name: String,
    #[command(flatten)]
    quotas: Quotas,
    /// Its new volumes may have any storage class.
    #[arg(long, conflicts_with = "classes")]
    any_class: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl SetArgs {
    fn run(self) -> Result<ExitCode, CliError> {
        let SetArgs { name, quotas, any_class, api } = self;
        let named = Some(quotas.classes.clone()).filter(|classes| !classes.is_empty());
        let change = ChangeProject {
            classes: if any_class { Some(None) } else { named.map(Some) },
            bytes: quotas.bytes(),
            volumes: Quotas::number(quotas.volumes),
            snapshots: Quotas::number(quotas.snapshots),
            iops: Quotas::number(quotas.iops),
        };
        if change == ChangeProject::default() {
            return Err(CliError::new("nothing is to be changed").hint("for example --bytes 10TiB, or --volumes none"));
        }
        let project = api.client()?.send::<ProjectChange>([name], &change)?;
        show(&project, api.json)
    }
}

impl ProjectCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Project::Create(CreateArgs { name, quotas, api }) => {
                let quota = ProjectQuota {
                    bytes: quotas.bytes().flatten(),
                    volumes: Quotas::number(quotas.volumes).flatten(),
                    snapshots: Quotas::number(quotas.snapshots).flatten(),
                    iops: Quotas::number(quotas.iops).flatten(),
                };
                let classes = Some(quotas.classes).filter(|classes| !classes.is_empty());
                let made = api.client()?.send::<ProjectCreate>([], &CreateProject { name, classes, quota })?;
                show(&made, api.json)
            }
            Project::List(api) => {
                let projects = api.client()?.ask::<ProjectList>([], &NoQuery {})?;
                if api.json {
                    return print_json(&projects);
                }
                if projects.is_empty() {
                    return print("There are no projects but 'default'.\n");
                }
                print(&table(&projects))
            }
            Project::Show(NameArgs { name, api }) => {
                let client = api.client()?;
                let project = client.ask::<ProjectShow>([name], &NoQuery {})?;
                let has = Contents::of(&client, &project.name)?;
                if api.json { print_json(&Shown { project, has }) } else { print(&has.told(&project)) }
            }
            Project::Set(arguments) => arguments.run(),
            Project::Delete(NameArgs { name, api }) => {
                api.client()?.ask::<ProjectDelete>([name.clone()], &NoQuery {})?;
                if api.json {
                    print_json(&serde_json::json!({ "deleted": name }))
                } else {
                    print(&format!("project {name} is deleted\n"))
                }
            }
        }
    }
}

/// A project, and the names of what is in it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    project: ProjectView,
    #[serde(flatten)]
    has: Contents,
}

/// The names of what is in a project.
#[derive(Serialize)]
struct Contents {
    volume_names: Vec<String>,
    /// Of tokens, keys and hosts that one may see.
    grant_names: Option<Vec<String>>,
}

impl Contents {
    fn of(client: &Client, project: &str) -> Result<Contents, CliError> {
        let mut volume_names: Vec<String> =
            client.ask_all::<VolumeList, _>([])?.into_iter().map(|volume| volume.name).collect();
        volume_names.retain(|name| project_of(name) == project);
        let grants = match client.ask::<GrantList>([], &NoQuery {}) {
            // Not everybody may see them.
            Err(error) if error.code() == Some(ErrorCode::Forbidden) => None,
            grants => Some(grants?),
        };
        let own = |grants: Vec<GrantView>| grants.into_iter().filter(|grant| grant.project == project);
        let grant_names = grants.map(|grants| own(grants).map(|grant| grant.name).collect());
        Ok(Contents { volume_names, grant_names })
    }

    fn told(&self, project: &ProjectView) -> String {
        let line = |what: &str, names: &[String], list: &str| match names {
            [] => String::new(),
            [first @ .., _] if first.len() < NAMES_MAX => format!("  {what:<8} {}\n", names.join(", ")),
            _ => format!(
                "  {what:<8} {}, and {} more ({list})\n",
                names[..NAMES_MAX].join(", "),
                names.len() - NAMES_MAX
            ),
        };
        let volumes = line("volumes", &self.volume_names, "azekura volume list");
        let grants = line("grants", self.grant_names.as_deref().unwrap_or_default(), "azekura token, key, host list");
        format!("{}{volumes}{grants}", table(std::slice::from_ref(project)))
    }
}

fn show(project: &ProjectView, json: bool) -> Result<ExitCode, CliError> {
    if json { print_json(project) } else { print(&table(std::slice::from_ref(project))) }
}

/// What is used of what there may be.
fn of(used: u64, quota: Option<u64>, text: impl Fn(u64) -> String) -> String {
    quota.map_or_else(|| text(used), |quota| format!("{} of {}", text(used), text(quota)))
}

fn table(projects: &[ProjectView]) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("SIZE", Align::Right),
        ("VOLUMES", Align::Right),
        ("SNAPSHOTS", Align::Right),
        ("IOPS", Align::Right),
        ("CLASSES", Align::Left),
        ("GRANTS", Align::Right),
    ]);
    for ProjectView { name, classes, quota, used, grants, .. } in projects {
        let number = |number: u64| number.to_string();
        table.row(vec![
            name.clone(),
            of(used.bytes, quota.bytes, |bytes| Size::new(bytes).to_string()),
            of(used.volumes, quota.volumes, number),
            of(used.snapshots, quota.snapshots, number),
            of(used.iops, quota.iops, number),
            classes.as_ref().map_or_else(|| "all".to_owned(), |classes| classes.join(", ")),
            grants.to_string(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::ProjectUse;

    #[test]
    fn quotas_are_amounts_or_none() {
        assert_eq!(quota::<Size>("1TiB"), Ok(Quota(Some(Size::new(1 << 40)))));
        assert_eq!(quota::<u64>("none"), Ok(Quota(None)));
        assert!(quota::<u64>("-1").is_err_and(|error| error.ends_with("or none")));
    }

    #[test]
    fn a_table_tells_what_is_used_of_what() {
        let project = ProjectView {
            name: "accounts".into(),
            classes: None,
            quota: ProjectQuota { bytes: Some(1 << 40), ..ProjectQuota::default() },
            used: ProjectUse { bytes: 1 << 30, volumes: 3, ..ProjectUse::default() },
            grants: 2,
            created: String::new(),
        };
        let text = table(std::slice::from_ref(&project));
        assert!(text.contains("1GiB of 1TiB") && text.contains("accounts") && text.contains("all"), "{text}");
        let names = |count: usize| (0..count).map(|number| format!("accounts/v{number}")).collect::<Vec<_>>();
        let told = |volumes, grants| Contents { volume_names: names(volumes), grant_names: grants }.told(&project);
        assert_eq!(told(0, None), text);
        let all = told(NAMES_MAX, Some(vec!["ann".into()]));
        assert!(all.contains("accounts/v19\n  grants   ann\n") && !all.contains("more"), "{all}");
        let most = told(NAMES_MAX + 2, None);
        assert!(most.contains("accounts/v19, and 2 more (azekura volume list)") && !most.contains("v20"), "{most}");
    }
}
