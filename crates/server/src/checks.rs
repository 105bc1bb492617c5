//! What a node says about its options before it touches anything: `azekura config check` asks the same.

use crate::args::NodeArgs;
use crate::disk::memory::map_bytes;
use crate::disk::room;
use anyhow::{Context, Result, anyhow, ensure};
use azekura_frontend::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN};
use azekura_model::Kind;
use azekura_model::transitions::volumes::check_name;
use std::path::Path;

/// Refuses options that can't be, or contradict each other. What depends on the devices that there are is checked again
/// when their number is known.
///
/// # Errors
/// Names the option, as `--NAME`, and says what it can be.
pub fn check(args: &NodeArgs) -> Result<()> {
    ensure!(
        !args.listen.ip().is_unspecified(),
        "--listen {} is announced to other nodes, so it must be an address that they can reach",
        args.listen
    );
    ensure!(
        !args.config.is_empty() || args.serve_config.is_some(),
        "where is the cluster's configuration? Give --config URL, or --serve-config IP:PORT to keep it in this node"
    );
    let name = node_name(args)?;
    check_name(Kind::Node, &name).map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        let default = if args.name.is_some() { "" } else { ", which is the host's" };
        anyhow!("--name {name:?}{default}: {error}; {hint}")
    })?;
    args.device_size.map_or(Ok(()), |size| room::check_size(size.bytes()))?;
    map_bytes(args.memory.map(|size| size.bytes()), devices_at_least(args))?;
    client_memory(args, if args.shards_without_devices { args.shard_count().get() } else { 1 })?;
    args.keys.data_keys().map(drop)
}

/// What a node starts with all the same, and tells of when it is needed.
#[must_use]
pub fn notes(args: &NodeArgs) -> Vec<String> {
    let keys = &args.keys;
    let files = [
        ("key-file", &keys.key_file),
        ("vault-token-file", &keys.vault_token_file),
        ("kmip-keys", &keys.kmip_keys),
        ("kmip-ca", &keys.kmip_ca),
        ("kmip-certificate", &keys.kmip_certificate),
        ("kmip-private-key", &keys.kmip_private_key),
    ];
    let named = files.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)));
    let missing = named.filter_map(|(option, path)| Some((option, path, std::fs::metadata(path).err()?)));
    missing
        .map(|(option, path, error)| {
            format!("{option} = {path:?} can't be used ({error}): encrypted volumes are not served until it can")
        })
        .collect()
}

/// Devices that the node has at its start, or more.
fn devices_at_least(args: &NodeArgs) -> usize {
    let is_device = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with("device-"));
    let has_some = |data: &Path| {
        std::fs::read_dir(data).is_ok_and(|found| found.flatten().any(|entry| is_device(&entry.file_name())))
    };
    if args.device_size.is_some() && !has_some(&args.data) { args.devices as usize } else { 1 }
}

/// Memory for what clients have on its way, in bytes: each shard has its part, in which the longest request must have
/// room.
///
/// # Errors
/// When what was said is too little for so many shards.
pub fn client_memory(args: &NodeArgs, shards: u8) -> Result<usize> {
    let least = MEMORY_BYTES_MIN * usize::from(shards);
    let Some(said) = args.client_memory else { return Ok(MEMORY_BYTES_MAX.max(least)) };
    let bytes = usize::try_from(said.bytes()).unwrap_or(usize::MAX);
    ensure!(
        bytes >= least,
        "--client-memory {said} is too little: the longest request needs {} MiB in each of {shards} shards",
        MEMORY_BYTES_MIN >> 20
    );
    Ok(bytes)
}

/// What the node is called.
///
/// # Errors
/// When nobody has said that, and the host's name can't be read.
pub fn node_name(args: &NodeArgs) -> Result<String> {
    match &args.name {
        Some(name) => Ok(name.clone()),
        None => {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("can't read the host's name")?;
            Ok(host.trim().to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn read(options: &[&str]) -> NodeArgs {
        let command = <NodeArgs as clap::Args>::augment_args(clap::Command::new("node").no_binary_name(true));
        let usual = ["--data", "/nowhere/d", "--name", "n1", "--serve-config", "127.0.0.1:7179"];
        // What is said again takes the place of what was said.
        let all = usual.iter().chain(options);
        NodeArgs::from_arg_matches(&command.args_override_self(true).get_matches_from(all)).unwrap()
    }

    #[test]
    fn what_a_node_would_refuse_is_told_by_its_option() {
        assert!(check(&read(&[])).is_ok());
        for (options, named) in [
            (&["--name", "a 4"][..], "--name \"a 4\""),
            (&["--name", ""], "--name \"\""),
            (&["--listen", "0.0.0.0:7101"], "--listen 0.0.0.0:7101"),
            (&["--device-size", "1MiB"], "at least 320MiB"),
            (&["--memory", "1KiB"], "--memory 1KiB"),
            (&["--memory", "3MiB", "--device-size", "1GiB", "--devices", "2"], "at least 4 MiB"),
            (&["--client-memory", "1MiB"], "--client-memory 1MiB"),
            (&["--wrap-keys", "file"], "--key-file"),
        ] {
            let error = check(&read(options)).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("--"), "{options:?}: {error}");
        }
    }

    #[test]
    fn a_key_file_that_is_not_there_keeps_no_node_from_its_copies() {
        let args = read(&["--key-file", "/nowhere/kek"]);
        assert!(check(&args).is_ok() && notes(&read(&[])).is_empty());
        let notes = notes(&args);
        assert!(notes.len() == 1 && notes[0].starts_with("key-file = \"/nowhere/kek\""), "{notes:?}");
    }
}
