//! A node's options from a file (`azekura node --config-file`): a TOML document, whose table `node` has each option by
//! its long name. What the command line or the environment says comes before it.
//!
//! The file's options become words of the command line, so that both are understood, and refused, by the same rules.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::builder::ArgAction;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use toml::de::{DeTable, DeValue};

use super::CliError;

#[cfg(test)]
mod tests;

/// The option that names the file.
pub const OPTION: &str = "config-file";
/// Where packages put it.
pub const USUAL: &str = "/etc/azekura/config.toml";
/// Name of the command, and of its table.
pub const NODE: &str = "node";
/// Options that are for one start, or for one way of asking.
const NOT_IN_FILES: [&str; 4] = [OPTION, "replace-key", "help", "version"];
/// Width of the example's comments.
const WIDTH: usize = 100;

/// A file that was read.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// A key and what it says.
#[derive(Debug)]
struct Entry {
    key: String,
    line: usize,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Flag(bool),
    One(String),
    Many(Vec<String>),
}

/// The option itself.
pub fn option() -> Arg {
    Arg::new(OPTION)
        .long(OPTION)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Take options that are given neither here nor in the environment from the table [node] of this TOML file")
        .long_help(format!(
            "Take options that are given neither here nor in the environment from the table [node] of this TOML file: \
             each by its name, as in listen = \"10.0.0.1:7101\". 'azekura config example' prints one with all of them, \
             'azekura config check' checks one; packages have it at {USUAL}"
        ))
}

/// An option of a node that may be in a file.
fn is_in_files(option: &Arg) -> bool {
    option.get_long().is_some_and(|name| !NOT_IN_FILES.contains(&name)) && !option.is_hide_set()
}

/// An option takes several values.
fn takes_many(option: &Arg) -> bool {
    option.get_value_delimiter().is_some() || matches!(option.get_action(), ArgAction::Append)
}

/// `HOST:PORT` is this machine alone.
fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the file, and the line where something can't be understood.
    pub fn read(path: &Path) -> Result<ConfigFile, CliError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            CliError::new(format!("can't read {}: {error}", path.display()))
                .hint("'azekura config example' prints a file to begin with")
        })?;
        ConfigFile::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<ConfigFile, CliError> {
        let told = |at: Option<usize>, what: &str| {
            let line = at.map(|at| format!(", line {}", line_of(text, at))).unwrap_or_default();
            CliError::new(format!("{}{line}: {what}", path.display()))
        };
        let document = DeTable::parse(text)
            .map_err(|error| told(error.span().map(|span| span.start), error.message()).hint("the file is TOML"))?;
        let mut entries = Vec::new();
        for (name, table) in document.get_ref() {
            let at = Some(name.span().start);
            let (NODE, DeValue::Table(table)) = (name.get_ref().as_ref(), table.get_ref()) else {
                let what = format!("there is no table {}: options are in [{NODE}]", name.get_ref());
                return Err(told(at, &what));
            };
            for (key, value) in table {
                let (key, at) = (key.get_ref().to_string(), key.span().start);
                let value = value_of(value.get_ref()).map_err(|what| told(Some(at), &format!("{key} {what}")))?;
                entries.push(Entry { key, line: line_of(text, at), value });
            }
        }
        Ok(ConfigFile { path: path.to_owned(), entries })
    }

    /// How many options the file has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is allowed and dangerous: the configuration without TLS at an address that others reach.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let plain = self.values("serve-config-transport").any(|transport| transport == "plain");
        let served = self.values("serve-config").filter(|address| plain && !is_local(address));
        let served = served
            .map(|address| format!("serve-config = \"{address}\" is without TLS: whoever reaches it owns the cluster"));
        let asked = self.values("config").flat_map(|list| list.split(','));
        let asked = asked.map(str::trim).filter(|url| !url.starts_with("https://"));
        let asked = asked.filter(|url| !is_local(url.strip_prefix("http://").unwrap_or(url)));
        let asked = asked.map(|url| {
            format!("config = \"{url}\" is asked without TLS, and whoever reaches it owns the cluster: write https://")
        });
        served.chain(asked).collect()
    }

    /// What the file says of an option.
    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let entries = self.entries.iter().filter(move |entry| entry.key == name);
        let words: Vec<&str> = entries
            .flat_map(|entry| match &entry.value {
                Value::Flag(_) => Vec::new(),
                Value::One(word) => vec![word.as_str()],
                Value::Many(words) => words.iter().map(String::as_str).collect(),
            })
            .collect();
        words.into_iter()
    }

    fn told(&self, entry: &Entry, what: &str) -> CliError {
        CliError::new(format!("{}, line {}: {}: {what}", self.path.display(), entry.line, entry.key))
            .hint("'azekura config example' prints a file with all options and what they mean")
    }

    /// The words of a command line that say what the file says, but for options that are `given` already.
    fn words(&self, node: &Command, given: impl Fn(&Arg) -> bool) -> Result<Vec<OsString>, CliError> {
        let mut words = Vec::new();
        for entry in &self.entries {
            let option = node.get_arguments().find(|option| option.get_long() == Some(entry.key.as_str()));
            let option = match option {
                Some(option) if is_in_files(option) => option,
                Some(_) => return Err(self.told(entry, "this is for the command line alone")),
                None => return Err(self.told(entry, "there is no such option")),
            };
            let is_flag = !option.get_action().takes_values();
            let wrong = match &entry.value {
                Value::Flag(_) if is_flag => None,
                _ if is_flag => Some("true or false"),
                Value::Flag(_) => Some("a value, and neither true nor false"),
                Value::Many(_) if !takes_many(option) => Some("one value, and no list"),
                Value::One(_) | Value::Many(_) => None,
            };
            if let Some(wanted) = wrong {
                return Err(self.told(entry, &format!("this takes {wanted}")));
            }
            if given(option) {
                continue;
            }
            match &entry.value {
                Value::Flag(true) => words.push(format!("--{}", entry.key).into()),
                Value::Flag(false) => {}
                Value::One(value) => words.push(format!("--{}={value}", entry.key).into()),
                Value::Many(values) => {
                    words.extend(values.iter().map(|value| format!("--{}={value}", entry.key).into()))
                }
            }
        }
        Ok(words)
    }

    /// What a node says against an option that it names as `--NAME`, by the file's line if it is there.
    fn blame(&self, reason: &str) -> CliError {
        let named = |entry: &&Entry| {
            let option = format!("--{}", entry.key);
            reason.split([' ', ',', ';', ':', '?', '(', ')']).any(|word| word == option)
        };
        match self.entries.iter().find(named) {
            Some(entry) => self.told(entry, reason),
            None => CliError::new(format!("{}: {reason}", self.path.display())),
        }
    }

    /// What the command line's rules say against an option of the file, by the file's line; what they say against
    /// another one stays.
    fn explain(&self, error: clap::Error) -> Result<CliError, clap::Error> {
        let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return Err(error) };
        let name = option.trim_start_matches("--").split([' ', '=']).next().unwrap_or_default();
        let Some(entry) = self.entries.iter().find(|entry| entry.key == name) else { return Err(error) };
        let text = error.to_string();
        let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        Ok(self.told(entry, what))
    }
}

/// What clap says, in one line and without its advice.
fn in_a_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").replace("\n ", "")
}

/// Ends the process as clap does that. Whoever asked for JSON gets what is wrong with the words as that.
fn ended(error: clap::Error) -> CliError {
    if error.use_stderr() && super::wants_json() { CliError::usage(in_a_line(&error)) } else { error.exit() }
}

/// What a key says, as words.
fn value_of(value: &DeValue<'_>) -> Result<Value, &'static str> {
    let word = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        _ => None,
    };
    match value {
        DeValue::Boolean(flag) => Ok(Value::Flag(*flag)),
        DeValue::Array(values) => {
            let values: Option<Vec<String>> = values.iter().map(|value| word(value.get_ref())).collect();
            values.map(Value::Many).ok_or("is a list of something else than strings and numbers")
        }
        one => word(one).map(Value::One).ok_or("is neither a string, a number, true or false, nor a list of strings"),
    }
}

/// The words of a command line, with those of the file that they name.
///
/// # Errors
/// When there is no such file, or it says what it can't.
pub fn with_file(grammar: &Command, given: Vec<OsString>) -> Result<(Vec<OsString>, Option<ConfigFile>), CliError> {
    let Some(node) = grammar.find_subcommand(NODE).filter(|_| given.get(1).is_some_and(|word| word == NODE)) else {
        return Ok((given, None));
    };
    // What is wrong with the words is told when all are there.
    let found = grammar.clone().ignore_errors(true).try_get_matches_from(&given);
    let found = found.ok().and_then(|mut found| found.remove_subcommand()).map(|(_, found)| found);
    let Some(found) = found.filter(|found| found.subcommand().is_none()) else { return Ok((given, None)) };
    let Ok(Some(path)) = found.try_get_one::<PathBuf>(OPTION) else { return Ok((given, None)) };
    let file = ConfigFile::read(path)?;
    let is_given = |option: &Arg| {
        let source = found.value_source(option.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let words = file.words(node, is_given)?;
    let mut given = given.into_iter();
    let all = given.by_ref().take(2).chain(words).collect::<Vec<_>>();
    Ok((all.into_iter().chain(given).collect(), Some(file)))
}

/// Reads words by the rules of `parse`; what is wrong with an option of the file is told by its line.
///
/// # Errors
/// What is wrong with the file. What is wrong with the command line ends the process, as clap does that.
pub fn parse<T>(
    words: Vec<OsString>,
    file: Option<&ConfigFile>,
    parse: impl FnOnce(Vec<OsString>) -> Result<T, clap::Error>,
) -> Result<T, CliError> {
    let error = match parse(words) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    match file {
        Some(file) if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Err(file.explain(error).unwrap_or_else(ended))
        }
        _ => Err(ended(error)),
    }
}

/// Checks a file by itself, as if a node was started with it alone. `judge` is the node's word about its options:
/// notes, or a reason that names the option as `--NAME`.
///
/// # Errors
/// What is wrong with it.
pub fn check(
    grammar: &Command,
    path: &Path,
    judge: impl FnOnce(&ArgMatches) -> Result<Vec<String>, String>,
) -> Result<(ConfigFile, Vec<String>), CliError> {
    let file = ConfigFile::read(path)?;
    let node = grammar.find_subcommand(NODE).ok_or_else(|| CliError::new("this program runs no node"))?;
    let words = file.words(node, |_| false)?;
    let words = ["azekura".into(), NODE.into()].into_iter().chain(words);
    match grammar.clone().try_get_matches_from(words) {
        Ok(found) => match found.subcommand_matches(NODE).map_or(Ok(Vec::new()), judge) {
            Ok(notes) => {
                let all = file.notes().into_iter().chain(notes).collect();
                Ok((file, all))
            }
            Err(reason) => Err(file.blame(&reason)),
        },
        Err(error) => Err(file
            .explain(error)
            .unwrap_or_else(|error| CliError::new(format!("{}: {}", file.path.display(), in_a_line(&error))))),
    }
}

/// A file with all options of a node, each with what it means, as comments; only what has to be said is not one.
#[must_use]
pub fn example(grammar: &Command) -> String {
    let mut text = "# Options of a node: azekura node --config-file FILE\n#\n# Each is an option of 'azekura node', by its \
                    name. Those with a # have their default.\n# 'azekura config check FILE' checks this file.\n\n[node]\n"
        .to_owned();
    let node = grammar.find_subcommand(NODE);
    for option in node.into_iter().flat_map(Command::get_arguments).filter(|option| is_in_files(option)) {
        let help = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
        text.push('\n');
        for line in wrapped(&help) {
            text.push_str(&format!("# {line}\n"));
        }
        let name = option.get_long().unwrap_or_default();
        let sign = if option.is_required_set() { "" } else { "# " };
        text.push_str(&format!("{sign}{name} = {}\n", example_value(option)));
    }
    text
}

fn example_value(option: &Arg) -> String {
    if !option.get_action().takes_values() {
        return "false".into();
    }
    if option.is_required_set() {
        // The data folder, which packages make.
        return "\"/var/lib/azekura\"".into();
    }
    let default = option.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    let shown = default.or_else(|| option.get_value_names()?.first().map(ToString::to_string)).unwrap_or_default();
    match shown.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) if takes_many(option) => format!("[\"{}\"]", shown.split([',', '|']).next().unwrap_or_default()),
        Err(_) => format!("\"{shown}\""),
    }
}

/// A text in lines of at most [`WIDTH`] characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}
