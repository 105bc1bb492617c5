//! vhost-user: the driver of a virtio block device, with one split ring in a memory file, which is told of events by
//! their index, as Linux's driver does. Sources: the vhost-user protocol of QEMU, and virtio 1.2 section 2.7.

use crate::{Door, Operation};
use anyhow::{Context, Result, bail, ensure};
use azekura_base::SharedMemory;
use azekura_reactor::MappedMemory;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
/// VERSION_1, PROTOCOL_FEATURES and EVENT_IDX.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 29;
/// VHOST_USER_PROTOCOL_F_CONFIG, which QEMU's servers of block devices want.
const PROTOCOL: u64 = 1 << 9;
const MESSAGE_VERSION: u32 = 1;
/// Where the memory begins as a guest has it, and as its process would.
const GUEST: u64 = 0x4000_0000;
const USER: u64 = 0x7F00_0000_0000;
const DESCRIPTOR_NEXT: u16 = 1;
const DESCRIPTOR_WRITE: u16 = 2;
const SECTOR: u64 = 512;
/// Descriptors of a request: its header, its data and its status.
const CHAIN: u16 = 3;
const PAGE: usize = 4096;
const PATIENCE_S: i64 = 60;

/// Where what is in the memory, in bytes from its beginning. Descriptors come first.
struct Places {
    entries: u16,
    available: usize,
    used: usize,
    /// A page for each request, with header and status.
    heads: usize,
    data: usize,
    end: usize,
}

impl Places {
    fn new(depth: u16, block: u32) -> Result<Places> {
        let entries = depth.checked_mul(CHAIN).and_then(u16::checked_next_power_of_two);
        let entries = entries.filter(|entries| *entries <= 1024).context("--depth is 341 at most")?;
        let up = |at: usize| at.next_multiple_of(PAGE);
        let available = 16 * usize::from(entries);
        let used = up(available + 8 + 2 * usize::from(entries));
        let heads = up(used + 8 + 8 * usize::from(entries));
        let data = heads + PAGE * usize::from(depth);
        Ok(Places { entries, available, used, heads, data, end: up(data + block as usize * usize::from(depth)) })
    }
}

pub struct Vhost {
    _socket: UnixStream,
    memory: MappedMemory,
    places: Places,
    block: u32,
    kick: OwnedFd,
    call: OwnedFd,
    /// What was made available, what the server has been kicked for, and what it has used.
    available: u16,
    kicked: u16,
    used: u16,
}

impl Vhost {
    pub fn connect(path: &str, block: u32, depth: u16) -> Result<Vhost> {
        let places = Places::new(depth, block)?;
        let file = rustix::fs::memfd_create("load", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, places.end as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let memory = MappedMemory::new(&file, 0, places.end)?;
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(Duration::from_secs(PATIENCE_S as u64)))?;
        let offered = ask(&socket, GET_FEATURES)?;
        ensure!(offered & FEATURES == FEATURES, "the server does not offer what is needed: {offered:#x}");
        ensure!(ask(&socket, GET_PROTOCOL_FEATURES)? & PROTOCOL == PROTOCOL, "the server has no configuration space");
        send(&socket, SET_PROTOCOL_FEATURES, &PROTOCOL.to_ne_bytes(), None)?;
        send(&socket, SET_OWNER, &[], None)?;
        send(&socket, SET_FEATURES, &FEATURES.to_ne_bytes(), None)?;
        let mut table = Vec::new();
        table.extend([1u32, 0].iter().flat_map(|number| number.to_ne_bytes()));
        table.extend([GUEST, places.end as u64, USER, 0].iter().flat_map(|number| number.to_ne_bytes()));
        send(&socket, SET_MEM_TABLE, &table, Some(file.as_fd()))?;
        let (kick, call) = (event()?, event()?);
        let pair = |number: u32| [0, number].iter().flat_map(|number: &u32| number.to_ne_bytes()).collect::<Vec<u8>>();
        send(&socket, SET_VRING_NUM, &pair(u32::from(places.entries)), None)?;
        send(&socket, SET_VRING_BASE, &pair(0), None)?;
        let mut at = pair(0);
        let rings = [0, places.used, places.available].map(|place| USER + place as u64);
        at.extend(rings.iter().chain(&[0]).flat_map(|number| number.to_ne_bytes()));
        send(&socket, SET_VRING_ADDR, &at, None)?;
        send(&socket, SET_VRING_CALL, &0u64.to_ne_bytes(), Some(call.as_fd()))?;
        send(&socket, SET_VRING_KICK, &0u64.to_ne_bytes(), Some(kick.as_fd()))?;
        send(&socket, SET_VRING_ENABLE, &pair(1), None)?;
        Ok(Vhost { _socket: socket, memory, places, block, kick, call, available: 0, kicked: 0, used: 0 })
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.memory.write(at, bytes).context("outside of the memory")
    }

    fn load(&self, at: usize) -> Result<u32> {
        self.memory.load(at).context("outside of the memory")
    }

    fn store(&self, at: usize, number: u32) -> Result<()> {
        self.memory.store(at, number).context("outside of the memory")
    }

    fn descriptor(&self, index: u16, at: usize, size: u32, flags: u16) -> Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(GUEST + at as u64).to_le_bytes());
        bytes[8..12].copy_from_slice(&size.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&(index + 1).to_le_bytes());
        self.write(16 * usize::from(index), &bytes)
    }

    /// Waits for a call. Eventfds don't block, as those of hypervisors.
    fn wait(&self) -> Result<()> {
        let timeout = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&timeout))?;
        ensure!(ready > 0, "no call within {PATIENCE_S} s");
        rustix::io::read(&self.call, &mut [0; 8])?;
        Ok(())
    }

    /// What the server has used by now. The index is in the upper half of a word, beside flags.
    fn used_index(&self) -> Result<u16> {
        Ok((self.load(self.places.used)? >> 16) as u16)
    }
}

impl Door for Vhost {
    fn ask(&mut self, slot: u16, operation: Operation, offset: u64) -> Result<()> {
        let (head, data) = (self.places.heads + PAGE * usize::from(slot), self.block as usize * usize::from(slot));
        let data = self.places.data + data;
        let is_read = operation == Operation::Read;
        let mut request = [0; 16];
        request[..4].copy_from_slice(&u32::from(!is_read).to_le_bytes());
        request[8..].copy_from_slice(&(offset / SECTOR).to_le_bytes());
        self.write(head, &request)?;
        self.write(head + 16, &[0xFF])?;
        if !is_read {
            // No two blocks are the same.
            self.write(data, &offset.to_le_bytes())?;
        }
        let first = slot * CHAIN;
        self.descriptor(first, head, 16, DESCRIPTOR_NEXT)?;
        let access = if is_read { DESCRIPTOR_WRITE } else { 0 };
        self.descriptor(first + 1, data, self.block, DESCRIPTOR_NEXT | access)?;
        self.descriptor(first + 2, head + 16, 1, DESCRIPTOR_WRITE)?;
        let entry = usize::from(self.available % self.places.entries);
        self.write(self.places.available + 4 + 2 * entry, &first.to_le_bytes())?;
        self.available = self.available.wrapping_add(1);
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        if self.available == self.kicked {
            return Ok(());
        }
        self.store(self.places.available, u32::from(self.available) << 16)?;
        fence(Ordering::SeqCst);
        let event = self.load(self.places.used + 4 + 8 * usize::from(self.places.entries))? as u16;
        // Section 2.7.10: the server wants to be told of one that was made available just now.
        let is_wanted = self.available.wrapping_sub(event).wrapping_sub(1) < self.available.wrapping_sub(self.kicked);
        self.kicked = self.available;
        if is_wanted {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn done(&mut self, slots: &mut Vec<u16>) -> Result<()> {
        while self.used_index()? == self.used {
            // To be called for the next one; it may have been used meanwhile.
            let wanted = self.places.available + 4 + 2 * usize::from(self.places.entries);
            self.store(wanted, u32::from(self.used))?;
            fence(Ordering::SeqCst);
            if self.used_index()? == self.used {
                self.wait()?;
            }
        }
        let end = self.used_index()?;
        while self.used != end {
            let entry = usize::from(self.used % self.places.entries);
            let slot = self.load(self.places.used + 4 + 8 * entry)? as u16 / CHAIN;
            let mut status = [0xFF];
            let head = self.places.heads + PAGE * usize::from(slot);
            self.memory.read(head + 16, &mut status).context("outside of the memory")?;
            ensure!(status == [0], "a request has failed with status {}", status[0]);
            slots.push(slot);
            self.used = self.used.wrapping_add(1);
        }
        Ok(())
    }
}

/// Sends a message, perhaps with a file descriptor.
fn send(socket: &UnixStream, request: u32, payload: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
    let head: Vec<u8> =
        [request, MESSAGE_VERSION, payload.len() as u32].iter().flat_map(|number| number.to_ne_bytes()).collect();
    let bytes = [&head[..], payload].concat();
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ensure!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "no room for a descriptor");
    }
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty())?;
    ensure!(sent == bytes.len(), "the socket is full");
    Ok(())
}

fn event() -> Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Asks for a number.
fn ask(mut socket: &UnixStream, request: u32) -> Result<u64> {
    send(socket, request, &[], None)?;
    let mut answer = [0; 20];
    socket.read_exact(&mut answer).context("no answer")?;
    if answer[..4] != request.to_ne_bytes() {
        bail!("an answer to what was not asked");
    }
    let mut number = [0; 8];
    number.copy_from_slice(&answer[12..]);
    Ok(u64::from_ne_bytes(number))
}
