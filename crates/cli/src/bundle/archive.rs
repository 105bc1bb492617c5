//! The archive: parts of bounded size, each through the net, with a list of what is there and what is missing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use azekura_base::{Size, rfc3339_seconds};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;

use super::fields::Fields;
use super::net::Net;
use crate::CliError;

/// The largest file in the archive, bytes.
pub const PART_BYTES_MAX: usize = 8 << 20;
/// All files together, bytes.
pub const BUNDLE_BYTES_MAX: usize = 64 << 20;
/// Room that the list of files may take, bytes.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Form of `manifest.json`.
const VERSION: u32 = 1;

/// Which end of a text stays when it is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The first lines.
    Beginning,
    /// The last lines.
    End,
}

/// A file of the archive.
#[derive(Debug, Serialize)]
pub struct Part {
    /// Its path below the archive's folder.
    pub file: String,
    /// What it is.
    pub what: String,
    /// Its size.
    pub bytes: usize,
    /// What was left out of it for its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    #[serde(skip)]
    text: String,
}

/// What could not be had.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The file that it would be.
    pub file: String,
    /// Why not.
    pub why: String,
}

/// Parts that are collected. Nothing comes in but through the net.
#[derive(Debug)]
pub struct Bundle {
    /// It knows all secrets that it is going to know: parts are cleaned as they come in.
    net: Net,
    /// When it was begun, seconds since 1970.
    at: u64,
    fields: Fields,
    parts: Vec<Part>,
    missing: Vec<Missing>,
    bytes: usize,
}

impl Bundle {
    /// An empty one, begun at this time.
    pub fn new(at: u64, net: Net) -> Bundle {
        Bundle { net, at, fields: Fields::new(), parts: Vec::new(), missing: Vec::new(), bytes: 0 }
    }

    /// The archive's folder, which is its usual name without `.tar.gz` as well.
    pub fn name(&self) -> String {
        let at = rfc3339_seconds(self.at);
        format!("azekura-support-{}", at.chars().filter(|c| !matches!(c, '-' | ':')).collect::<String>())
    }

    /// What is in it.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What is not.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Notes that something can't be had.
    pub fn lacks(&mut self, file: &str, why: &str) {
        let why = self.net.clean(why).trim().replace('\n', "; ");
        self.missing.push(Missing { file: file.to_owned(), why });
    }

    /// Takes in an answer of the API, `part` of which `fields.txt` tells. Of a list that is too long the first things
    /// stay.
    pub fn answer(&mut self, part: &str, file: &str, what: &str, answer: &impl Serialize) {
        let value = match serde_json::to_value(answer) {
            Ok(value) => self.fields.told(part, value, &self.net),
            Err(error) => return self.lacks(file, &format!("it can't be written: {error}")),
        };
        let (text, cut) = written(value);
        match text {
            Some(text) => self.add(file, what, text, cut),
            None => self.lacks(file, &format!("it is larger than {}", Size::new(PART_BYTES_MAX as u64))),
        }
    }

    /// Takes in a text; of one that is too long, the lines at one of its ends.
    pub fn text(&mut self, file: &str, what: &str, text: &str, keep: Keep) {
        let text = self.net.clean(text);
        let kept = lines_of(&text, keep, PART_BYTES_MAX);
        let end = if keep == Keep::End { "last" } else { "first" };
        let cut = (kept.len() < text.len())
            .then(|| format!("the {end} {} of {}", Size::new(kept.len() as u64), Size::new(text.len() as u64)));
        let kept = kept.to_owned();
        self.add(file, what, kept, cut);
    }

    fn add(&mut self, file: &str, what: &str, text: String, cut: Option<String>) {
        if self.bytes + text.len() > BUNDLE_BYTES_MAX - LIST_BYTES_MAX {
            let why = format!("with it the bundle would be larger than {}", Size::new(BUNDLE_BYTES_MAX as u64));
            return self.lacks(file, &why);
        }
        self.bytes += text.len();
        self.parts.push(Part { file: file.to_owned(), what: what.to_owned(), bytes: text.len(), cut, text });
    }

    /// The archive's bytes.
    ///
    /// # Errors
    /// Those of the packing, which needs memory alone.
    pub fn pack(&self) -> io::Result<Vec<u8>> {
        let (name, list, readme) = (self.name(), self.list(), self.readme());
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let own = [("README.txt", &readme), ("manifest.json", &list)];
        for (file, text) in own.into_iter().chain(self.parts.iter().map(|part| (part.file.as_str(), &part.text))) {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(self.at);
            archive.append_data(&mut header, format!("{name}/{file}"), text.as_bytes())?;
        }
        archive.into_inner()?.finish()
    }

    /// What is in the archive, for programs.
    fn list(&self) -> String {
        let list = serde_json::json!({
            "format": VERSION,
            "made_by": format!("azekura {}", env!("CARGO_PKG_VERSION")),
            "at": rfc3339_seconds(self.at),
            "files": self.parts,
            "missing": self.missing,
        });
        format!("{list:#}\n")
    }

    /// The same for people.
    fn readme(&self) -> String {
        let mut text = format!(
            "A support bundle of Azekura, made by azekura {} at {}.\n\nWhat is in it\n\n",
            env!("CARGO_PKG_VERSION"),
            rfc3339_seconds(self.at)
        );
        for Part { file, what, bytes, cut, .. } in &self.parts {
            let cut = cut.as_ref().map(|cut| format!(" Only {cut}.")).unwrap_or_default();
            text += &format!("  {file} ({})\n      {what}.{cut}\n", Size::new(*bytes as u64));
        }
        text += "\nWhat is missing, and why\n\n";
        if self.missing.is_empty() {
            text += "  Nothing.\n";
        }
        for Missing { file, why } in &self.missing {
            text += &format!("  {file}: {why}\n");
        }
        text + "\nSecrets\n\n  \
            [withheld] stands where a secret was, or may have been: tokens, passwords, keys, names of hosts that prove\n  \
            nothing else. Of the API's answers and of a node's options those are told that are known to be none; logs\n  \
            and other texts have gone through a net that takes out what looks like one. Names of volumes, projects,\n  \
            nodes and people, and addresses, are in here: read the bundle before you give it away.\n"
    }
}

/// A value as text; of a list, as much of it as may be; `None`: it is too large.
fn written(value: Value) -> (Option<String>, Option<String>) {
    let text = format!("{value:#}\n");
    let (Value::Array(values), true) = (value, text.len() > PART_BYTES_MAX) else {
        return ((text.len() <= PART_BYTES_MAX).then_some(text), None);
    };
    let (mut shown, mut bytes) = (Vec::new(), 0);
    let all = values.len();
    for value in values {
        // What it takes with its indentation is not known before; twice its bare length was enough so far.
        bytes += value.to_string().len() * 2;
        if bytes > PART_BYTES_MAX {
            break;
        }
        shown.push(value);
    }
    let cut = format!("the first {} of {all}", shown.len());
    (Some(format!("{:#}\n", Value::Array(shown))), Some(cut))
}

/// As many whole lines of one end as these bytes hold.
pub fn lines_of(text: &str, keep: Keep, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    match keep {
        Keep::Beginning => {
            let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            &text[..text[..end].rfind('\n').map_or(end, |line| line + 1)]
        }
        Keep::End => {
            let from = (text.len() - bytes_max..=text.len()).find(|from| text.is_char_boundary(*from));
            let from = from.unwrap_or(text.len());
            &text[text[from..].find('\n').map_or(from, |line| from + line + 1)..]
        }
    }
}

/// Refuses a place where no file can be made, before anything is collected.
///
/// # Errors
/// When there is something of that name, or no folder for it.
pub fn check_place(path: &Path) -> Result<(), CliError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(CliError::new(format!("{} is there already", path.display()))
            .hint("name another file with --output, or move that one away: nothing is overwritten"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(CliError::new(format!("{} is no folder", folder.display())).hint(ELSEWHERE)),
        Err(error) => Err(CliError::new(format!("can't use the folder {}: {error}", folder.display())).hint(ELSEWHERE)),
    }
}

const ELSEWHERE: &str = "--output names a file in a folder that is there and has room";

/// Writes a new file that only its owner reads: whole, or not at all.
///
/// # Errors
/// When it can't be written; then there is none.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::new(format!("can't write {}: {error}", path.display())).hint(ELSEWHERE);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| {
        let left = if fs::remove_file(path).is_ok() { "nothing is left there" } else { "a part of it is left there" };
        failed(error).after(left)
    })
}
