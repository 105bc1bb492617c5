//! What of a volume a command needs, once its data is there.

use super::copies::Copying;
use super::rights::Asks;
use super::task::{After, SCAN_BYTES, Task};
use super::unit::Units;
use crate::scsi::parameters::unmap;
use crate::scsi::reservations::lists;
use crate::scsi::sense::{Failure, Sense};
use crate::scsi::{Disk, Plan, Range, Use, copy, mode};
use azekura_base::{PageBuf, is_zero};
use azekura_frontend::Request;
use bytes::Bytes;

/// Makes the requests of a task, whose data has come.
pub(crate) fn begin(task: &mut Task, disk: &Disk, units: &Units) {
    task.is_started = true;
    match task.plan.clone() {
        // What is known of copies was looked at when the command came.
        Plan::Data(_) | Plan::CopyStatus(..) => {}
        Plan::Check(sense) => task.failure = Some(Failure::Check(sense)),
        Plan::Read(range) => {
            // Whole blocks of what the initiator has room for; what it has no room for is said by the residual count.
            let len = range.len.min(u64::from(task.command.read_bytes));
            task.after = After::Send;
            if len > 0 {
                task.requests.push_back(Request::Read { offset: range.offset, len });
            }
        }
        Plan::Scan(range) => {
            task.after = After::Drop;
            let pieces = (0..range.len).step_by(SCAN_BYTES as usize);
            let read = |at| Request::Read { offset: range.offset + at, len: SCAN_BYTES.min(range.len - at) };
            task.requests.extend(pieces.map(read));
        }
        Plan::Status(range, room) => {
            task.after = After::Status { block: disk.block, offset: range.offset, room };
            task.requests.push_back(Request::Extents { offset: range.offset, len: range.len });
        }
        Plan::Zero(range) => task.requests.push_back(Request::Zero { offset: range.offset, len: range.len }),
        Plan::Cache(range) => task.requests.push_back(Request::Cache { offset: range.offset, len: range.len }),
        Plan::Reservations(..) => task.asks = Some(Asks::Read),
        Plan::Flush => task.requests.push_back(Request::Flush),
        Plan::Take(len, what) => {
            let data = task.data.finish();
            if let Err(sense) = with_data(task, (disk, units), len as usize, what, data) {
                task.failure = Some(Failure::Check(sense));
            }
        }
    }
}

fn with_data(task: &mut Task, (disk, units): (&Disk, &Units), len: usize, what: Use, data: Bytes) -> Result<(), Sense> {
    let block = disk.block_bytes() as usize;
    // A parameter list or a pattern that is not whole means nothing.
    let whole = || if data.len() < len { Err(Sense::NOT_ENOUGH_DATA) } else { Ok(()) };
    match what {
        Use::Write(offset) => {
            let bytes = data.slice(..data.len() - data.len() % block);
            if !bytes.is_empty() {
                task.requests.push_back(Request::Write { offset, bytes });
            }
        }
        Use::Or(offset) => {
            let bytes = data.slice(..data.len() - data.len() % block);
            if !bytes.is_empty() {
                task.requests.push_back(Request::Or { offset, bytes });
            }
        }
        Use::CompareAndWrite(offset) => {
            // Another expected length is that of another command.
            if task.command.write_bytes as usize != len {
                return Err(Sense::FIELD);
            }
            whole()?;
            let (expected, bytes) = (data.slice(..len / 2), data.slice(len / 2..));
            if !bytes.is_empty() {
                task.requests.push_back(Request::CompareAndWrite { offset, expected, bytes });
            }
        }
        Use::Same(range) => {
            // One block is what the command takes: another expected length is another command's.
            if task.command.write_bytes as usize != block {
                return Err(Sense::FIELD);
            }
            whole()?;
            let request = if is_zero(&data) {
                Request::Zero { offset: range.offset, len: range.len }
            } else {
                Request::Write { offset: range.offset, bytes: repeated(&data, range) }
            };
            task.requests.push_back(request);
        }
        Use::Verify(range) => {
            whole()?;
            task.after = After::Compare { with: data, every: false };
            task.requests.push_back(Request::Read { offset: range.offset, len: range.len });
        }
        Use::VerifySame(range) => {
            whole()?;
            task.after = After::Compare { with: data, every: true };
            task.requests.push_back(Request::Read { offset: range.offset, len: range.len });
        }
        Use::Unmap => {
            whole()?;
            // What is not mapped reads as zeros (LBPRZ), also where only a part of one of our blocks is meant.
            let zero = |range: Range| Request::Zero { offset: range.offset, len: range.len };
            task.requests.extend(unmap(disk, &data)?.into_iter().map(zero));
        }
        Use::Copy => {
            whole()?;
            let disks: Vec<(u16, &Disk)> = units.seen().map(|(number, unit)| (number, &unit.disk)).collect();
            let (copying, requests) = Copying::of(&copy::parse(&disks, &data)?);
            (task.copying, task.requests) = (Some(copying), requests);
        }
        Use::Reservations(action) => {
            whole()?;
            task.asks = Some(Asks::Change(lists::command(action, &data)?));
        }
        Use::ModeSelect { is_long } => {
            whole()?;
            mode::check_selected(disk, &data, is_long)?;
        }
    }
    Ok(())
}

/// A block, all over a range.
fn repeated(block: &[u8], range: Range) -> Bytes {
    let mut buf = PageBuf::new(range.len as usize);
    buf.chunks_exact_mut(block.len()).for_each(|place| place.copy_from_slice(block));
    buf.freeze()
}
