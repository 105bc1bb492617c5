//! Memory of this process's making that a peer is to keep.

use crate::{ConnId, Reactor, Stream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

impl<S: Stream> Reactor<S> {
    /// Sends a few bytes to a peer of this machine, and with them a memory file of `len` zeros that can't be made
    /// shorter or longer. This process keeps nothing of it.
    ///
    /// # Errors
    /// When there is no such file to be had, when bytes that were to be sent before have not been, or when the socket
    /// does not take these at once.
    pub fn lend(&mut self, conn: ConnId, bytes: &[u8], len: u64) -> io::Result<()> {
        if self.unsent_bytes(conn) > 0 {
            return Err(io::Error::other("other bytes wait to be sent"));
        }
        let file = memfd_create("azekura", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let Some(index) = self.connections.index(conn.0) else { return Err(io::ErrorKind::NotConnected.into()) };
        let socket = self.connections.at(index).socket.as_fd();
        let descriptors = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)? {
            sent if sent == bytes.len() => Ok(()),
            sent => Err(io::Error::other(format!("only {sent} of {} bytes were sent", bytes.len()))),
        }
    }
}
