//! `azekura cluster …`: the whole cluster's settings, and its configuration.

use std::process::ExitCode;

use azekura_api::endpoint::{SettingsChange, SettingsShow};
use azekura_api::{ChangeSettings, NoQuery, Period, SettingsView};
use azekura_base::{ApiAccessError, TransportError};
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError, Here};

/// The whole cluster: its settings, and going on after its configuration was restored.
#[derive(Debug, Args)]
pub struct ClusterCommand<H: Here> {
    #[command(subcommand)]
    command: Cluster<H>,
}

#[derive(Debug, Subcommand)]
enum Cluster<H: Here> {
    /// Show all settings.
    Show(ApiArgs),
    /// Change a setting.
    #[command(after_help = "Settings:\n  \
        rehome-after   the copies of a node that has been absent for so long get new homes (10m; 'never')\n  \
        follow-after   a volume at home where it is attached has been used elsewhere for so long when its copy follows\n                 \
                       (5m; 'never')\n  \
        moves-at-once  most groups that move at once to empty a device or to fill a new one (8)\n  \
        nearly-full    share of a device's capacity from which on 'azekura status' warns (85%)\n  \
        full           share from which on it takes no more data from clients (95%); copies that lose their device\n                 \
                       may still come here, and deleting, TRIM and reading go on\n  \
        transport      how nodes talk with each other: 'plain', 'tls' (encrypted, with each node's key proved), or\n                 \
                       'both' (they dial with TLS and accept either) on the way from one to the other\n  \
        api-access     who is listened to by the REST API: 'open' (whoever reaches it), or 'grants' (who has a token, and\n                 \
                       who comes through a node's own socket)\n\n\
        Examples:\n  \
        azekura cluster set rehome-after 30m\n  \
        azekura cluster set rehome-after never     while many machines are being serviced\n  \
        azekura cluster set moves-at-once 2        slower, with less load on the devices\n  \
        azekura cluster set transport both         then, when all nodes know that: set transport tls")]
    Set(SetArgs),
    Restored(H::Restored),
}

#[derive(Debug, Args)]
struct SetArgs {
    /// The setting.
    #[arg(value_parser = ["rehome-after", "follow-after", "moves-at-once", "nearly-full", "full", "transport", "api-access"])]
    setting: String,
    /// Its new value.
    value: String,
    #[command(flatten)]
    api: ApiArgs,
}

impl<H: Here> ClusterCommand<H> {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let (api, settings): (ApiArgs, SettingsView) = match self.command {
            Cluster::Restored(arguments) => return H::restored(arguments),
            Cluster::Show(api) => {
                let settings = api.client()?.ask::<SettingsShow>([], &NoQuery {})?;
                (api, settings)
            }
            Cluster::Set(arguments) => {
                let change = change(&arguments.setting, &arguments.value)?;
                let settings = arguments.api.client()?.send::<SettingsChange>([], &change)?;
                (arguments.api, settings)
            }
        };
        if api.json { print_json(&settings) } else { print(&table(&settings)) }
    }
}

fn change(setting: &str, value: &str) -> Result<ChangeSettings, CliError> {
    let mut change = ChangeSettings::default();
    if setting == "moves-at-once" {
        let moves = value.parse().map_err(|_| CliError::new(format!("'{value}' is not a number of groups")))?;
        change.moves_at_once = Some(moves);
    } else if setting == "nearly-full" {
        change.nearly_full_percent = Some(percent(value)?);
    } else if setting == "full" {
        change.full_percent = Some(percent(value)?);
    } else if setting == "transport" {
        change.transport = Some(value.parse().map_err(|error: TransportError| CliError::new(error.to_string()))?);
    } else if setting == "api-access" {
        change.api_access = Some(value.parse().map_err(|error: ApiAccessError| CliError::new(error.to_string()))?);
    } else if setting == "follow-after" {
        change.follow_after_seconds = Some(period(value)?);
    } else {
        change.rehome_after_seconds = Some(period(value)?);
    }
    Ok(change)
}

/// Seconds; `None`: never.
fn period(value: &str) -> Result<Option<u64>, CliError> {
    if value == "never" {
        return Ok(None);
    }
    let Period(seconds) = value.parse().map_err(|error: String| CliError::new(format!("{error}, or never")))?;
    Ok(Some(seconds))
}

fn percent(value: &str) -> Result<u8, CliError> {
    let digits = value.strip_suffix('%').unwrap_or(value);
    let percent = digits.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| CliError::new(format!("'{value}' is no share such as 85%")))
}

fn table(settings: &SettingsView) -> String {
    let mut table = Table::new(&[("SETTING", Align::Left), ("VALUE", Align::Left)]);
    let period = |after: Option<u64>| after.map_or_else(|| "never".to_owned(), |after| Period(after).to_string());
    table.row(vec!["rehome-after".to_owned(), period(settings.rehome_after_seconds)]);
    table.row(vec!["follow-after".to_owned(), period(settings.follow_after_seconds)]);
    table.row(vec!["moves-at-once".to_owned(), settings.moves_at_once.to_string()]);
    table.row(vec!["nearly-full".to_owned(), format!("{}%", settings.nearly_full_percent)]);
    table.row(vec!["full".to_owned(), format!("{}%", settings.full_percent)]);
    table.row(vec!["transport".to_owned(), settings.transport.to_string()]);
    table.row(vec!["api-access".to_owned(), settings.api_access.to_string()]);
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{ApiAccess, Transport};

    #[test]
    fn settings_as_people_write_them() {
        assert_eq!(change("rehome-after", "10m").unwrap().rehome_after_seconds, Some(Some(600)));
        assert_eq!(change("rehome-after", "never").unwrap().rehome_after_seconds, Some(None));
        assert_eq!(change("moves-at-once", "3").unwrap().moves_at_once, Some(3));
        assert_eq!(change("follow-after", "1h").unwrap().follow_after_seconds, Some(Some(3600)));
        assert_eq!(change("follow-after", "never").unwrap().follow_after_seconds, Some(None));
        assert!(change("rehome-after", "soon").unwrap_err().to_string().contains("never"));
        assert!(change("moves-at-once", "10m").is_err());
        assert_eq!(change("full", "97%").unwrap().full_percent, Some(97));
        assert_eq!(change("nearly-full", "80").unwrap().nearly_full_percent, Some(80));
        assert!(change("full", "0").is_err() && change("full", "101%").is_err() && change("full", "much").is_err());
        assert_eq!(change("transport", "both").unwrap().transport, Some(Transport::Both));
        assert!(change("transport", "ssl").unwrap_err().to_string().contains("plain, both or tls"));
        assert_eq!(change("api-access", "grants").unwrap().api_access, Some(ApiAccess::Grants));
        assert!(change("api-access", "all").unwrap_err().to_string().contains("open or grants"));
        let never = SettingsView {
            rehome_after_seconds: None,
            follow_after_seconds: Some(300),
            moves_at_once: 8,
            nearly_full_percent: 85,
            full_percent: 95,
            transport: Transport::Tls,
            api_access: ApiAccess::Grants,
        };
        assert!(table(&never).contains("transport      tls\n"), "{}", table(&never));
        assert!(table(&never).contains("api-access     grants\n"), "{}", table(&never));
        assert!(table(&never).contains("rehome-after   never\n"), "{}", table(&never));
    }
}
