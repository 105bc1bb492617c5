//! `azekura support-bundle`: one archive with what somebody else needs to find out what is wrong, and without secrets.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use azekura_base::{Size, rfc3339_seconds};
use clap::Args;

use super::config_file::USUAL;
use super::output::{print, print_json};
use super::{ApiArgs, CliError, login};
use archive::{Bundle, Keep, Missing, Part, check_place, write_new};
use net::Net;
use options::Options;
use slow::Slow;

mod answers;
mod archive;
mod fields;
mod machine;
mod net;
mod options;
mod slow;
#[cfg(test)]
mod tests;

/// Where the package has the data folder.
const USUAL_DATA: &str = "/var/lib/azekura";
/// How standard output is named.
const PIPE: &str = "-";
const FACTS: &str = "machine/facts.txt";
const OPTIONS: &str = "machine/config.toml";
const JOURNAL: &str = "machine/journal.log";

/// Write an archive that tells others what they need to help: the cluster's state, counters, this machine's log, and no
/// secrets.
///
/// It takes in what the API tells this login (nodes, devices, groups, volumes, snapshots, targets, grants, space, jobs,
/// the audit), the metrics of each node that answers and, on a machine with a node, that node's log, its options and
/// facts such as memory and free space. Run it on the machine whose node is in trouble, as root, also when no node
/// answers any more.
///
/// Tokens, passwords, keys and secrets of hosts are not in it. Names of volumes, projects, nodes and people, and
/// addresses, are. What could not be had is named on standard error and in the archive's README.txt; that is no
/// failure.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura support-bundle                         azekura-support-TIME.tar.gz in this folder\n  \
    azekura support-bundle --output /tmp/b.tar.gz --hours 72\n  \
    azekura support-bundle --log /var/log/node.log where the node logs to a file\n  \
    tar -xOf b.tar.gz --wildcards '*/README.txt'   what is in it, and what is missing")]
pub struct BundleArgs {
    /// The file to write, which must not be there yet; - is standard output [default: azekura-support-TIME.tar.gz].
    #[arg(long, value_name = "FILE.tar.gz")]
    output: Option<PathBuf>,
    /// The log and the audit of so many last hours; of a log 8 MiB at most.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8760))]
    hours: u32,
    /// A file that a node logs to, in place of the journal of azekura.service. May be given often.
    #[arg(long, value_name = "FILE", conflicts_with = "no_log")]
    log: Vec<PathBuf>,
    /// No log at all.
    #[arg(long)]
    no_log: bool,
    /// The file with the options of this machine's node. Comments are left out, and so is the value of any option that
    /// this program does not know to be harmless.
    #[arg(long, value_name = "FILE", default_value = USUAL)]
    config_file: PathBuf,
    #[command(flatten)]
    api: ApiArgs,
}

/// What was made, for scripts.
#[derive(serde::Serialize)]
struct Made<'a> {
    file: &'a Path,
    bytes: usize,
    files: &'a [Part],
    missing: &'a [Missing],
}

impl BundleArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut net = Net::default();
        let options = self.options(&mut net);
        let mut bundle = Bundle::new(now, net);
        let path = self.output.clone().unwrap_or_else(|| format!("{}.tar.gz", bundle.name()).into());
        let is_piped = path == Path::new(PIPE);
        if !is_piped {
            check_place(&path)?;
        } else if self.api.json || std::io::stdout().is_terminal() {
            return Err(CliError::usage(
                "with --output - the archive goes to standard output, which has to be a file or a pipe",
            )
            .hint("azekura support-bundle --output - > b.tar.gz, and without --json"));
        }
        eprintln!(
            "taking in: what the API tells this login, the nodes' metrics; of a machine with a node also its log of {} \
             hours, its options and facts; no secrets",
            self.hours
        );
        let slow = Slow::new();
        let refused = answers::collect(&mut bundle, &self.api, self.hours, &slow);
        self.machine(&mut bundle, options, now, &slow);
        if bundle.parts().is_empty() {
            slow.end();
            let nothing = "so there is nothing to make a bundle of, and no file was written";
            return Err(refused.unwrap_or_else(|| CliError::new("nothing could be had")).after(nothing));
        }
        slow.tell("packing");
        let packed = bundle.pack().map_err(|error| CliError::new(format!("can't pack the bundle: {error}")))?;
        slow.end();
        tell_missing(bundle.missing());
        if is_piped {
            let written = std::io::stdout().lock().write_all(&packed);
            written.map_err(|error| CliError::new(format!("can't write to standard output: {error}")))?;
            eprint!("{}", outcome(&bundle, "standard output", packed.len()));
            return Ok(ExitCode::SUCCESS);
        }
        write_new(&path, &packed)?;
        if self.api.json {
            let (files, missing) = (bundle.parts(), bundle.missing());
            return print_json(&Made { file: &path, bytes: packed.len(), files, missing });
        }
        print(&outcome(&bundle, &path.display().to_string(), packed.len()))
    }

    /// The options of this machine's node, if it has any. The net learns all secrets that can be read here, to look for
    /// them; none of them is kept.
    fn options(&self, net: &mut Net) -> Result<Options, String> {
        login::tokens().iter().for_each(|token| net.know(token));
        let text = machine::read(&self.config_file)?;
        let options = options::read(&text, net).map_err(|why| format!("{}: {why}", self.config_file.display()))?;
        for path in &options.secret_files {
            if let Ok(text) = machine::read(path) {
                net.know_file(&text);
            }
        }
        Ok(options)
    }

    /// What this machine tells, if it has a node.
    fn machine(&self, bundle: &mut Bundle, options: Result<Options, String>, now: u64, slow: &Slow) {
        let of_socket = machine::data_of_socket(&self.api.api);
        let usual = Some(PathBuf::from(USUAL_DATA)).filter(|path| path.exists());
        let data = options.as_ref().ok().and_then(|options| options.data.clone()).or(of_socket).or(usual);
        if !self.config_file.exists() && data.is_none() && self.log.is_empty() {
            let config = self.config_file.display();
            let why = format!(
                "this machine seems to have no node: there is no {config}. Run the command on a node's machine for its log"
            );
            return bundle.lacks("machine", &why);
        }
        slow.tell("looking at this machine");
        let what = "The machine that the command ran on: kernel, processors, memory, the data folder's file system";
        bundle.text(FACTS, what, &machine::facts(data.as_deref()), Keep::Beginning);
        match options {
            Ok(options) => {
                let what = format!("The options of its node, from {}", self.config_file.display());
                bundle.text(OPTIONS, &what, &options.text, Keep::Beginning);
            }
            Err(why) => bundle.lacks(OPTIONS, &why),
        }
        if self.no_log {
            return bundle.lacks(JOURNAL, "--no-log was given");
        }
        if self.log.is_empty() {
            slow.tell("reading the journal");
            match machine::journal(self.hours) {
                Ok(text) => bundle.text(JOURNAL, "The journal of azekura.service", &text, Keep::End),
                Err(why) => bundle.lacks(JOURNAL, &why),
            }
        }
        let since = rfc3339_seconds(now.saturating_sub(u64::from(self.hours) * 3600));
        for (index, path) in self.log.iter().enumerate() {
            let file = format!("machine/{}.log", index + 1);
            slow.tell(&format!("reading {}", path.display()));
            match machine::log_file(path, since.trim_end_matches('Z')) {
                Ok(text) => bundle.text(&file, &format!("The log {}", path.display()), &text, Keep::End),
                Err(why) => bundle.lacks(&file, &why),
            }
        }
    }
}

/// What was made, for people.
fn outcome(bundle: &Bundle, place: &str, bytes: usize) -> String {
    let lacking = match bundle.missing().len() {
        0 => "nothing is missing".to_owned(),
        1 => "1 part is missing, as said above and in its README.txt".to_owned(),
        lacking => format!("{lacking} parts are missing, as said above and in its README.txt"),
    };
    // The list of files is in two of them.
    let (size, files) = (Size::new(bytes as u64), bundle.parts().len() + 2);
    format!(
        "{place}: {size}, {files} files; {lacking}\n\
         Read it before you give it away: names and addresses are in it.\n"
    )
}

/// A line for each reason, on standard error.
fn tell_missing(missing: &[Missing]) {
    for (index, Missing { why, .. }) in missing.iter().enumerate() {
        if missing[..index].iter().any(|before| before.why == *why) {
            continue;
        }
        let files = missing.iter().filter(|other| other.why == *why).map(|other| other.file.as_str());
        eprintln!("missing: {}: {why}", files.collect::<Vec<_>>().join(", "));
    }
}
