//! `azekura login` and `logout`: the tokens that the command line shows, each to the API that it is for alone.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use azekura_api::endpoint::{AuthorityShow, Whoami};
use azekura_api::{NoQuery, WhoView};
use azekura_base::{PeerKey, Token};
use azekura_client::{Client, Trust};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// A file with a token, instead of a login.
const TOKEN_FILE: &str = "AZEKURA_TOKEN_FILE";
/// A file with the certificate of the cluster's authority, instead of a login's.
const CA_FILE: &str = "AZEKURA_CA_FILE";
/// Version of the file with logins.
const VERSION: u32 = 1;
/// More than any file with a token or logins has, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Log in at an API with a token, which is read from standard input.
#[derive(Debug, Args)]
#[command(
    after_help = "The token is asked about, and then kept in ~/.config/azekura/login.json, which only you can read. It is\n\
    shown to this API alone: log in at each node that you ask (--api URL,URL). A token is never an argument, since\n\
    every user of a machine sees those. Programs name a file with a token in AZEKURA_TOKEN_FILE instead, and one with\n\
    the authority's certificate in AZEKURA_CA_FILE.\n\n\
    To another machine a token goes over https:// alone. The node proves there that the cluster's certificate authority\n\
    knows it: say which one that is, as 'azekura ca show' tells on a node's machine.\n\n\
    Examples:\n  \
    azekura login --api https://10.0.0.1:7180 --ca-fingerprint 1f3a... < ann.token\n  \
    azekura login                                           then paste it, and end the line"
)]
pub struct LoginArgs {
    /// The cluster's certificate authority: a file with its certificate, in PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "ca_fingerprint")]
    ca: Option<PathBuf>,

    /// The same by the fingerprint of its key.
    #[arg(long, value_name = "FINGERPRINT")]
    ca_fingerprint: Option<PeerKey>,

    #[command(flatten)]
    api: ApiArgs,
}

/// Forget the token that this API is shown. It stays valid: 'azekura token revoke' ends it.
#[derive(Debug, Args)]
pub struct LogoutArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// What is kept: a token for each API.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Logins {
    version: u32,
    tokens: BTreeMap<String, String>,
    /// For each API over HTTPS, the certificate of its authority, in PEM.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    authorities: BTreeMap<String, String>,
}

fn unusable(path: &Path, what: &dyn std::fmt::Display) -> CliError {
    CliError::new(format!("can't use {}: {what}", path.display()))
}

/// Where logins are kept.
fn file() -> Result<PathBuf, CliError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| {
        CliError::new("there is no home folder to keep a login in")
            .hint("set HOME, or name a file in AZEKURA_TOKEN_FILE")
    })?;
    Ok(folder.join("azekura/login.json"))
}

/// What a file has that only its owner may read; `None`: it is not there.
fn read_own(path: &Path) -> Result<Option<String>, CliError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    };
    let mode = file.metadata().map_err(|error| unusable(path, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let hint = format!(
            "chmod 600 {0}; if others may have read it, revoke the token ('azekura token revoke')",
            path.display()
        );
        return Err(unusable(path, &"others can read it, and it has a token").hint(hint));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| unusable(path, &error))?;
    Ok(Some(text))
}

fn read_logins(path: &Path) -> Result<Logins, CliError> {
    let Some(text) = read_own(path)? else { return Ok(Logins { version: VERSION, ..Logins::default() }) };
    let logins: Logins = serde_json::from_str(&text).map_err(|error| unusable(path, &error))?;
    if logins.version != VERSION {
        return Err(unusable(path, &format!("its version is {}, and this program knows {VERSION}", logins.version)));
    }
    Ok(logins)
}

/// Writes the file whole or not at all; nobody else can read it at any moment.
fn write_logins(path: &Path, logins: &Logins) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(logins);
    let text = text.map_err(|error| unusable(path, &error))?;
    let write = || {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|error| unusable(path, &error))
}

fn read_token(text: &str) -> Result<Token, CliError> {
    Token::read(text.trim()).map_err(|error| CliError::new(error.to_string()))
}

/// The file that a variable names.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A certificate is no secret: others may read its file.
fn read_certificate(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| unusable(path, &error))?;
    Ok(text)
}

/// A client of this API that shows the token which is for it, if there is one.
pub fn client(api: &str) -> Result<Client, CliError> {
    let client = Client::new(api)?;
    if client.is_local() {
        return Ok(client);
    }
    let logins = || match file() {
        Ok(path) => read_logins(&path),
        Err(_) => Ok(Logins::default()),
    };
    let client = match named(CA_FILE) {
        Some(path) => client.trusting(&Trust::Certificate(read_certificate(&path)?))?,
        None if client.is_secured() => match logins()?.authorities.get(client.url()) {
            Some(pem) => client.trusting(&Trust::Certificate(pem.clone()))?,
            None => client,
        },
        None => client,
    };
    if let Some(path) = named(TOKEN_FILE) {
        let text = read_own(&path)?.ok_or_else(|| {
            unusable(&path, &"it is not there")
                .hint(format!("{TOKEN_FILE} names the file with a token; unset it to use a login"))
        })?;
        return Ok(client.with_token(&read_token(&text)?)?.with_token_from(format!("in {}", path.display())));
    }
    match logins()?.tokens.get(client.url()) {
        Some(token) => {
            let kept = file().map_or_else(|_| "of the login".to_owned(), |path| format!("in {}", path.display()));
            Ok(client.with_token(&read_token(token)?)?.with_token_from(kept))
        }
        None => Ok(client),
    }
}

/// All tokens that are kept here, and the one in the file that is named instead: for whoever makes sure that none of
/// them gets out. What can't be read holds none that this program could show.
pub fn tokens() -> Vec<String> {
    let logins = file().and_then(|path| read_logins(&path)).unwrap_or_default();
    let named = named(TOKEN_FILE).and_then(|path| read_own(&path).ok().flatten());
    logins.tokens.into_values().chain(named.map(|text| text.trim().to_owned())).collect()
}

impl LoginArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let mut text = String::new();
        let input = std::io::stdin();
        let read = if input.is_terminal() {
            eprintln!("token:");
            input.read_line(&mut text)
        } else {
            input.take(FILE_BYTES_MAX).read_to_string(&mut text)
        };
        read.map_err(|error| CliError::new(format!("can't read the token from standard input: {error}")))?;
        let token = read_token(&text)?;
        let mut who = None;
        for url in self.api.urls() {
            let found = self.log_in(url, &token).map_err(|error| match &who {
                None => error,
                Some(_) => error.after("there is a login at those before"),
            })?;
            who = Some(found);
        }
        match who {
            Some(who) if self.api.json => print_json(&who),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    /// Keeps the token for this API, if it is taken there.
    fn log_in(&self, url: &str, token: &Token) -> Result<WhoView, CliError> {
        let client = Client::new(url)?;
        if client.is_local() {
            return Err(CliError::new("a node's own socket asks for no token, so there is nothing to log in at"));
        }
        let path = file()?;
        let mut logins = read_logins(&path)?;
        let trust = self.trust(logins.authorities.get(client.url()))?;
        let client = match &trust {
            Some(trust) => client.trusting(trust)?,
            None => client,
        };
        let client = client.with_token(token)?.with_token_from("from standard input".to_owned());
        let who = client.ask::<Whoami>([], &NoQuery {})?;
        if let Some(pem) = trust.map(|trust| certificate(&client, trust)).transpose()? {
            logins.authorities.insert(client.url().to_owned(), pem);
        }
        logins.tokens.insert(client.url().to_owned(), token.reveal());
        write_logins(&path, &logins)?;
        if !self.api.json {
            let project = who.project.as_ref().map_or_else(String::new, |project| format!(", project {project}"));
            print(&format!("logged in at {} as {}, role {}{project}\n", client.url(), who.name, who.role))?;
        }
        Ok(who)
    }
}

impl LoginArgs {
    /// By whom the nodes are to be known.
    fn trust(&self, known: Option<&String>) -> Result<Option<Trust>, CliError> {
        if let Some(path) = self.ca.clone().or_else(|| named(CA_FILE).filter(|_| self.ca_fingerprint.is_none())) {
            return Ok(Some(Trust::Certificate(read_certificate(&path)?)));
        }
        Ok(self.ca_fingerprint.map(Trust::Fingerprint).or_else(|| known.cloned().map(Trust::Certificate)))
    }
}

/// The certificate of the authority that has proved itself, in PEM.
fn certificate(client: &Client, trust: Trust) -> Result<String, CliError> {
    match trust {
        Trust::Certificate(pem) => Ok(pem),
        Trust::Fingerprint(fingerprint) => {
            let shown = client.ask::<AuthorityShow>([], &NoQuery {})?;
            let its = azekura_client::fingerprint(&shown.certificate);
            let its = its.map_err(|error| CliError::new(format!("the node shows no certificate: {error}")))?;
            if its != fingerprint {
                return Err(CliError::new(format!("the cluster's authority is {its} by now, not {fingerprint}")));
            }
            Ok(shown.certificate)
        }
    }
}

impl LogoutArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let path = file()?;
        let mut logins = read_logins(&path)?;
        let clients = self.api.urls().into_iter().map(Client::new).collect::<Result<Vec<_>, _>>()?;
        for client in &clients {
            if logins.tokens.remove(client.url()).is_none() {
                return Err(CliError::new(format!("there is no login at {}", client.url())));
            }
            logins.authorities.remove(client.url());
        }
        write_logins(&path, &logins)?;
        let urls: Vec<&str> = clients.iter().map(Client::url).collect();
        if self.api.json {
            return print_json(&serde_json::json!({ "logged_out": urls }));
        }
        print(&format!("logged out at {}\n", urls.join(", ")))
    }
}
