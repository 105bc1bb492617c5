//! `azekura kek …`: the keys that the keys of encrypted volumes are wrapped with.

use std::process::ExitCode;

use azekura_api::endpoint::{KekRewrap, KekShow};
use azekura_api::{KekView, NoQuery, RewrapKeys, RewrappedView};
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::progress::Progress;
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// The keys that the keys of encrypted volumes are wrapped with (KEKs).
///
/// They are in each node's --key-file, a line a version, in Vault (--vault), or on a KMIP server (--kmip). Rotation:
/// add a line with a higher version and a new key to the file of every node, as it is read anew by itself, or have
/// Vault rotate its key; run 'azekura kek rewrap'; and take the older version away when 'azekura kek show' says that it
/// wraps nothing. The same command moves all keys to the provider that nodes' --wrap-keys names. No block of a volume
/// is written for that (docs/operations/keys.md).
#[derive(Debug, Args)]
pub struct KekCommand {
    #[command(subcommand)]
    command: KekAction,
}

#[derive(Debug, Subcommand)]
enum KekAction {
    /// Show which versions wrap how many keys, and which nodes have them.
    Show(ApiArgs),
    /// Wrap all keys of encrypted volumes with the newest version of the provider that wraps new ones. Refused while a
    /// node does not have that.
    #[command(after_help = "Examples:\n  \
        echo \"2 $(openssl rand -hex 32)\" >> /etc/azekura/kek     # the same line on every node\n  \
        azekura kek rewrap && azekura kek show\n  \
        bao write -f transit/keys/azekura/rotate && azekura kek rewrap     # the same with --vault")]
    Rewrap(RewrapArgs),
}

#[derive(Debug, Args)]
struct RewrapArgs {
    /// Also while nodes give no sign of life. One that comes back without the new version serves no encrypted volume
    /// until its file has it.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl KekCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            KekAction::Show(api) => {
                let shown = api.client()?.ask::<KekShow>([], &NoQuery {})?;
                if api.json { print_json(&shown) } else { print(&text(&shown)) }
            }
            KekAction::Rewrap(args) => args.run(),
        }
    }
}

impl RewrapArgs {
    fn run(self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let mut progress = Progress::new();
        let mut asked = RewrapKeys { force: self.force, after: None };
        let mut all = client.send::<KekRewrap>([], &asked)?;
        while all.next.is_some() && all.next != asked.after {
            let done = all.rewrapped;
            progress.part(done, done + all.left, format!("{done} of {} wrapped anew", keys_are(done + all.left)));
            asked.after = all.next;
            let part = client.send::<KekRewrap>([], &asked)?;
            all.failed.extend(part.failed);
            all = RewrappedView { rewrapped: done + part.rewrapped, failed: all.failed, ..part };
        }
        drop(progress);
        let is_whole = all.left == 0 && all.failed.is_empty();
        if self.api.json {
            print_json(&all)?;
        } else {
            all.failed.iter().for_each(|failed| eprintln!("warning: {failed}"));
            if all.left > 0 {
                eprintln!("warning: {} still wrapped with an older version: run it again", keys_are(all.left));
            }
            let RewrappedView { provider, version, rewrapped, by_secrets, .. } = &all;
            let mut text = format!("{} wrapped anew, with version {version} of '{provider}'\n", keys_are(*rewrapped));
            if *by_secrets > 0 {
                text += &format!("{} still wrapped with {}\n", keys_are(*by_secrets), own_secrets(*by_secrets));
            }
            print(&text)?;
        }
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// So many keys, as the subject of a sentence.
fn keys_are(number: u64) -> String {
    if number == 1 { "1 key is".to_owned() } else { format!("{number} keys are") }
}

fn own_secrets(number: u64) -> &'static str {
    if number == 1 { "its volume's own secret" } else { "their volumes' own secrets" }
}

fn text(view: &KekView) -> String {
    let mut versions = Table::new(&[
        ("PROVIDER", Align::Left),
        ("VERSION", Align::Right),
        ("KEYS", Align::Right),
        ("NODES", Align::Left),
    ]);
    for version in &view.versions {
        let is_it =
            |kek: &azekura_api::NodeKekView| (&kek.provider, kek.version) == (&version.provider, version.version);
        let has = |node: &&azekura_api::NodeKeksView| node.keks.iter().any(is_it);
        let nodes: Vec<&str> = view.nodes.iter().filter(has).map(|node| node.name.as_str()).collect();
        versions.row(vec![
            version.provider.clone(),
            version.version.to_string(),
            version.keys.to_string(),
            nodes.join(", "),
        ]);
    }
    let mut text = versions.render();
    for (name, problem) in view.nodes.iter().filter_map(|node| Some((&node.name, node.problem.as_ref()?))) {
        text += &format!("{name}: {problem}\n");
    }
    if view.by_secrets > 0 {
        text += &format!("besides, {} wrapped with {}\n", keys_are(view.by_secrets), own_secrets(view.by_secrets));
    }
    match (&view.why_not, view.newest) {
        (Some(why), _) => text += &format!("can't be wrapped anew now: {why}\n"),
        (None, Some(newest)) => {
            let is_newest =
                |kek: &azekura_api::KekVersionView| Some(&kek.provider) == view.wraps.as_ref() && kek.version == newest;
            if view.versions.iter().any(|version| version.keys > 0 && !is_newest(version)) {
                let wraps = view.wraps.as_deref().unwrap_or("file");
                text += &format!("to wrap all with version {newest} of '{wraps}': azekura kek rewrap\n");
            }
        }
        _ => {}
    }
    text
}
