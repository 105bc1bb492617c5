//! Receiving file descriptors beside bytes (unix(7), SCM_RIGHTS).
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    ptr::null_mut,
};

/// Descriptors that are taken with one receive; who sends more at once is not served.
pub const DESCRIPTORS_AT_ONCE_MAX: usize = 16;
/// Room for the header of a control message and so many descriptors, in words, so that it is aligned.
const CONTROL_WORDS: usize = 2 + DESCRIPTORS_AT_ONCE_MAX * size_of::<RawFd>() / size_of::<u64>();

/// The message header of one receive. It stays in one place in memory (its owner boxes it), for the kernel writes into
/// it.
pub(crate) struct Receiving {
    header: libc::msghdr,
    vector: libc::iovec,
    control: [u64; CONTROL_WORDS],
}

impl Receiving {
    pub(crate) fn new() -> Box<Receiving> {
        // SAFETY: both are C structs of integers and pointers, for which all zeros is a value.
        let (header, vector) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Box::new(Receiving { header, vector, control: [0; CONTROL_WORDS] })
    }

    /// Points the header at the memory that bytes are to go to. The pointer holds until the `Receiving` is changed or
    /// dropped.
    pub(crate) fn aim(&mut self, start: *mut u8, len: usize) -> *mut libc::msghdr {
        self.vector = libc::iovec { iov_base: start.cast(), iov_len: len };
        self.header.msg_name = null_mut();
        self.header.msg_iov = &raw mut self.vector;
        self.header.msg_iovlen = 1;
        self.header.msg_control = self.control.as_mut_ptr().cast();
        self.header.msg_controllen = size_of_val(&self.control) as _;
        self.header.msg_flags = 0;
        &raw mut self.header
    }

    /// What has come with the bytes; to be called once after a receive that the kernel has ended without an error, and
    /// never after another.
    ///
    /// # Errors
    /// When there were more than [`DESCRIPTORS_AT_ONCE_MAX`]. The kernel has dropped those, and the others are closed.
    pub(crate) fn take(&mut self) -> io::Result<Vec<OwnedFd>> {
        let mut found = Vec::new();
        // SAFETY: the kernel has filled the header and `control`, which the header points at; so the macros stay inside
        // of what it says is filled. A descriptor in a message of this kind was made by the kernel for this process,
        // and nobody has taken it yet, as the caller warrants; the lengths are forgotten below, so nobody will again.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(&raw const self.header);
            while !message.is_null() {
                let kind = ((*message).cmsg_level, (*message).cmsg_type);
                let bytes = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                if kind == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                    let data: *const RawFd = libc::CMSG_DATA(message).cast();
                    for index in 0..bytes / size_of::<RawFd>() {
                        found.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                    }
                }
                message = libc::CMSG_NXTHDR(&raw const self.header, message);
            }
        }
        self.header.msg_controllen = 0;
        if self.header.msg_flags & libc::MSG_CTRUNC != 0 {
            let what = format!("more than {DESCRIPTORS_AT_ONCE_MAX} file descriptors at once");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(found)
    }
}
