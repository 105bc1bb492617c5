//! The client's half of the protocol: bytes to say, and what the server answered, taken apart.

use azekura_frontend::Exports;
use azekura_nbd::numbers::*;
use azekura_nbd::{Event, Session};
use bytes::Bytes;

/// What a client says, gathered.
#[derive(Clone, Debug, Default)]
pub struct Say(pub Vec<u8>);

impl Say {
    /// The client's first words, in fixed newstyle without zeroes.
    pub fn hello() -> Say {
        Say::flags(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES)
    }

    pub fn nothing() -> Say {
        Say::default()
    }

    pub fn flags(flags: u32) -> Say {
        Say(flags.to_be_bytes().to_vec())
    }

    pub fn raw(mut self, bytes: &[u8]) -> Say {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn option(self, option: u32, data: &[u8]) -> Say {
        self.raw(&IHAVEOPT.to_be_bytes()).raw(&option.to_be_bytes()).raw(&(data.len() as u32).to_be_bytes()).raw(data)
    }

    pub fn go(self, name: &str, infos: &[u16]) -> Say {
        self.option(OPT_GO, &info_data(name, infos))
    }

    pub fn structured(self) -> Say {
        self.option(OPT_STRUCTURED_REPLY, &[])
    }

    pub fn request(self, flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Say {
        self.raw(&REQUEST_MAGIC.to_be_bytes())
            .raw(&flags.to_be_bytes())
            .raw(&command.to_be_bytes())
            .raw(&cookie.to_be_bytes())
            .raw(&offset.to_be_bytes())
            .raw(&length.to_be_bytes())
    }

    pub fn write(self, flags: u16, cookie: u64, offset: u64, data: &[u8]) -> Say {
        self.request(flags, CMD_WRITE, cookie, offset, data.len() as u32).raw(data)
    }
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub fn info_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

/// Data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
pub fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

/// Gives the session up to `count` of the bytes in `stream`, as one receive.
pub fn feed(session: &mut Session, stream: &mut &[u8], count: usize) {
    let mut fill = session.inbox_mut().take_fill();
    let count = count.min(stream.len()).min(fill.buf.len() - fill.at);
    let (now, later) = stream.split_at(count);
    fill.buf[fill.at..fill.at + count].copy_from_slice(now);
    session.inbox_mut().filled(fill, count);
    *stream = later;
}

/// Gives the session everything, and returns all events up to the end of the bytes or of the session.
pub fn hear(session: &mut Session, exports: &dyn Exports, say: &Say) -> Vec<Event> {
    let mut stream = &say.0[..];
    let mut events = Vec::new();
    loop {
        while let Some(event) = session.poll(exports) {
            events.push(event);
        }
        if stream.is_empty() || !session.wants_bytes() {
            return events;
        }
        feed(session, &mut stream, usize::MAX);
    }
}

/// Everything that waits to be sent.
pub fn sent(session: &mut Session) -> Vec<u8> {
    let mut all = Vec::new();
    while !session.outbox_mut().is_empty() {
        let mut pieces = Vec::<Bytes>::new();
        session.outbox_mut().take(&mut pieces, 16, 1 << 20);
        pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    }
    all
}

/// Reads the server's bytes from the front.
pub struct Heard<'a>(pub &'a [u8]);

impl<'a> Heard<'a> {
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(count).expect("the server said less than expected");
        self.0 = rest;
        bytes
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().unwrap())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().unwrap())
    }

    /// The greeting.
    pub fn greeting(&mut self) {
        assert_eq!(self.u64(), INIT_PASSWD);
        assert_eq!(self.u64(), IHAVEOPT);
        assert_eq!(self.u16(), FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    }

    /// One reply to `option`: its type and data.
    pub fn option_reply(&mut self, option: u32) -> (u32, &'a [u8]) {
        assert_eq!(self.u64(), OPTION_REPLY_MAGIC);
        assert_eq!(self.u32(), option);
        let kind = self.u32();
        let length = self.u32();
        (kind, self.bytes(length as usize))
    }

    /// A simple reply without data: cookie and error.
    pub fn simple(&mut self) -> (u64, u32) {
        assert_eq!(self.u32(), SIMPLE_REPLY_MAGIC);
        let error = self.u32();
        (self.u64(), error)
    }

    /// A structured reply chunk.
    pub fn chunk(&mut self) -> ReplyChunk<'a> {
        assert_eq!(self.u32(), STRUCTURED_REPLY_MAGIC);
        let flags = self.u16();
        assert_eq!(flags & !REPLY_FLAG_DONE, 0);
        let kind = self.u16();
        let cookie = self.u64();
        let length = self.u32();
        ReplyChunk { done: flags != 0, kind, cookie, payload: self.bytes(length as usize) }
    }

    /// An error chunk that ends the reply to `cookie`: its number.
    pub fn error(&mut self, cookie: u64) -> u32 {
        let chunk = self.chunk();
        assert_eq!((chunk.kind, chunk.cookie, chunk.done), (REPLY_TYPE_ERROR, cookie, true));
        let mut payload = Heard(chunk.payload);
        let error = payload.u32();
        let length = payload.u16();
        assert_eq!(payload.0.len(), usize::from(length));
        error
    }

    pub fn end(self) {
        assert!(self.0.is_empty(), "the server said more than expected: {:x?}", self.0);
    }
}

/// *Structured reply chunk message*.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplyChunk<'a> {
    pub done: bool,
    pub kind: u16,
    pub cookie: u64,
    pub payload: &'a [u8],
}
