//! The handshake: greeting, client flags, option haggling (*Newstyle negotiation*, *Fixed newstyle negotiation*).

use crate::event::Event;
use crate::export::{self, PROTOCOL, block_sizes, description};
use crate::fields::{Fields, string};
use crate::numbers::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, FLAG_C_FIXED_NEWSTYLE, FLAG_C_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES,
    IHAVEOPT, INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, INIT_PASSWD, OPT_ABORT, OPT_EXPORT_NAME,
    OPT_GO, OPT_INFO, OPT_LIST, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STARTTLS, OPT_STRUCTURED_REPLY,
    REP_ACK, REP_ERR_BLOCK_SIZE_REQD, REP_ERR_INVALID, REP_ERR_POLICY, REP_ERR_TLS_REQD, REP_ERR_TOO_BIG,
    REP_ERR_UNKNOWN, REP_ERR_UNSUP, REP_INFO, REP_META_CONTEXT,
};
use crate::option_reply::{OptionError, put_end, put_reply};
use crate::request::Opened;
use crate::step::Step;
use crate::violation::Violation;
use crate::{OPTION_DATA_MAX, OPTION_SKIP_MAX};
use azekura_base::{Inbox, Outbox};
use azekura_frontend::{Export, Exports, Opening};
use std::borrow::Cow;

/// Bytes before an option's data: magic number, option, length.
const OPTION_HEADER: usize = 16;

const _: () = assert!(OPTION_HEADER + OPTION_DATA_MAX as usize <= Inbox::PEEK_MAX);

/// Where TLS stands (*TLS support*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// It is not served: mode NOTLS.
    Unserved,
    /// Nothing else is served before it: mode FORCEDTLS. There is no SELECTIVETLS, which somebody on the way can talk
    /// down.
    Demanded,
    /// What is said now is said over TLS.
    Begun,
}

/// What has been negotiated so far.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// The client's flags; absent until they have arrived.
    flags: Option<u32>,
    tls: Tls,
    structured: bool,
    /// The export for which `base:allocation` is selected.
    meta_context: Option<String>,
    /// An option that names an export, and its data: it is not known yet whether the export can be opened, or is there.
    waiting: Option<(u32, Vec<u8>)>,
    /// An option with data too long to look at, and how much of that is still to come.
    skip: Option<(u32, u32)>,
}

const TLS_REQUIRED: OptionError =
    (REP_ERR_TLS_REQD, Cow::Borrowed("this address asks for TLS: connect with nbds://, or choose TLS in the client"));
const UNKNOWN_EXPORT: OptionError = (REP_ERR_UNKNOWN, Cow::Borrowed("there is no export of this name"));

impl Handshake {
    /// Begins the handshake with the server's greeting.
    pub fn greet(out: &mut Outbox, demands_tls: bool) -> Handshake {
        out.put(&INIT_PASSWD.to_be_bytes());
        out.put(&IHAVEOPT.to_be_bytes());
        out.put(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        let tls = if demands_tls { Tls::Demanded } else { Tls::Unserved };
        Handshake { flags: None, tls, structured: false, meta_context: None, waiting: None, skip: None }
    }

    /// Deals with the next thing that the client says.
    pub fn step(&mut self, inbox: &mut Inbox, out: &mut Outbox, exports: &dyn Exports) -> Result<Step, Violation> {
        let Some(flags) = self.flags else { return self.client_flags(inbox) };
        if let Some((option, left)) = self.skip {
            return Ok(self.skip_data(inbox, out, option, left));
        }
        if let Some((option, data)) = self.waiting.take() {
            return self.option(option, data, out, exports, flags);
        }
        let Some(header) = inbox.peek(OPTION_HEADER).and_then(|bytes| bytes.first_chunk::<OPTION_HEADER>()) else {
            return Ok(Step::Starved);
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *header;
        let magic = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let option = u32::from_be_bytes([i, j, k, l]);
        let length = u32::from_be_bytes([m, n, o, p]);
        if magic != IHAVEOPT {
            return Err(Violation::OptionMagic(magic));
        }
        if option == OPT_ABORT {
            // Data that comes with it is to be ignored, so there is nothing to wait for.
            put_reply(out, option, REP_ACK, &[]);
            return Ok(Step::Close);
        }
        if flags & FLAG_C_FIXED_NEWSTYLE == 0 && option != OPT_EXPORT_NAME {
            return Err(Violation::OptionWithoutFixedNewstyle(option));
        }
        if length > OPTION_DATA_MAX {
            if option == OPT_EXPORT_NAME || length > OPTION_SKIP_MAX {
                return Err(Violation::OptionTooLong { option, length });
            }
            inbox.consume(OPTION_HEADER);
            self.skip = Some((option, length));
            return Ok(Step::Again);
        }
        let size = OPTION_HEADER + length as usize;
        let Some(bytes) = inbox.peek(size) else { return Ok(Step::Starved) };
        let data = bytes[OPTION_HEADER..].to_vec();
        inbox.consume(size);
        if self.tls == Tls::Demanded {
            return self.before_tls(option, &data, inbox, out);
        }
        self.option(option, data, out, exports, flags)
    }

    /// An option of a client that has not begun TLS, where TLS is demanded (*TLS support*, FORCEDTLS mode).
    fn before_tls(&mut self, option: u32, data: &[u8], inbox: &Inbox, out: &mut Outbox) -> Result<Step, Violation> {
        match option {
            OPT_EXPORT_NAME => Err(Violation::NoTls),
            OPT_STARTTLS if data.is_empty() => {
                // Whoever says more before he has the answer is not who encrypts it: somebody on the way has added it.
                let behind = inbox.available().len();
                if behind > 0 {
                    return Err(Violation::BehindStartTls(behind));
                }
                put_end(out, option, Ok(()));
                self.tls = Tls::Begun;
                // What was agreed in clear counts for nothing.
                (self.structured, self.meta_context) = (false, None);
                Ok(Step::Give(Event::StartsTls))
            }
            OPT_STARTTLS => {
                put_end(out, option, Err((REP_ERR_INVALID, "the option takes no data".into())));
                Ok(Step::Again)
            }
            _ => {
                put_end(out, option, Err(TLS_REQUIRED));
                Ok(Step::Again)
            }
        }
    }

    fn option(
        &mut self,
        option: u32,
        data: Vec<u8>,
        out: &mut Outbox,
        exports: &dyn Exports,
        flags: u32,
    ) -> Result<Step, Violation> {
        if let Some(why) = exports.refusal() {
            // Whatever is asked for: the answer is the same, and tells nothing.
            if option == OPT_EXPORT_NAME {
                return Err(Violation::Stranger(why));
            }
            put_end(out, option, Err((REP_ERR_POLICY, why.into())));
            return Ok(Step::Again);
        }
        if let Some(name) = named_by(option, &data)
            && exports.find(name).is_none()
            && exports.may_come(name)
        {
            let name = name.to_owned();
            self.waiting = Some((option, data));
            return Ok(Step::Missing(name));
        }
        match option {
            OPT_EXPORT_NAME | OPT_GO => self.open_by(option, data, out, exports, flags),
            _ => {
                let answer = match option {
                    OPT_INFO => {
                        self.info(option, &data, out, |name| exports.find(name).ok_or(UNKNOWN_EXPORT)).map(|_| ())
                    }
                    OPT_LIST => list(&data, out, exports),
                    OPT_STRUCTURED_REPLY => self.structured_reply(&data),
                    OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.meta_context(option, &data, out, exports),
                    // *TLS support*, NOTLS mode.
                    OPT_STARTTLS if !data.is_empty() => Err((REP_ERR_INVALID, "the option takes no data".into())),
                    OPT_STARTTLS if self.tls == Tls::Begun => Err((REP_ERR_INVALID, "TLS is spoken already".into())),
                    OPT_STARTTLS => Err((REP_ERR_UNSUP, "TLS is not served here".into())),
                    _ => Err((REP_ERR_UNSUP, "the option is not known".into())),
                };
                put_end(out, option, answer);
                Ok(Step::Again)
            }
        }
    }

    /// *Client flags*: unknown ones end the connection.
    fn client_flags(&mut self, inbox: &mut Inbox) -> Result<Step, Violation> {
        let Some(&bytes) = inbox.peek(4).and_then(|bytes| bytes.first_chunk()) else { return Ok(Step::Starved) };
        let flags = u32::from_be_bytes(bytes);
        inbox.consume(4);
        if flags & !(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES) != 0 {
            return Err(Violation::ClientFlags(flags));
        }
        self.flags = Some(flags);
        Ok(Step::Again)
    }

    fn skip_data(&mut self, inbox: &mut Inbox, out: &mut Outbox, option: u32, left: u32) -> Step {
        let count = inbox.available().len().min(left as usize);
        inbox.consume(count);
        let left = left - count as u32;
        if left > 0 {
            self.skip = Some((option, left));
            return Step::Starved;
        }
        self.skip = None;
        if option == OPT_SET_META_CONTEXT {
            self.meta_context = None;
        }
        let answer = match self.tls {
            Tls::Demanded => TLS_REQUIRED,
            Tls::Unserved | Tls::Begun => (REP_ERR_TOO_BIG, "the option's data is too long".into()),
        };
        put_end(out, option, Err(answer));
        Step::Again
    }

    fn open(&self, export: Export) -> Step {
        let opened = Opened {
            size: export.size,
            verbs: export.verbs,
            block_sizes: block_sizes(&export),
            structured: self.structured,
            // A context that was selected for another export does not count (`NBD_OPT_SET_META_CONTEXT`).
            block_status: self.meta_context.as_ref() == Some(&export.name),
        };
        Step::Open(export.name, opened)
    }

    /// The two options that end the handshake.
    fn open_by(
        &mut self,
        option: u32,
        data: Vec<u8>,
        out: &mut Outbox,
        exports: &dyn Exports,
        flags: u32,
    ) -> Result<Step, Violation> {
        let step = match option {
            OPT_GO => self.go(&data, out, exports),
            _ => self.export_name(&data, out, exports, flags)?,
        };
        if matches!(step, Step::Wait(_)) {
            self.waiting = Some((option, data));
        }
        Ok(step)
    }

    /// `NBD_OPT_EXPORT_NAME`: all that can go wrong ends the session.
    fn export_name(&self, data: &[u8], out: &mut Outbox, exports: &dyn Exports, flags: u32) -> Result<Step, Violation> {
        let name = string(data).map_err(|_| Violation::MalformedName)?;
        let unknown = || Violation::NoSuchExport(name.to_owned());
        let export = match exports.open(name) {
            // Who opens this way can't have learnt of block sizes, so an export that insists on some is out of reach.
            Opening::Ready(export) if block_sizes(&export).min == 1 => export,
            Opening::Ready(_) | Opening::Unknown => return Err(unknown()),
            Opening::Refused(why) => return Err(Violation::Refused { name: name.to_owned(), why }),
            Opening::Later(own_name) => return Ok(Step::Wait(own_name)),
        };
        out.put(&export.size.to_be_bytes());
        out.put(&export::flags(&export, self.structured).to_be_bytes());
        if flags & FLAG_C_NO_ZEROES == 0 {
            out.put(&[0; 124]);
        }
        Ok(self.open(export))
    }

    /// `NBD_OPT_GO`: as `NBD_OPT_INFO`, and if that succeeds the handshake is over.
    fn go(&self, data: &[u8], out: &mut Outbox, exports: &dyn Exports) -> Step {
        let mut wait = None;
        let open = |name: &str| match exports.open(name) {
            Opening::Ready(export) => Ok(export),
            Opening::Unknown => Err(UNKNOWN_EXPORT),
            Opening::Refused(why) => Err((REP_ERR_POLICY, why.into())),
            Opening::Later(own_name) => {
                wait = Some(own_name);
                Err(UNKNOWN_EXPORT)
            }
        };
        let answer = self.info(OPT_GO, data, out, open);
        if let Some(name) = wait {
            return Step::Wait(name);
        }
        match answer {
            Ok(export) => {
                put_end(out, OPT_GO, Ok(()));
                self.open(export)
            }
            Err(error) => {
                put_end(out, OPT_GO, Err(error));
                Step::Again
            }
        }
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO`, up to the final reply. Nothing is replied before `find` has succeeded.
    fn info(
        &self,
        option: u32,
        data: &[u8],
        out: &mut Outbox,
        find: impl FnOnce(&str) -> Result<Export, OptionError>,
    ) -> Result<Export, OptionError> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u16()?;
        let (mut wants_name, mut wants_description, mut wants_sizes) = (false, false, false);
        for _ in 0..count {
            match fields.u16()? {
                INFO_NAME => wants_name = true,
                INFO_DESCRIPTION => wants_description = true,
                INFO_BLOCK_SIZE => wants_sizes = true,
                _ => {} // Unknown ones are to be ignored.
            }
        }
        fields.end()?;
        let export = find(name)?;
        let sizes = block_sizes(&export);
        let insists = sizes.min != 1;
        if wants_sizes || insists {
            let [a, b] = INFO_BLOCK_SIZE.to_be_bytes();
            let mut info = vec![a, b];
            [sizes.min, sizes.preferred, sizes.max].iter().for_each(|size| info.extend(size.to_be_bytes()));
            put_reply(out, option, REP_INFO, &[&info]);
        }
        if insists && !wants_sizes {
            return Err((REP_ERR_BLOCK_SIZE_REQD, "ask for the block sizes of this export, and keep to them".into()));
        }
        let (size, flags) = (export.size.to_be_bytes(), export::flags(&export, self.structured).to_be_bytes());
        put_reply(out, option, REP_INFO, &[&INFO_EXPORT.to_be_bytes(), &size, &flags]);
        if wants_name {
            put_reply(out, option, REP_INFO, &[&INFO_NAME.to_be_bytes(), export.name.as_bytes()]);
        }
        if wants_description && !export.description.is_empty() {
            put_reply(out, option, REP_INFO, &[&INFO_DESCRIPTION.to_be_bytes(), description(&export).as_bytes()]);
        }
        Ok(export)
    }

    /// `NBD_OPT_STRUCTURED_REPLY`.
    fn structured_reply(&mut self, data: &[u8]) -> Result<(), OptionError> {
        if !data.is_empty() {
            return Err((REP_ERR_INVALID, "the option takes no data".into()));
        }
        if self.structured {
            return Err((REP_ERR_INVALID, "structured replies are negotiated already".into()));
        }
        self.structured = true;
        Ok(())
    }

    /// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`. Setting forgets what was set before, also when it
    /// fails. What does not name a context that is known selects nothing; a query without a namespace is an error.
    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        out: &mut Outbox,
        exports: &dyn Exports,
    ) -> Result<(), OptionError> {
        let listing = option == OPT_LIST_META_CONTEXT;
        if !listing {
            self.meta_context = None;
        }
        if !self.structured {
            return Err((REP_ERR_INVALID, "structured replies must be negotiated first".into()));
        }
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let mut found = listing && count == 0;
        for _ in 0..count {
            // Each query takes four bytes at least, so a false count ends here soon.
            let query = fields.string()?;
            if !query.contains(':') {
                return Err((REP_ERR_INVALID, "a metadata context query lacks its namespace".into()));
            }
            found |= query == BASE_ALLOCATION || (listing && query == "base:");
        }
        fields.end()?;
        let export = exports.find(name).ok_or(UNKNOWN_EXPORT)?;
        if found {
            let id = if listing { 0 } else { BASE_ALLOCATION_ID };
            put_reply(out, option, REP_META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()]);
            if !listing {
                self.meta_context = Some(export.name);
            }
        }
        Ok(())
    }
}

/// The export that an option speaks of.
fn named_by(option: u32, data: &[u8]) -> Option<&str> {
    match option {
        OPT_EXPORT_NAME => string(data).ok(),
        OPT_GO | OPT_INFO | OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => Fields(data).string().ok(),
        _ => None,
    }
}

/// `NBD_OPT_LIST`, up to the final reply.
fn list(data: &[u8], out: &mut Outbox, exports: &dyn Exports) -> Result<(), OptionError> {
    if !data.is_empty() {
        return Err((REP_ERR_INVALID, "the option takes no data".into()));
    }
    match exports.listing(PROTOCOL, &export::listing) {
        Some(listing) => out.put_payload(listing),
        None => return Err((REP_ERR_TOO_BIG, "there are too many exports to list; ask for one by its name".into())),
    }
    Ok(())
}
