//! `azekura node shut-out`, `node let-in`: a machine that is not trusted any more.

use std::process::ExitCode;

use azekura_api::endpoint::{NodeLetIn, NodeShutOut};
use azekura_api::{LetInNode, ShutOutNode, ShutOutView};
use azekura_base::PeerKey;
use clap::Args;

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// A node whose machine somebody else may have.
#[derive(Debug, Args)]
#[command(
    after_help = "At once, for all nodes: its key proves nothing any more, so nodes hang up on it and give it no secrets; its \
    volumes are taken away from its clients; another certificate authority takes the place of the one whose key it has, so \
    all clients log in anew. What is still to be done is told, and all grants that it may have made or seen are listed.\n\n\
    Its copies count as those of an absent node. To go on:\n  \
    azekura node let-in n3 --key KEY       its machine is installed anew, and has made a new key\n  \
    azekura node remove n3 --lost          its copies are made anew from the others'"
)]
pub struct ShutOutArgs {
    /// The node's name.
    name: String,
    /// List grants only that were made since then: 2026-11-26T10:00:00Z, '2 days ago'.
    #[arg(long, value_name = "TIME")]
    grants_since: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// A node that was shut out.
#[derive(Debug, Args)]
#[command(
    after_help = "On its machine, once it can be trusted again: move identity/node.key in the data folder away and start the \
    node. It makes another key, is refused, and names the key. Give that key here, and start the node once more."
)]
pub struct LetInArgs {
    /// The node's name.
    name: String,
    /// The key that its machine has made anew.
    #[arg(long, value_name = "KEY", required_unless_present = "same_keys", conflicts_with = "same_keys")]
    key: Option<PeerKey>,
    /// It was shut out by mistake: the keys that it had are good.
    #[arg(long)]
    same_keys: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl ShutOutArgs {
    /// Shuts the node out.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let body = ShutOutNode { grants_since: self.grants_since };
        let done = self.api.client()?.send::<NodeShutOut>([self.name], &body)?;
        if self.api.json { print_json(&done) } else { print(&text(&done)) }
    }
}

fn text(done: &ShutOutView) -> String {
    let mut text = format!("Node {} is shut out.\n", done.node);
    if let Some(authority) = &done.authority {
        text += &format!(
            "Clients have to log in anew: azekura login --ca-fingerprint {} (authority {})\n",
            authority.fingerprint, authority.number
        );
    }
    for volume in &done.detached {
        text += &format!("Volume {volume} is taken away from its clients.\n");
    }
    if !done.grants.is_empty() {
        text +=
            "Look through these grants, and revoke those that it may have made or seen (azekura token revoke NAME):\n";
        for grant in &done.grants {
            text += &format!("  {} ({}), made {} by {}\n", grant.name, grant.role, grant.created, grant.by);
        }
    }
    for undone in &done.undone {
        text += &format!("To be done: {undone}\n");
    }
    text
}

impl LetInArgs {
    /// Lets the node in.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let body = LetInNode { key: self.key, same_keys: self.same_keys };
        self.api.client()?.send::<NodeLetIn>([self.name.clone()], &body)?;
        if self.api.json {
            return print_json(&serde_json::json!({ "let_in": self.name }));
        }
        print(&format!("Node {} is let in: start it.\n", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_is_told() {
        let view = serde_json::json!({ "node": "n3", "authority": { "number": 2, "fingerprint": "ab", "certificate": "",
            "created": "", "by": "" }, "detached": ["v"], "undone": ["this"], "grants": [{ "id": "1", "name": "ann",
            "role": "user", "project": "default", "until": null, "created": "monday", "by": "bob" }] });
        let text = text(&serde_json::from_value(view).unwrap());
        for told in
            ["n3 is shut out", "--ca-fingerprint ab", "Volume v", "ann (user), made monday by bob", "done: this"]
        {
            assert!(text.contains(told), "{told}: {text}");
        }
    }
}
