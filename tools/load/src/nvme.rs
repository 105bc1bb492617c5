//! NVMe over TCP: an admin queue that enables the controller, and one I/O queue. Writes take their data along in the
//! capsule, as hosts do with what fits. Sources: NVM Express Base 2.0 and NVMe/TCP Transport 1.0.

use crate::stream::Stream;
use crate::{Door, Operation};
use anyhow::{Result, bail, ensure};

const HOST: &str = "nqn.2000-01.example:load";
const ICREQ: u8 = 0x00;
const ICRESP: u8 = 0x01;
const CAPSULE_COMMAND: u8 = 0x04;
const CAPSULE_RESPONSE: u8 = 0x05;
const C2H_DATA: u8 = 0x07;
/// Of C2HData: no response follows, the command has succeeded.
const FLAG_SUCCESS: u8 = 1 << 3;
const FABRICS: u8 = 0x7F;
const CONNECT: u8 = 0x01;
const PROPERTY_SET: u8 = 0x00;
const CC: u32 = 0x14;
/// EN, and the sizes of entries: 64 and 16 bytes.
const CC_ENABLED: u64 = 0x0046_0001;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const NAMESPACE: u32 = 1;
/// The scatter gather lists that commands have: data in the capsule, and data of the transport.
const SGL_IN_CAPSULE: u8 = 0x01;
const SGL_TRANSPORT: u8 = 0x5A;
const HEAD: usize = 8;
const COMMAND_HEAD: usize = HEAD + 64;
/// Bytes of logical blocks.
const SECTOR: u32 = 512;

pub struct Nvme {
    io: Stream,
    /// The controller lives as long as this.
    _admin: Stream,
    block: u32,
    data: Vec<u8>,
}

impl Nvme {
    pub fn connect(address: &str, subsystem: &str, block: u32, depth: u16) -> Result<Nvme> {
        let (mut admin, controller) = queue(address, subsystem, 0xFFFF, 0, 31)?;
        let mut tail = vec![0; 24];
        tail[4..8].copy_from_slice(&CC.to_le_bytes());
        tail[8..16].copy_from_slice(&CC_ENABLED.to_le_bytes());
        fabrics(&mut admin, PROPERTY_SET, &tail, &[])?;
        // A queue has one entry more than may be under way.
        let (io, _) = queue(address, subsystem, controller, 1, depth)?;
        Ok(Nvme { io, _admin: admin, block, data: vec![0xa5; block as usize] })
    }
}

/// A connection that is a queue of so many entries and one, and the controller that it is of.
fn queue(address: &str, subsystem: &str, controller: u16, number: u16, entries: u16) -> Result<(Stream, u16)> {
    let mut stream = Stream::connect(address)?;
    let mut greeting = vec![0; 128];
    greeting[..8].copy_from_slice(&[ICREQ, 0, 128, 0, 128, 0, 0, 0]);
    stream.put(&greeting);
    stream.send()?;
    let answer = stream.exactly(128)?;
    ensure!(answer[0] == ICRESP, "this is no controller of NVMe/TCP");
    let mut tail = vec![0; 24];
    tail[2..4].copy_from_slice(&number.to_le_bytes());
    tail[4..6].copy_from_slice(&entries.to_le_bytes());
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&[7; 16]);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let result = fabrics(&mut stream, CONNECT, &tail, &data)?;
    Ok((stream, result as u16))
}

/// One command of Fabrics, and the first dword of its answer.
fn fabrics(stream: &mut Stream, kind: u8, tail: &[u8], data: &[u8]) -> Result<u32> {
    let mut command = [0; 64];
    (command[0], command[1], command[4]) = (FABRICS, 0x40, kind);
    if !data.is_empty() {
        command[32..36].copy_from_slice(&(data.len() as u32).to_le_bytes());
        command[39] = SGL_IN_CAPSULE;
    }
    command[40..64].copy_from_slice(tail);
    capsule(stream, &command, data);
    stream.send()?;
    let answer = stream.exactly(24)?;
    ensure!(answer[0] == CAPSULE_RESPONSE, "this is no answer to a command");
    check(&answer)?;
    Ok(le_u32(&answer, HEAD))
}

fn capsule(stream: &mut Stream, command: &[u8; 64], data: &[u8]) {
    let offset = if data.is_empty() { 0 } else { COMMAND_HEAD as u8 };
    stream.put(&[CAPSULE_COMMAND, 0, COMMAND_HEAD as u8, offset]);
    stream.put(&((COMMAND_HEAD + data.len()) as u32).to_le_bytes());
    stream.put(command);
    stream.put(data);
}

/// Of a response capsule, whose status is in its last two bytes.
fn check(response: &[u8]) -> Result<()> {
    let status = (le_u32(response, 20) >> 17) & 0x7FF;
    ensure!(status == 0, "a command has failed with status {status:#05x}");
    Ok(())
}

impl Door for Nvme {
    fn ask(&mut self, slot: u16, operation: Operation, offset: u64) -> Result<()> {
        let is_read = operation == Operation::Read;
        let mut command = [0; 64];
        (command[0], command[1]) = (if is_read { READ } else { WRITE }, 0x40);
        command[2..4].copy_from_slice(&slot.to_le_bytes());
        command[4..8].copy_from_slice(&NAMESPACE.to_le_bytes());
        command[32..36].copy_from_slice(&self.block.to_le_bytes());
        command[39] = if is_read { SGL_TRANSPORT } else { SGL_IN_CAPSULE };
        command[40..48].copy_from_slice(&(offset / u64::from(SECTOR)).to_le_bytes());
        command[48..50].copy_from_slice(&((self.block / SECTOR - 1) as u16).to_le_bytes());
        if is_read {
            capsule(&mut self.io, &command, &[]);
        } else {
            // No two blocks are the same.
            self.data[..8].copy_from_slice(&offset.to_le_bytes());
            capsule(&mut self.io, &command, &self.data);
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.io.send()
    }

    fn done(&mut self, slots: &mut Vec<u16>) -> Result<()> {
        while slots.is_empty() {
            self.io.receive()?;
            loop {
                let ready = self.io.ready();
                if ready.len() < HEAD || ready.len() < le_u32(ready, 4) as usize {
                    break;
                }
                let size = le_u32(ready, 4) as usize;
                ensure!(size >= 24, "a PDU of {size} bytes");
                match ready[0] {
                    CAPSULE_RESPONSE => {
                        check(ready)?;
                        slots.push((le_u32(ready, 20) & 0xFFFF) as u16);
                    }
                    C2H_DATA if ready[1] & FLAG_SUCCESS != 0 => slots.push((le_u32(ready, HEAD) & 0xFFFF) as u16),
                    C2H_DATA => {}
                    kind => bail!("a PDU of type {kind:#04x}: are {} bytes too many for a capsule?", self.block),
                }
                self.io.take(size);
            }
        }
        Ok(())
    }
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
