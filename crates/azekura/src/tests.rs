//! The command line's grammar.

use azekura_cli::grammar;

use super::*;

fn parse(line: &str) -> Result<clap::ArgMatches, clap::Error> {
    grammar::<Program>().try_get_matches_from(std::iter::once("azekura").chain(line.split_whitespace()))
}

#[test]
fn the_grammar_is_consistent() {
    grammar::<Program>().debug_assert();
}

#[test]
fn good_lines() {
    for line in [
        "node --data /tmp/x",
        "node --data /tmp/x --site=",
        "node --name n1 --data d --listen 127.0.0.1:7101 --api 127.0.0.1:7181 --config http://127.0.0.1:7179",
        "node list",
        "csi controller --api https://10.0.0.1:7180,https://10.0.0.2:7180 --token-file t --ca c --endpoint unix:///x",
        "csi node --node n1 --attach fuse --state /run/x",
        "csi orphans --json --older-than 7d --kubernetes http://127.0.0.1:8001",
        "csi orphans --delete --only-kubernetes --api unix:/x --volume-prefix v --snapshot-prefix s --project p",
        "node list --api http://127.0.0.1:1 --json",
        "volume create vol1 10GiB",
        "volume create vol1 10GiB --copies 2 --json --api http://127.0.0.1:7181",
        "volume create vol1 10G --class safe",
        "volume create vol1 10G --copies 3 --ack majority",
        "class create far --copies 4 --ack each-site",
        "class create here --copies 2 --home berlin/r1",
        "volume list",
        "volume ls --json",
        "volume show vol1",
        "volume delete vol1 --yes",
        "volume resize vol1 20GiB",
        "volume create vol1 10G --shared",
        "volume attach vol1 --node n2 --force --shared --json",
        "volume attach vol1 --node n2 --exclusive",
        "volume detach vol1",
        "volume detach vol1 --force",
        "volume detach vol1 --node n2 --json",
        "volume create vol2 --from vol1@monday",
        "volume create vol2 20G --from vol1@monday --shared",
        "volume delete vol1 --yes --force --snapshots",
        "volume resize vol1 5GiB --shrink --force",
        "volume clone vol1 copy --json",
        "volume clone vol1@14:03:20 look --shared",
        "volume revert vol1 --at 14:03:20 --force",
        "volume protect vol1 --every 10s --keep 1h --then 1h:24h,1d:30d",
        "volume protect vol1 --off",
        "snapshot create vol1",
        "snapshot create vol1@monday --with vol2 --with vol3 --json",
        "snapshot list",
        "snapshot ls vol1 --json",
        "snapshot show vol1@monday",
        "snapshot delete vol1@monday vol1@tuesday",
        "snapshot diff vol1@monday",
        "snapshot diff vol1@monday vol1@tuesday --json",
        "snapshot diff vol1@monday vol1 --api http://127.0.0.1:1",
        "snapshot revert vol1@monday --force",
        "class list",
        "class create safe --copies 3 --copies-min 2 --failure-domain rack --overcommit 1.5",
        "class create patient --copies 2 --io-timeout never",
        "class create hasty --copies 2 --io-timeout 5s",
        "class show safe",
        "device list",
        "device drain 3 --wait 60",
        "device drain n1/device-0 --json",
        "device undrain 3",
        "node drain n1 --wait 60",
        "node undrain n1 --api http://127.0.0.1:1",
        "cluster show --json",
        "cluster set rehome-after 10m",
        "cluster set moves-at-once 4",
        "group list --json",
        "status --wait 60 --nodes 3",
        "top --once --json --interval 0.5",
        "store check /tmp/x --deep --json",
        "store dump /tmp/x",
        "store rebuild-map /tmp/x --dry-run --json",
        "store rebuild-map /tmp/x --accept-possibly-old=all",
        "store rebuild-map /tmp/x --accept-possibly-old --anyway --data /tmp/y --memory 8GiB",
        "completion bash",
        "version --json",
    ] {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn bad_lines() {
    for line in [
        "",
        "frobnicate",
        "volume",
        "volume create",
        "volume create v",
        "volume create v lots",
        "volume create v -1G",
        "volume create v 1G --copies 0",
        "volume create v 1G --ack some",
        "volume create -x 1G",
        "volume resize v",
        "volume create v --from s@x --copies 2",
        "volume resize v 1G --force",
        "volume clone v",
        "volume revert v",
        "volume protect v",
        "volume protect v --every 10s",
        "volume protect v --every 10s --keep 1h --then 1h",
        "volume protect v --off --every 10s",
        "snapshot create @x",
        "snapshot delete",
        "snapshot diff",
        "snapshot diff vol1@a @b",
        "snapshot diff vol1@a vol1@b vol1@c",
        "volume attach v",
        "volume attach v --node n1 --shared --exclusive",
        "node",
        "node --name x",
        "node list --data d",
        "node drain",
        "device drain",
        "device drain 3 --wait soon",
        "cluster set rehome-after",
        "cluster set colour red",
        "node --data d list",
        "class create c",
        "class create c --copies 2 --failure-domain planet",
        "class create c --copies 2 --io-timeout 30",
        "status --wait soon",
        "top --interval 0",
        "completion tcsh",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_bad_size_says_what_is_accepted() {
    let error = parse("volume create v lots").unwrap_err().to_string();
    assert!(error.contains("10GiB") && error.contains("lots"), "{error}");
}

#[test]
fn every_command_explains_itself() {
    fn walk(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{} has no explanation", command.get_name());
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
        command.get_subcommands().for_each(walk);
    }
    walk(&grammar::<Program>());
}

#[test]
fn commands_about_nodes_offer_no_devices() {
    let grammar = azekura_cli::grammar::<Program>();
    for (of, other) in [("node", "NODE/NAME"), ("device", "node's name")] {
        for command in ["drain", "undrain", "remove"] {
            let mut found = grammar.clone();
            let found = found.find_subcommand_mut(of).and_then(|group| group.find_subcommand_mut(command)).unwrap();
            let help = found.render_long_help().to_string();
            assert!(!help.contains(other), "{of} {command}: {help}");
            assert!(
                !help.contains(if of == "node" { "device remove" } else { "node remove" }),
                "{of} {command}: {help}"
            );
        }
    }
}
