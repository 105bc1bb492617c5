//! What both sides agree on before anything else (TCP sections 3.4 and 3.6.2.2, 3.6.2.3).

use super::{ALIGNMENT_MAX, Digests, Fatal, Terms};
use crate::{H2C_DATA_MAX, H2C_DATA_MAX_LEAST};

/// ICReq: what the host wants (TCP section 3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitializeRequest {
    /// PDU format version: 0.
    pub version: u16,
    /// HPDA: how data is to be aligned that the host receives. In dwords, 0's based.
    pub alignment: u8,
    /// Digests that the host can do.
    pub digests: Digests,
    /// MAXR2T: R2T PDUs of a command at a time, 0's based.
    pub r2t_max: u32,
}

/// ICResp: what the controller makes of it (TCP section 3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitializeResponse {
    /// PDU format version: 0.
    pub version: u16,
    /// CPDA: how data is to be aligned that the controller receives. In dwords, 0's based.
    pub alignment: u8,
    /// Digests that are used from now on.
    pub digests: Digests,
    /// MAXH2CDATA: the most data of one H2CData PDU, in bytes.
    pub data_max: u32,
}

/// What a controller offers to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Digests that it can do.
    pub digests: Digests,
    /// CPDA. Linux's host refuses any but 0.
    pub alignment: u8,
    /// MAXH2CDATA, in bytes.
    pub data_max: u32,
    /// The most in-capsule data of any command, in bytes.
    pub capsule_data_max: u32,
}

impl Default for Offer {
    fn default() -> Offer {
        let digests = Digests { header: true, data: true };
        Offer { digests, alignment: 0, data_max: H2C_DATA_MAX, capsule_data_max: crate::ADMIN_CAPSULE_DATA_MAX }
    }
}

impl InitializeRequest {
    /// What is answered to the host.
    ///
    /// # Errors
    /// When the host speaks another version, or wants an alignment that there is not.
    pub fn answer(&self, offer: &Offer) -> Result<InitializeResponse, Fatal> {
        if self.version != 0 {
            return Err(Fatal::Unsupported(8));
        }
        if self.alignment > ALIGNMENT_MAX {
            return Err(Fatal::InvalidField(10));
        }
        let digests = Digests {
            header: self.digests.header && offer.digests.header,
            data: self.digests.data && offer.digests.data,
        };
        Ok(InitializeResponse {
            version: 0,
            alignment: offer.alignment.min(ALIGNMENT_MAX),
            digests,
            data_max: offer.data_max.max(H2C_DATA_MAX_LEAST),
        })
    }
}

impl InitializeResponse {
    /// The terms of what a controller receives.
    #[must_use]
    pub fn to_controller(&self, offer: &Offer) -> Terms {
        let (digests, capsule_data_max) = (self.digests, offer.capsule_data_max);
        Terms { digests, alignment: self.alignment, capsule_data_max, data_max: self.data_max }
    }

    /// The terms of what a host receives. It takes as much data in a PDU as it has asked for: nothing is agreed on.
    #[must_use]
    pub fn to_host(&self, request: &InitializeRequest, data_max: u32) -> Terms {
        Terms { digests: self.digests, alignment: request.alignment, capsule_data_max: 0, data_max }
    }
}
