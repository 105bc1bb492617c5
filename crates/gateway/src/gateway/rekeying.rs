//! Blocks that are encrypted under a former key of their volume get the one that is written with
//! (docs/decisions/0038-encrypted-volumes.md, rotation of the data key).
//!
//! A block is read, and written under the other key on the condition that it still holds what was read: what a client
//! writes meanwhile stays. So it does no harm however late such a write arrives, and nobody has to hold anybody up.
//!
//! It is asked for ([`Gateway::rekey`]) by who changes the key of a volume; and by the gateway itself, where a client
//! writes, or compares, a part of a block that is under another key: no primary can merge both. The part waits until
//! its blocks have been changed, and is sent again, with a new number.

use super::{Effect, Gateway};
use crate::ciphers::Cipher;
use crate::cut::Part;
use crate::operations::{Answer, OpId, Rekey};
use crate::parts::{Ask, InFlight, PartId, Wanted};
use crate::reading;
use crate::request::Rekeyed;
use azekura_base::{
    BLOCK_SIZE, Body, CHUNK_SIZE, ChunkIndex, Endpoint, Extent, Generation, IoStatus, KeyGeneration, KeyId, KeyUse,
    Run, VolumeId,
};
use azekura_wire::Expected;
use std::time::Duration;

/// The token of what nobody is told of.
const NO_TOKEN: u64 = u64::MAX;
/// Blocks that are read at once.
const READ_BLOCKS_MAX: u32 = 16;

impl Gateway {
    /// Encrypts blocks of a chunk that are under former keys of their volume under generation `to`, so many at most.
    /// Answered by [`super::Effect::Rekeyed`] with `token`; with [`IoStatus::OtherKey`] while this gateway does not
    /// write with that generation. Chunks that have none cost a look at the map.
    pub fn rekey(
        &mut self,
        token: u64,
        (volume, attachment): (VolumeId, Generation),
        (chunk, to): (ChunkIndex, KeyGeneration),
        most: u32,
        now: Duration,
    ) {
        self.now = now;
        let refused = |status| Effect::Rekeyed(token, Err(status));
        let Some(view) = self.directory.volume(volume).cloned() else {
            return self.effects.push_back(refused(IoStatus::Gone));
        };
        let Some(cipher) = Cipher::of(&view, &self.keys) else {
            return self.effects.push_back(refused(IoStatus::Io));
        };
        if view.read_only {
            return self.effects.push_back(refused(IoStatus::ReadOnly));
        }
        if cipher.writing() != to {
            return self.effects.push_back(refused(IoStatus::OtherKey));
        }
        self.uses.note(volume, now);
        let rekey = Rekey { to, cipher, most, done: Rekeyed::default(), resumes: None };
        let op = self.operations.begin_rekey(token, rekey, (volume, attachment), now);
        let part = Part { chunk, offset: 0, len: CHUNK_SIZE as u32 };
        self.start(op, (&view, attachment), part, Ask::Status, &Cipher::Plain);
        self.complete_if_done(op);
    }

    /// What this gateway has of a data key, and does with it: also with what was encrypted before it had the newest,
    /// and with what was given up and may still be applied.
    #[must_use]
    pub fn key_use(&self, key: KeyId) -> KeyUse {
        let keys = match self.keys.get(&key) {
            Some(Ok(keys)) => Ok(keys),
            Some(Err(why)) => Err(why.as_str()),
            None => Err("it is not in the configuration that the data plane knows"),
        };
        let older = |one, two| match keys {
            Ok(keys) if keys.later(one, two) == one => two,
            _ => one,
        };
        let is_of_key = |volume| self.directory.volume(volume).is_some_and(|view| view.key == Some(key));
        let parts = self.parts.all().map(InFlight::wanted).filter(|wanted| is_of_key(wanted.volume));
        let moving = self.operations.rekeys().filter(|(volume, _)| is_of_key(*volume)).map(|(_, rekey)| rekey.to);
        let given_up = self.parts.given_up_keys().filter(|(volume, _)| is_of_key(*volume)).map(|(_, key)| key);
        let writing = keys.ok().map(|keys| keys.writing().0);
        let parts = parts.filter_map(|wanted| wanted.ask.key());
        let writes = parts.chain(given_up).chain(moving).chain(writing).reduce(older);
        let newest = keys.map_err(str::to_owned);
        let newest = newest.map(|keys| keys.generations().last().unwrap_or(KeyGeneration::FIRST));
        KeyUse { newest, writes }
    }

    /// What a client gets of the blocks that were read, or the blocks themselves, where they are to get another key.
    /// `None`: with which key they are decrypted is not known, or not yet.
    pub(super) fn decrypted(&mut self, id: PartId, extents: Vec<Extent>) -> Option<Answer> {
        let Wanted { op, part, volume, cipher: sent, .. } = self.parts.get(id)?.wanted();
        let (op, part) = (*op, *part);
        let now = match sent {
            Cipher::Plain => None,
            Cipher::Encrypted(_) => self.directory.volume(*volume).and_then(|view| Cipher::of(view, &self.keys)),
        };
        if self.operations.rekey_mut(op).is_none() {
            return Some(Answer::Pieces(reading::trim(part, extents, |key| sent.reads(now.as_ref(), key))?));
        }
        let now = now?;
        let are_known = reading::keys(&extents).all(|key| sent.reads(Some(&now), key).is_some() && now.has(key));
        let rekey = self.operations.rekey_mut(op).filter(|_| are_known)?;
        if !rekey.cipher.is_same(&now, rekey.to) {
            // The key is rotated further: a client's write gets what is written with now. Another pass does the rest.
            rekey.resumes.as_ref()?;
            rekey.to = now.writing();
        }
        rekey.cipher = now;
        Some(Answer::Blocks(part, extents))
    }

    /// It is not known under which key that is what was read: it is read again a little later.
    pub(super) fn wait_for_key(&mut self, id: PartId, from: Endpoint) {
        let Some(mut part) = self.parts.held_by(from, id) else { return };
        part.given_back(self.now);
        if !self.gives_up(id) {
            self.send_later(id);
        }
    }

    /// A part of a client's write was refused: blocks at its edges are under another key. They get the one that is
    /// written with, and the part waits.
    pub(super) fn move_edges(&mut self, wanted: Wanted) {
        let cipher = self.directory.volume(wanted.volume).and_then(|volume| Cipher::of(volume, &self.keys));
        if !self.operations.is_awaited(wanted.op) {
            return self.part_failed(&wanted, IoStatus::Fenced);
        }
        let Some(cipher) = cipher else { return self.part_failed(&wanted, IoStatus::Io) };
        let of = (wanted.volume, wanted.attachment);
        let part = wanted.part;
        let (to, most) = (cipher.writing(), u32::MAX);
        let mut rekey = Rekey { cipher, to, most, done: Rekeyed::default(), resumes: None };
        // Another gateway may be ahead of this one: what it has moved on is not moved back.
        rekey.to = wanted.ask.key().map_or(rekey.to, |key| rekey.later(key));
        rekey.resumes = Some(wanted);
        let op = self.operations.begin_rekey(NO_TOKEN, rekey, of, self.now);
        for block in edges(part) {
            self.start_of(op, of.1, block, Ask::Read);
        }
        self.complete_if_done(op);
    }

    /// What a part of a client's write waited for is done: it is sent again under this key, unless nobody waits for it.
    pub(super) fn resume(&mut self, mut wanted: Wanted, moved: Result<(Cipher, KeyGeneration), IoStatus>) {
        if !self.operations.is_awaited(wanted.op) {
            return self.part_failed(&wanted, IoStatus::Fenced);
        }
        let moved = moved.and_then(|(cipher, to)| move_ask(&mut wanted, &cipher, to).ok_or(IoStatus::Io));
        match moved {
            Ok(()) => self.add(wanted),
            Err(status) => self.part_failed(&wanted, status),
        }
    }

    fn part_failed(&mut self, wanted: &Wanted, status: IoStatus) {
        self.operations.part_written(wanted.op, Some(status));
        self.complete_if_done(wanted.op);
    }

    /// Says which blocks are under which key, or gives blocks: those under former keys are read, or written anew.
    pub(super) fn found_to_move(&mut self, op: OpId, attachment: Generation, answer: Result<Answer, IoStatus>) {
        let failed = match answer {
            Ok(Answer::Runs(part, runs)) => self.read_to_move(op, attachment, part, &runs),
            Ok(Answer::Blocks(part, extents)) => self.write_moved(op, attachment, part, extents),
            Ok(Answer::Pieces(_)) => None,
            Err(status) => Some(status),
        };
        self.operations.part_written(op, failed);
        self.complete_if_done(op);
    }

    /// Reads the blocks that are under former keys. One that is under a key which is not here can't get another.
    fn read_to_move(&mut self, op: OpId, attachment: Generation, part: Part, runs: &[Run]) -> Option<IoStatus> {
        let block = BLOCK_SIZE as u32;
        let (start, end) = (part.offset / block, (part.offset + part.len) / block);
        let mut at = 0;
        for run in runs {
            let (mut first, last) = (at.max(start), (at + u32::from(run.count)).min(end));
            at += u32::from(run.count);
            let rekey = self.operations.rekey_mut(op)?;
            let Some(key) = run.data.filter(|_| first < last) else { continue };
            if !rekey.cipher.has(key) {
                return Some(IoStatus::OtherKey);
            }
            if rekey.is_done(key) {
                continue;
            }
            let begun = (last - first).min(rekey.most);
            rekey.most -= begun;
            rekey.done.left += last - first - begun;
            let end = first + begun;
            while first < end {
                let count = (end - first).min(READ_BLOCKS_MAX);
                let piece = Part { chunk: part.chunk, offset: first * block, len: count * block };
                self.start_of(op, attachment, piece, Ask::Read);
                first += count;
            }
        }
        None
    }

    /// Writes blocks that were read under the other key, each on the condition that it is as it was read.
    fn write_moved(&mut self, op: OpId, attachment: Generation, part: Part, extents: Vec<Extent>) -> Option<IoStatus> {
        let mut offset = part.offset - part.offset % BLOCK_SIZE as u32;
        for extent in extents {
            let (bytes, key) = match extent {
                Extent::Zero { count } => {
                    offset += u32::from(count) * BLOCK_SIZE as u32;
                    continue;
                }
                Extent::Data { bytes, checksums } => (bytes, checksums.key()),
            };
            let rekey = self.operations.rekey_mut(op)?;
            rekey.to = rekey.later(key);
            let (to, cipher) = (rekey.to, rekey.cipher.clone());
            for at in (0..bytes.len()).step_by(BLOCK_SIZE).filter(|_| key != to) {
                let block = Part { chunk: part.chunk, offset: offset + at as u32, len: BLOCK_SIZE as u32 };
                let held = bytes.slice(at..at + BLOCK_SIZE);
                let moved = cipher.move_to(block, &held, (&cipher, key), to);
                let Some((bytes, checksums)) = moved else { return Some(IoStatus::Io) };
                let ask = Ask::CompareAndWrite {
                    expected: Box::new(Expected::new(held, 0).under(key)),
                    body: Body::Data { bytes, checksums },
                    is_encrypted: true,
                };
                self.start_of(op, attachment, block, ask);
            }
            offset += bytes.len() as u32;
        }
        None
    }

    /// A block was written under the other key, or not: somebody has written to it meanwhile, and it is to be looked at
    /// again.
    pub(super) fn block_moved(&mut self, op: OpId, failed: Option<IoStatus>) {
        if let Some(rekey) = self.operations.rekey_mut(op) {
            match failed {
                None => rekey.done.moved += 1,
                Some(IoStatus::Miscompare(_) | IoStatus::OtherKey) => rekey.done.left += 1,
                Some(_) => {}
            }
        }
        let failed = failed.filter(|status| !matches!(status, IoStatus::Miscompare(_) | IoStatus::OtherKey));
        self.operations.part_written(op, failed);
        self.complete_if_done(op);
    }

    /// A part of a request that is under way.
    fn start_of(&mut self, op: OpId, attachment: Generation, part: Part, ask: Ask) {
        let volume = self.operations.volume(op).and_then(|id| self.directory.volume(id).cloned());
        match volume {
            Some(volume) => {
                let cipher = self.operations.rekey_mut(op).map_or(Cipher::Plain, |rekey| rekey.cipher.clone());
                self.start(op, (&volume, attachment), part, ask, &cipher);
            }
            None => self.operations.fail(op, IoStatus::Gone),
        }
    }
}

impl Rekey {
    /// True when a block under this key stays as it is.
    fn is_done(&self, key: KeyGeneration) -> bool {
        self.later(key) == key
    }

    /// The generation that blocks are to have, or this one, if it is later.
    fn later(&self, key: KeyGeneration) -> KeyGeneration {
        match &self.cipher {
            Cipher::Plain => key,
            Cipher::Encrypted(keys) => keys.later(self.to, key),
        }
    }
}

/// The blocks that a part covers in parts, or compares: none of them twice.
fn edges(part: Part) -> impl Iterator<Item = Part> {
    let block = BLOCK_SIZE as u32;
    let (first, last) = (part.offset / block, (part.offset + part.len - 1) / block);
    let of = move |index: u32| Part { chunk: part.chunk, offset: index * block, len: block };
    std::iter::once(of(first)).chain((last != first).then(|| of(last)))
}

/// Has a part of a client's write be what copies have under this key. `None`: a key is not here.
fn move_ask(wanted: &mut Wanted, cipher: &Cipher, to: KeyGeneration) -> Option<()> {
    let Wanted { part, ask, cipher: before, .. } = wanted;
    let part = *part;
    let stays = |from: KeyGeneration, before: &Cipher| from == to && before.is_same(cipher, to);
    let moved = |body: &mut Body, before: &Cipher| {
        if let Body::Data { bytes, checksums } = body
            && !stays(checksums.key(), before)
        {
            (*bytes, *checksums) = cipher.move_to(part, bytes, (before, checksums.key()), to)?;
        }
        Some(())
    };
    match ask {
        Ask::Write(body) => moved(body, before)?,
        Ask::CompareAndWrite { expected, body, .. } => {
            if !stays(expected.key, before) {
                let (bytes, _) = cipher.move_to(part, &expected.bytes, (before, expected.key), to)?;
                **expected = Expected::new(bytes, expected.or_zeros).under(to);
            }
            moved(body, before)?;
        }
        Ask::Settle | Ask::Read | Ask::Status => {}
    }
    *before = cipher.clone();
    Some(())
}
