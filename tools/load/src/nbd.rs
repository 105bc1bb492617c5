//! NBD: fixed newstyle negotiation with NBD_OPT_GO, and simple replies.
//! Source: the NBD protocol, <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

use crate::stream::Stream;
use crate::{Door, Operation};
use anyhow::{Result, bail, ensure};

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
/// NBD_FLAG_C_FIXED_NEWSTYLE and NBD_FLAG_C_NO_ZEROES.
const CLIENT_FLAGS: u32 = 3;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_ERROR: u32 = 1 << 31;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const REPLY_BYTES: usize = 16;

pub struct Nbd {
    stream: Stream,
    block: u32,
    data: Vec<u8>,
    reads: Vec<bool>,
}

impl Nbd {
    pub fn connect(address: &str, export: &str, block: u32, depth: u16) -> Result<Nbd> {
        let mut stream = Stream::connect(address)?;
        ensure!(stream.exactly(18)?.starts_with(GREETING), "this is no NBD server of the newstyle");
        stream.put(&CLIENT_FLAGS.to_be_bytes());
        stream.put(b"IHAVEOPT");
        stream.put(&OPT_GO.to_be_bytes());
        stream.put(&(export.len() as u32 + 6).to_be_bytes());
        stream.put(&(export.len() as u32).to_be_bytes());
        stream.put(export.as_bytes());
        stream.put(&0u16.to_be_bytes());
        stream.send()?;
        loop {
            let head = stream.exactly(20)?;
            let (kind, size) = (be_u32(&head, 12), be_u32(&head, 16));
            let data = stream.exactly(size as usize)?;
            match kind {
                REP_ACK => break,
                kind if kind & REP_ERROR != 0 => {
                    bail!("the export '{export}' is refused ({kind:#x}): {}", String::from_utf8_lossy(&data))
                }
                _ => {}
            }
        }
        Ok(Nbd { stream, block, data: vec![0xa5; block as usize], reads: vec![false; usize::from(depth)] })
    }
}

impl Door for Nbd {
    fn ask(&mut self, slot: u16, operation: Operation, offset: u64) -> Result<()> {
        let is_read = operation == Operation::Read;
        self.reads[usize::from(slot)] = is_read;
        self.stream.put(&REQUEST.to_be_bytes());
        self.stream.put(&0u16.to_be_bytes());
        self.stream.put(&(if is_read { CMD_READ } else { CMD_WRITE }).to_be_bytes());
        self.stream.put(&u64::from(slot).to_be_bytes());
        self.stream.put(&offset.to_be_bytes());
        self.stream.put(&self.block.to_be_bytes());
        if !is_read {
            // No two blocks are the same.
            self.data[..8].copy_from_slice(&offset.to_le_bytes());
            self.stream.put(&self.data);
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.stream.send()
    }

    fn done(&mut self, slots: &mut Vec<u16>) -> Result<()> {
        while slots.is_empty() {
            self.stream.receive()?;
            loop {
                let ready = self.stream.ready();
                if ready.len() < REPLY_BYTES {
                    break;
                }
                ensure!(be_u32(ready, 0) == SIMPLE_REPLY, "this is no simple reply");
                let (error, slot) = (be_u32(ready, 4), be_u32(ready, 12) as u16);
                ensure!(error == 0, "a request has failed with error {error}");
                let Some(is_read) = self.reads.get(usize::from(slot)) else { bail!("an answer to what was not asked") };
                let size = REPLY_BYTES + if *is_read { self.block as usize } else { 0 };
                if ready.len() < size {
                    break;
                }
                self.stream.take(size);
                slots.push(slot);
            }
        }
        Ok(())
    }
}

fn be_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
