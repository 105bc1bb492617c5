//! `azekura audit`: who has changed what.

use std::process::ExitCode;

use azekura_api::endpoint::AuditShow;
use azekura_api::{AuditEntry, AuditQuery};
use clap::Args;

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// Who has changed what, through which node, and from where.
///
/// The cluster keeps the last 10,000 changes that somebody has asked for; a role that is not admin does not see them.
/// The nodes' logs have a line of each, too. What nodes do by themselves is not in here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura audit --since '2 days ago'\n  \
    azekura audit --who ann --json")]
pub struct AuditArgs {
    /// Only what was changed since then: 2026-11-26T10:00:00Z, '2 days ago', 10:30.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what this grant has changed, by its name or number, or who is called so else ('the node's user',
    /// 'anybody').
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl AuditArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let mut query = AuditQuery { since: self.since, who: self.who, after: None, limit: None };
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        loop {
            let page = client.ask::<AuditShow>([], &query)?;
            records.extend(page.records);
            unreadable.extend(page.unreadable);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        if let Some(first) = unreadable.first() {
            let count = unreadable.len();
            eprintln!(
                "warning: {count} records can't be read and are not shown, the first one of {first}: they are damaged, or of another version"
            );
        }
        if self.api.json { print_json(&records) } else { print(&table(&records)) }
    }
}

fn table(records: &[AuditEntry]) -> String {
    let columns = ["TIME", "WHO", "ROLE", "FROM", "NODE", "WHAT", "REVISION"];
    let mut table = Table::new(&columns.map(|title| (title, Align::Left)));
    for record in records {
        let at = record.at.split('.').next().unwrap_or_default();
        let what = format!("{} {}", record.method, record.path);
        let what = if record.details.is_null() { what } else { format!("{what} {}", record.details) };
        let (who, from, node) = (record.who.clone(), record.from.clone(), record.node.clone());
        table.row(vec![format!("{at}Z"), who, record.role.to_string(), from, node, what, record.revision.to_string()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::Role;

    #[test]
    fn a_table_tells_who_has_changed_what() {
        let entry = AuditEntry {
            at: "2026-11-26T10:00:00.000000007Z".to_owned(),
            who: "ann".to_owned(),
            proof: "token".to_owned(),
            grant: Some("063UfDVRKBz".to_owned()),
            role: Role::Operator,
            from: "10.0.0.9".to_owned(),
            node: "n1".to_owned(),
            operation: "NodeRemove".to_owned(),
            method: "DELETE".to_owned(),
            path: "/v1/nodes/n3".to_owned(),
            details: serde_json::json!({ "query": { "lost": true } }),
            revision: 77,
        };
        let text = table(&[entry]);
        for told in ["2026-11-26T10:00:00Z", "ann", "10.0.0.9", r#"DELETE /v1/nodes/n3 {"query":{"lost":true}}"#, "77"]
        {
            assert!(text.contains(told), "{told}: {text}");
        }
    }
}
