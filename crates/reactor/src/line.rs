//! Lines: sockets of other processes of this machine, to which a few words are said now and then.

use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType, send};
use std::io;
use std::os::fd::OwnedFd;

/// A socket that another process has handed over, to be told things by. Nothing is read from it.
#[derive(Debug)]
pub struct Line(OwnedFd);

impl Line {
    /// # Errors
    /// When it is no unix socket for a stream: others could hold up who writes, or lead away from this machine.
    pub fn new(socket: OwnedFd) -> io::Result<Line> {
        let refuse = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        match (socket_domain(&socket), socket_type(&socket)) {
            (Ok(AddressFamily::UNIX), Ok(SocketType::STREAM)) => Ok(Line(socket)),
            (Ok(_), Ok(_)) => refuse("no unix socket for a stream"),
            _ => refuse("no socket"),
        }
    }

    /// Says a few bytes, all or none of them, without waiting. True: they are said. False: the other side has not read
    /// what was said before, and there is no room for them.
    ///
    /// # Errors
    /// When the other side has closed it, or has got a part of them alone, so that nothing more is to be said.
    pub fn tell(&self, bytes: &[u8]) -> io::Result<bool> {
        match send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(said) if said == bytes.len() => Ok(true),
            Ok(said) => Err(io::Error::other(format!("only {said} of {} bytes were sent", bytes.len()))),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::UdpSocket;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn what_is_told_is_read_and_nobody_waits_for_a_reader() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let line = Line::new(here.into()).unwrap();
        assert!(line.tell(b"twelve bytes").unwrap());
        let mut said = [0; 12];
        there.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"twelve bytes");
        let mut told = 0;
        while line.tell(b"twelve bytes").unwrap() {
            told += 1;
            assert!(told < 10_000_000, "the socket has no end");
        }
        // All of those that were told come whole.
        for _ in 0..told {
            there.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"twelve bytes");
        }
        drop(there);
        assert!(line.tell(b"twelve bytes").is_err());
    }

    #[test]
    fn what_is_no_unix_stream_is_refused() {
        let why = |socket: OwnedFd| Line::new(socket).unwrap_err().to_string();
        assert_eq!(why(std::fs::File::open("/dev/null").unwrap().into()), "no socket");
        assert_eq!(why(UdpSocket::bind("127.0.0.1:0").unwrap().into()), "no unix socket for a stream");
        assert_eq!(why(UnixDatagram::unbound().unwrap().into()), "no unix socket for a stream");
    }
}
