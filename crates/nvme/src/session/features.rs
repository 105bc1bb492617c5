//! Features of a controller (Base section 5.27.1): what hosts set and get.

use crate::QUEUES_MAX;
use crate::completion::Status;
use crate::controllers::Shared;
use crate::keep_alive::KeepAlive;
use std::collections::BTreeMap;

const ARBITRATION: u8 = 0x01;
const POWER: u8 = 0x02;
const TEMPERATURE: u8 = 0x04;
const ERROR_RECOVERY: u8 = 0x05;
const QUEUES: u8 = 0x07;
const EVENTS: u8 = 0x0b;
const KEEP_ALIVE: u8 = 0x0f;
const HOST_BEHAVIOR: u8 = 0x16;
const HOST_ID: u8 = 0x81;

/// Bytes of the data of Host Behavior Support.
const BEHAVIOR_SIZE: usize = 512;

/// What is answered to Get Features.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Value(u32),
    Data(Vec<u8>),
}

/// The features of one controller.
#[derive(Debug)]
pub(super) struct Features {
    /// Those that are kept and have no effect here.
    kept: BTreeMap<u8, u32>,
    pub keep_alive: KeepAlive,
    /// Events of which the host wants to hear.
    pub events: u32,
    behavior: Vec<u8>,
    is_discovery: bool,
}

impl Features {
    pub fn new(keep_alive: KeepAlive, is_discovery: bool) -> Features {
        Features { kept: BTreeMap::new(), keep_alive, events: 0, behavior: vec![0; BEHAVIOR_SIZE], is_discovery }
    }

    /// All but the keep-alive timeout are as they were at first: the controller is reset.
    pub fn reset(&mut self) {
        *self = Features::new(self.keep_alive, self.is_discovery);
    }

    /// Whether a discovery controller has it, too (Base section 3.1.2.3).
    fn is_there(&self, feature: u8) -> bool {
        !self.is_discovery || matches!(feature, EVENTS | KEEP_ALIVE | HOST_ID)
    }

    /// Set Features; answers what stands in the completion.
    pub fn set(&mut self, feature: u8, value: u32, data: &[u8], shared: &Shared) -> Result<u32, Status> {
        if !self.is_there(feature) {
            return Err(Status::INVALID_FIELD);
        }
        match feature {
            // There is one state of power.
            POWER if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            ARBITRATION | POWER | TEMPERATURE | ERROR_RECOVERY => drop(self.kept.insert(feature, value)),
            QUEUES => return queues(value, shared),
            EVENTS => self.events = value,
            KEEP_ALIVE => self.keep_alive = KeepAlive::new(value)?,
            HOST_BEHAVIOR => {
                self.behavior = data.get(..BEHAVIOR_SIZE).ok_or(Status::SGL_LENGTH_INVALID)?.to_vec();
            }
            // It was said by Connect.
            HOST_ID => return Err(Status::SEQUENCE_ERROR),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(0)
    }

    /// Get Features.
    pub fn get(&self, feature: u8, select: u8, value: u32, shared: &Shared) -> Result<Got, Status> {
        const CAPABILITIES: u8 = 3;
        const CHANGEABLE: u32 = 4;
        const WHOLE_HOST_ID: u32 = 1;
        if !self.is_there(feature) || select > CAPABILITIES {
            return Err(Status::INVALID_FIELD);
        }
        if select == CAPABILITIES {
            let known = matches!(
                feature,
                ARBITRATION | POWER | TEMPERATURE | ERROR_RECOVERY | QUEUES | EVENTS | KEEP_ALIVE | HOST_BEHAVIOR
            );
            return match feature {
                HOST_ID => Ok(Got::Value(0)),
                _ if known => Ok(Got::Value(CHANGEABLE)),
                _ => Err(Status::INVALID_FIELD),
            };
        }
        // Nothing is saved: what is saved is what there was at first.
        let is_current = select == 0;
        Ok(match feature {
            ARBITRATION | POWER | TEMPERATURE | ERROR_RECOVERY => {
                Got::Value(self.kept.get(&feature).copied().filter(|_| is_current).unwrap_or_default())
            }
            QUEUES => {
                let most = if is_current { shared.queues_max() } else { QUEUES_MAX };
                Got::Value(u32::from(most - 1) * 0x1_0001)
            }
            EVENTS => Got::Value(if is_current { self.events } else { 0 }),
            KEEP_ALIVE => Got::Value(if is_current { self.keep_alive.timeout_ms() } else { 0 }),
            HOST_BEHAVIOR => Got::Data(if is_current { self.behavior.clone() } else { vec![0; BEHAVIOR_SIZE] }),
            HOST_ID if value & WHOLE_HOST_ID != 0 => Got::Data(shared.host.id.to_vec()),
            HOST_ID => return Err(Status::HOST_ID_FORMAT),
            _ => return Err(Status::INVALID_FIELD),
        })
    }
}

/// Number of Queues (Base section 5.27.1.5): as many of both as the host wants of either, and there may be.
fn queues(value: u32, shared: &Shared) -> Result<u32, Status> {
    let (submission, completion) = (value as u16, (value >> 16) as u16);
    if submission == u16::MAX || completion == u16::MAX {
        return Err(Status::INVALID_FIELD);
    }
    if shared.has_queues() {
        return Err(Status::SEQUENCE_ERROR);
    }
    let most = submission.min(completion).min(QUEUES_MAX - 1);
    shared.allow_queues(most + 1);
    Ok(u32::from(most) * 0x1_0001)
}
