//! `azekura token …`: who may ask the API, and what.

use std::process::ExitCode;

use azekura_api::endpoint::{GrantCreate, GrantList, GrantRevoke};
use azekura_api::{CreateGrant, GrantProof, GrantView, NoQuery, Period, Role};
use azekura_base::{DEFAULT_PROJECT, RoleError};
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// Tokens: who may ask the API, and what.
///
/// A token has a role, which says what its owner may. Where the setting api-access is 'open' nobody needs one
/// ('azekura cluster show'); on a node's own machine its user needs none either: --api unix:DIR/api.sock, DIR being the
/// node's --data.
#[derive(Debug, Args)]
pub struct TokenCommand {
    #[command(subcommand)]
    command: TokenAction,
}

#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Make a token. It is printed once, and kept nowhere: only its owner has it.
    #[command(after_help = "Roles:\n  \
        admin      everything\n  \
        operator   nodes, devices, classes, scrubs, drains; sees all volumes, opens and deletes none\n  \
        owner      volumes and snapshots, and tokens for owners, users and csi\n  \
        user       volumes and snapshots\n  \
        csi        as user, for an orchestrator's volume driver\n  \
        metrics    a node's counters (/metrics) and health\n\n\
        Examples:\n  \
        azekura token create ann --role operator --ends-after 90d\n  \
        azekura token create prometheus --role metrics > /etc/prometheus/azekura.token\n  \
        (umask 077; azekura token create n4 --join --for 1h > n4.token)\n\n\
        Its owner gives it to 'azekura login', or names a file with it in AZEKURA_TOKEN_FILE. Others send it as\n\
        'Authorization: Bearer TOKEN', over https:// (azekura ca show).")]
    Create(CreateArgs),
    /// List all tokens that one may make: who has them, never the tokens themselves.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Revoke a token: from then on it opens nothing, at any node that reaches the configuration.
    #[command(visible_alias = "rm")]
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// A name for people: who has it, or what for.
    name: String,
    /// What its owner may: admin, operator, owner, user, csi or metrics.
    #[arg(long, value_parser = role, required_unless_present = "join", conflicts_with = "join")]
    role: Option<Role>,
    /// A machine becomes a node with it, once: azekura node --join URL --token-file FILE. Only admins make such.
    #[arg(long)]
    join: bool,
    /// The project that it is about [default: one's own, or 'default'].
    #[arg(long, value_name = "PROJECT", conflicts_with = "join")]
    project: Option<String>,
    /// When it ends: 12h, 90d [default: when it is revoked; with --join: after an hour, and after 7d at most].
    #[arg(long, value_name = "TIME", visible_alias = "for")]
    ends_after: Option<Period>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    /// Its name, as lists have it, or its number.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

impl RevokeArgs {
    /// Revokes a grant, whatever proves it.
    pub(super) fn run(self) -> Result<ExitCode, CliError> {
        let RevokeArgs { name, api } = self;
        api.client()?.ask::<GrantRevoke>([name.clone()], &NoQuery {})?;
        if api.json {
            print_json(&serde_json::json!({ "revoked": name }))
        } else {
            print(&format!("{name} is revoked\n"))
        }
    }
}

pub(super) fn role(text: &str) -> Result<Role, RoleError> {
    text.parse()
}

impl TokenCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            TokenAction::Create(CreateArgs { name, role, join: _, project, ends_after, api }) => {
                let role = role.unwrap_or(Role::Join);
                let ends_after_seconds = ends_after.map(|Period(seconds)| seconds);
                let body = CreateGrant { name, role, project, ends_after_seconds };
                let made = api.client()?.send::<GrantCreate>([], &body)?;
                if api.json { print_json(&made) } else { print(&format!("{}\n", made.token)) }
            }
            TokenAction::List(api) => {
                let mut grants = api.client()?.ask::<GrantList>([], &NoQuery {})?;
                grants.retain(|grant| grant.proof == GrantProof::Token);
                if api.json { print_json(&grants) } else { print(&table(&grants)) }
            }
            TokenAction::Revoke(arguments) => arguments.run(),
        }
    }
}

/// A grant's name, by which it is revoked: with its project, where that is not the default one.
pub(super) fn name_of(grant: &GrantView) -> String {
    if grant.project == DEFAULT_PROJECT { grant.name.clone() } else { format!("{}/{}", grant.project, grant.name) }
}

fn table(grants: &[GrantView]) -> String {
    let columns = ["NAME", "ROLE", "ENDS", "CREATED", "BY", "NUMBER"].map(|title| (title, Align::Left));
    let mut table = Table::new(&columns);
    for grant in grants {
        let ends = grant.until.clone().unwrap_or_else(|| "never".to_owned());
        let (created, by) = (grant.created.clone(), grant.by.clone());
        table.row(vec![name_of(grant), grant.role.to_string(), ends, created, by, grant.id.clone()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_who_may_what_until_when() {
        let grant = GrantView {
            id: "063UfDVRKBz".into(),
            name: "ann".into(),
            role: Role::Operator,
            proof: GrantProof::Token,
            key: None,
            project: "default".into(),
            volumes: None,
            host: None,
            until: None,
            created: "2026-11-26T10:00:00Z".into(),
            by: "the node's user".into(),
        };
        let text = table(&[grant.clone(), GrantView { project: "p".into(), name: "bob".into(), ..grant }]);
        assert!(
            text.contains("p/bob") && text.contains("ann") && text.contains("operator") && text.contains("never"),
            "{text}"
        );
        assert!(role("root").is_err_and(|error| error.to_string().contains("metrics")));
        assert!(role("node").is_err() && role("join").is_err());
    }
}
