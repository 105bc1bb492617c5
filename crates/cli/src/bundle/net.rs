//! The net under a support bundle: it takes out of any text what looks like a secret, and what is known to be one.
//!
//! Structured parts are told by lists of what may be told (`fields.rs`, `options.rs`), and come through here, too. For
//! free text, as lines of a log, there is nothing but this. It rather takes too much than too little.

use std::ops::Range;

/// What stands in the place of a secret.
pub const WITHHELD: &str = "[withheld]";
/// What is shorter is too common a word to be looked for, bytes.
const KNOWN_MIN: usize = 6;
/// A private key in PEM is never longer, bytes.
const PEM_MAX: usize = 16 << 10;
/// Words are looked at in pieces of at most so many bytes.
const RUN_MAX: usize = 512;
/// So many hexadecimal digits in a row may be a key: 128 bits.
const HEX_MIN: usize = 32;
/// So many characters that look drawn at random may be one: 96 bits, the shortest secret of CHAP that a node makes.
const RANDOM_MIN: usize = 16;
/// How secrets begin that say what they are: tokens of Azekura, of Vault, of the web, and keys of NVMe hosts.
const PREFIXES: [&str; 8] = ["azka_", "azkj_", "hvs.", "hvb.", "hvr.", "DHHC-1:", "NVMeTLSkey-1:", "eyJ"];
/// A name with one of these is that of a secret...
const SECRET_NAMES: [&str; 18] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "psk",
    "chap",
    "kek",
    "authorization",
    "cookie",
    "privatekey",
    "apikey",
    "datakey",
    "wrapped",
    "masterkey",
    "encryptionkey",
    "authkey",
];
/// ... unless it ends with one of these: then the value only says where it is, or how many there are.
const HARMLESS_ENDS: [&str; 23] = [
    "file",
    "files",
    "path",
    "folder",
    "dir",
    "ca",
    "name",
    "id",
    "user",
    "count",
    "bytes",
    "total",
    "missing",
    "lacking",
    "version",
    "versions",
    "seconds",
    "mount",
    "provider",
    "type",
    "state",
    "kind",
    "namespace",
];
/// Names that hosts give themselves. They are as good as a password where the host has no secret (docs/security.md).
const HOST_NAMES: [&str; 4] = ["iqn.", "nqn.", "eui.", "naa."];
/// Names of volumes, in the same form, and of no host.
const OWN_NAMES: [&str; 3] =
    ["iqn.2026-01.io.azekura", "nqn.2026-01.io.azekura", "nqn.2014-08.org.nvmexpress.discovery"];

/// Takes secrets out of texts.
#[derive(Clone, Default)]
pub struct Net {
    /// Secrets that this command has come upon, the longest first.
    known: Vec<String>,
}

/// Without the secrets.
impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("known", &self.known.len()).finish()
    }
}

impl Net {
    /// Looks for this text from now on. What is too short to be a secret worth its name is passed over.
    pub fn know(&mut self, secret: &str) {
        let secret = secret.trim();
        // Logs and answers of the API have it in JSON.
        let escaped = serde_json::Value::from(secret).to_string();
        for text in [secret, escaped.trim_matches('"')] {
            if text.len() >= KNOWN_MIN && !self.known.iter().any(|known| known == text) {
                self.known.push(text.to_owned());
            }
        }
        self.known.sort_by_key(|known| std::cmp::Reverse(known.len()));
    }

    /// Looks for each word of a file with a secret: a key, a password, a token. Comments are no secrets.
    pub fn know_file(&mut self, text: &str) {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.starts_with("-----"));
        for line in lines {
            self.know(line);
            line.split_whitespace().for_each(|word| self.know(word));
        }
    }

    /// Whether a secret that is looked for is in the text.
    pub fn knows(&self, text: &str) -> bool {
        self.known.iter().any(|known| text.contains(known.as_str()))
    }

    /// The text without secrets.
    pub fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for known in &self.known {
            if text.contains(known.as_str()) {
                text = text.replace(known.as_str(), WITHHELD);
            }
        }
        let text = without_private_keys(&text);
        let mut clean = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            clean_line(line, &mut clean);
        }
        clean
    }
}

/// The text without what stands between the marks of a private key in PEM, on however many lines.
fn without_private_keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    let (mut rest, mut clean) = (text, String::with_capacity(text.len()));
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        clean.push_str(before);
        let label = block[BEGIN.len()..].split("-----").next().unwrap_or_default();
        if !label.contains("PRIVATE KEY") {
            clean.push_str(BEGIN);
            rest = &block[BEGIN.len()..];
            continue;
        }
        clean.push_str(WITHHELD);
        let end = block.find("-----END ").filter(|end| *end <= PEM_MAX);
        let end = end.map_or(PEM_MAX.min(block.len()), |end| {
            let label = end + "-----END ".len();
            block[label..].find("-----").map_or(label, |more| label + more + "-----".len())
        });
        rest = &block[(end..=block.len()).find(|end| block.is_char_boundary(*end)).unwrap_or(block.len())..];
    }
    clean + rest
}

/// How much of a text is replaced, and by what.
type Caught = (usize, String);

fn clean_line(line: &str, clean: &mut String) {
    let (mut at, mut before) = (0, None);
    while let Some(next) = line[at..].chars().next() {
        let rest = &line[at..];
        let begins = !before.is_some_and(|before: char| before.is_ascii_alphanumeric());
        // Most characters are in the middle of a word, or between two.
        if !may_begin(next, begins) {
            clean.push(next);
            at += next.len_utf8();
            before = Some(next);
            continue;
        }
        let is_flag = line[..at].ends_with("--");
        let caught = user_of_url(rest).or_else(|| marked(rest, begins)).or_else(|| {
            let is_word = begins && next.is_ascii_alphanumeric();
            if is_word { named(rest, is_flag).or_else(|| host_name(rest)).or_else(|| random(rest)) } else { None }
        });
        match caught {
            Some((length, instead)) => {
                clean.push_str(&instead);
                at += length;
                before = None;
            }
            None => {
                clean.push(next);
                at += next.len_utf8();
                before = Some(next);
            }
        }
    }
}

/// Whether a secret may begin with this character: any with the first of a word, some in its middle, and `://`.
fn may_begin(next: char, begins: bool) -> bool {
    next == ':' || next.is_ascii_alphanumeric() && (begins || PREFIXES.iter().any(|prefix| prefix.starts_with(next)))
}

/// How long the beginning is in which all characters are such.
fn run(text: &str, is_such: impl Fn(char) -> bool) -> usize {
    text.find(|character| !is_such(character)).unwrap_or(text.len())
}

fn is_quote(character: char) -> bool {
    matches!(character, '"' | '\'' | '`')
}

/// `://USER:PASSWORD@`.
fn user_of_url(rest: &str) -> Option<Caught> {
    let url = rest.strip_prefix("://")?;
    let length = run(url, |c| !c.is_whitespace() && !is_quote(c) && c != '\\');
    let user = url[..length].rfind('@')?;
    Some(("://".len() + user, format!("://{WITHHELD}")))
}

/// What says by its beginning that it is a secret, and what HTTP calls so.
fn marked(rest: &str, begins: bool) -> Option<Caught> {
    let is_secret = |c: char| c.is_ascii_alphanumeric() || "+/=_.:-".contains(c);
    let word = |from: usize| run(&rest[from..], is_secret);
    for prefix in PREFIXES {
        if rest.starts_with(prefix) && (begins || prefix.len() > 4) && word(0) >= prefix.len() + 4 {
            return Some((word(0), WITHHELD.to_owned()));
        }
    }
    for (scheme, shortest) in [("bearer ", 1), ("basic ", 8)] {
        let is_scheme = begins && rest.get(..scheme.len()).is_some_and(|word| word.eq_ignore_ascii_case(scheme));
        if is_scheme && word(scheme.len()) >= shortest {
            let length = scheme.len() + word(scheme.len());
            return Some((length, format!("{}{WITHHELD}", &rest[..scheme.len()])));
        }
    }
    None
}

/// Whether something of this name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.trim_end_matches(['.', '-', '_']).to_ascii_lowercase();
    let last = name.rsplit(['.', '-', '_']).next().unwrap_or_default();
    let joined: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let is_secret = SECRET_NAMES.iter().any(|word| joined.contains(word)) || ["pass", "pwd", "pw"].contains(&last);
    is_secret && !HARMLESS_ENDS.contains(&last)
}

/// `NAME = VALUE`, `"NAME": "VALUE"`, `--NAME VALUE` and `NAME 'VALUE'`, where the name is that of a secret.
fn named(rest: &str, is_flag: bool) -> Option<Caught> {
    let name = run(rest, |c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if name > RUN_MAX || !is_secret_name(&rest[..name]) {
        return None;
    }
    let skip = |from: usize, such: fn(char) -> bool| from + run(&rest[from..], such);
    let closed = skip(name, |c| c == '\\' || is_quote(c));
    let sign = skip(closed, |c| c == ' ' || c == '\t');
    let after = skip(sign, |c| matches!(c, '=' | ':' | '>'));
    // A path of a module goes on behind two colons.
    if rest[sign..after].starts_with("::") {
        return None;
    }
    let begin = skip(after, |c| c == ' ' || c == '\t');
    let opened = skip(begin, |c| c == '\\' || is_quote(c));
    let has_sign = after > sign;
    let value = if opened > begin && (has_sign || begin > name) {
        quoted(rest, begin..opened)
    } else if has_sign || (is_flag && begin > name) {
        let end = skip(begin, |c| !c.is_whitespace());
        // Behind the name of a scheme of HTTP comes what is meant.
        let is_scheme = ["basic", "bearer", "digest"].iter().any(|word| rest[begin..end].eq_ignore_ascii_case(word));
        begin..if is_scheme { rest.trim_end().len().max(end) } else { end }
    } else {
        return None;
    };
    (!value.is_empty()).then(|| (value.end, format!("{}{WITHHELD}", &rest[..value.start])))
}

/// What stands in these quotes, which may be escaped; all of the line where they are not closed.
fn quoted(rest: &str, open: Range<usize>) -> Range<usize> {
    let mark = &rest[open.clone()];
    let quote = mark.chars().last().unwrap_or('"');
    let mark = if mark.ends_with(is_quote) { mark } else { return open.start..rest.trim_end().len() };
    // Two quotes with nothing in them.
    if mark.chars().filter(|c| *c == quote).count() > 1 {
        return open.end..open.end;
    }
    let mut from = open.end;
    while let Some(found) = rest[from..].find(mark) {
        let at = from + found;
        if mark.starts_with('\\') || !rest[..at].ends_with('\\') {
            return open.end..at;
        }
        from = at + mark.len();
    }
    open.end..rest.trim_end().len()
}

/// A host's name, which keeps its authority: who has made it.
fn host_name(rest: &str) -> Option<Caught> {
    let kind = HOST_NAMES.iter().find(|kind| rest.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(kind)))?;
    let length = run(rest, |c| c.is_ascii_alphanumeric() || ".:%_-".contains(c));
    if length < kind.len() + 4 || OWN_NAMES.iter().any(|own| rest.starts_with(own)) {
        return None;
    }
    Some((length, format!("{kind}{WITHHELD}")))
}

/// Characters as if drawn at random: keys in hexadecimal digits or base64, passwords that a program has made.
fn random(rest: &str) -> Option<Caught> {
    let digits = run(rest, |c| c.is_ascii_alphanumeric());
    if digits >= HEX_MIN && rest[..digits].bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Some((digits, WITHHELD.to_owned()));
    }
    let word = run(rest, |c| c.is_ascii_alphanumeric() || "+/_-".contains(c)).min(RUN_MAX);
    let length = word + rest[word..].bytes().take(2).take_while(|byte| *byte == b'=').count();
    looks_drawn(&rest.as_bytes()[..word]).then(|| (length, WITHHELD.to_owned()))
}

/// Whether small and capital letters and digits take turns as they do by chance: in names they come in rows.
fn looks_drawn(word: &[u8]) -> bool {
    let class = |byte: &u8| match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let mut counts = [0_usize; 4];
    word.iter().for_each(|byte| counts[class(byte)] += 1);
    let turns = word.windows(2).filter(|pair| {
        let (one, other) = (class(&pair[0]), class(&pair[1]));
        one != other && one != 3 && other != 3
    });
    let has_all = counts[..3].iter().all(|count| *count > 0);
    word.len() >= RANDOM_MIN && has_all && counts[3] * 6 <= word.len() && turns.count() * 10 >= word.len() * 4
}

#[cfg(test)]
mod tests;
