//! `azekura ca …`: the certificate authority by which clients know the cluster's nodes.

use std::process::ExitCode;

use azekura_api::endpoint::{AuthorityReplace, AuthorityShow};
use azekura_api::{AuthorityView, NoBody, NoQuery};
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// The certificate authority by which clients know the cluster's nodes.
///
/// The first node makes it, and every node has its key. It signs the certificates that nodes show over https://, for
/// 30 days each; they are made anew in time, without a restart.
#[derive(Debug, Args)]
pub struct CaCommand {
    #[command(subcommand)]
    command: CaAction,
}

#[derive(Debug, Subcommand)]
enum CaAction {
    /// Show its fingerprint and certificate. No secret: clients need it to know the nodes.
    #[command(after_help = "Examples:\n  \
        azekura ca show --api unix:/var/lib/azekura/api.sock > azekura-ca.pem\n  \
        curl --cacert azekura-ca.pem https://10.0.0.1:7180/v1/health")]
    Show(ApiArgs),
    /// Make another one take its place, at once and for all nodes. Who knows the one before goes on trusting the nodes;
    /// who must not (its key was stolen), logs in anew by the new one's fingerprint.
    Replace(ApiArgs),
}

impl CaCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let (api, authority) = match self.command {
            CaAction::Show(api) => {
                let shown = api.client()?.ask::<AuthorityShow>([], &NoQuery {})?;
                (api, shown)
            }
            CaAction::Replace(api) => {
                let made = api.client()?.send::<AuthorityReplace>([], &NoBody {})?;
                (api, made)
            }
        };
        if api.json { print_json(&authority) } else { print(&text(&authority)) }
    }
}

/// Whatever reads PEM skips what stands before.
fn text(authority: &AuthorityView) -> String {
    let AuthorityView { number, fingerprint, certificate, created, by } = authority;
    format!("authority:    {number}\nfingerprint:  {fingerprint}\nmade:         {created} by {by}\n{certificate}")
}
