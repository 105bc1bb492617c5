//! A byte stream with what waits to go out and what has come in.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// An answer takes longer only if something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
const ROOM: usize = 1 << 20;

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

pub struct Stream {
    socket: Box<dyn Both>,
    out: Vec<u8>,
    inbox: Vec<u8>,
    /// What of `inbox` has been taken, and what has come.
    taken: usize,
    filled: usize,
}

impl Stream {
    pub fn connect(address: &str) -> Result<Stream> {
        let socket: Box<dyn Both> = if address.contains('/') {
            let socket = UnixStream::connect(address)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Box::new(socket)
        } else {
            let socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Box::new(socket)
        };
        Ok(Stream { socket, out: Vec::new(), inbox: vec![0; ROOM], taken: 0, filled: 0 })
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub fn send(&mut self) -> Result<()> {
        if !self.out.is_empty() {
            self.socket.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// What has come and was not taken.
    pub fn ready(&self) -> &[u8] {
        &self.inbox[self.taken..self.filled]
    }

    pub fn take(&mut self, count: usize) {
        self.taken += count;
    }

    /// Waits for more.
    pub fn receive(&mut self) -> Result<()> {
        if self.taken > 0 {
            self.inbox.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        if self.filled == self.inbox.len() {
            self.inbox.resize(self.filled * 2, 0);
        }
        let count = self.socket.read(&mut self.inbox[self.filled..]).context("no answer")?;
        ensure!(count > 0, "the server has ended the connection");
        self.filled += count;
        Ok(())
    }

    /// Waits for `count` bytes, and takes them.
    pub fn exactly(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.ready().len() < count {
            self.receive()?;
        }
        let bytes = self.ready()[..count].to_vec();
        self.take(count);
        Ok(bytes)
    }
}
