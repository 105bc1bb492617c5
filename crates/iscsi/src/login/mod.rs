//! The login phase (RFC 7143 section 6.3): who comes, what for, and what both sides agree on.
//!
//! ```text
//!   security ──► operational ──► full feature phase
//!       └────────────────────────────►┘
//! ```
//!
//! Nobody proves who he is yet: in the security stage the only method is `None`. CHAP (RFC 7143 section 12.1.3) has its
//! place in `Login::security_key`, redirection to another portal (section 11.13.5, class 1) in `Refusal`.

pub mod keys;
pub mod text;

use crate::names::{NAME_MAX, nexus, registrant, volume_name};
use crate::pdu::initiator::LoginRequest;
use crate::pdu::target::LOGIN_RESPONSE;
use crate::pdu::{BHS_SIZE, Bhs};
use azekura_frontend::{Export, Exports, Nexus, Opening};
use azekura_model::RegistrantName;
use keys::Parameters;
use text::{TEXT_MAX, parse, put};

/// The portal group of all targets here (section 13.9).
const PORTAL_GROUP: u16 = 1;
/// The target's part of a session's name: sessions have one connection, so nobody adds one to them by it.
const TSIH: u16 = 1;
/// The longest answer, in bytes: any initiator takes data segments of 8 KiB in a login, and declarations follow.
const ANSWER_MAX: usize = 8000;
/// The most keys of a login.
const KEYS_MAX: usize = 128;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Why a login is refused: status class and detail (section 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Refusal {
    /// What the initiator said makes no sense here.
    InitiatorError = 0x0200,
    /// It wants to prove itself in ways that there are not.
    Authentication = 0x0201,
    /// There is no such target.
    NotFound = 0x0203,
    /// It speaks no version that this side speaks.
    Version = 0x0205,
    /// It did not say who it is, or whom it wants.
    MissingParameter = 0x0207,
    /// There are normal and discovery sessions only.
    SessionType = 0x0209,
    /// There is no session that a connection could be added to: sessions have one. An initiator that has lost it can
    /// reinstate the session, with a TSIH of 0.
    NoSession = 0x020a,
    /// The target can't be used now.
    Unavailable = 0x0301,
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be told of targets.
    Discovery,
    /// To use this volume.
    Volume(String),
}

/// A login that has come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// What was agreed on.
    pub parameters: Parameters,
    /// The volume; `None` in a discovery session.
    pub export: Option<Export>,
    /// As whom the initiator can register with the volume.
    pub registrant: Option<RegistrantName>,
    /// The number of the next command.
    pub exp_cmd_sn: u32,
    /// The number of the next status.
    pub stat_sn: u32,
}

/// What one step of a login came to.
#[derive(Debug)]
pub enum Step {
    /// The initiator goes on.
    Reply(Bhs, Vec<u8>),
    /// It is not known yet whether this volume can be opened.
    Wanted(String),
    /// It is not known yet whether there is a volume of this name.
    Missing(String),
    /// An earlier session of this nexus, with this volume, has to end first, if there is one.
    Nexus(Nexus, String),
    /// Done.
    Done(Bhs, Vec<u8>, Box<LoggedIn>),
    /// Refused: to be closed when that has been sent.
    Refused(Bhs, Refusal),
}

/// A login under way.
#[derive(Debug, Default)]
pub struct Login {
    parameters: Parameters,
    /// The stage that it is in; absent before the first request.
    stage: Option<u8>,
    /// Text that goes on in the next request.
    text: Vec<u8>,
    seen: Vec<String>,
    initiator: Option<String>,
    isid: [u8; 6],
    target: Option<String>,
    is_discovery: bool,
    /// The first whole text has been dealt with.
    is_known: bool,
    has_declared: bool,
    stat_sn: u32,
    /// The last request and its answer, while that waits for the volume.
    last: Option<(LoginRequest, Vec<u8>)>,
}

impl Login {
    /// Deals with a login request.
    pub fn request(&mut self, request: LoginRequest, data: &[u8], exports: &dyn Exports) -> Step {
        if self.stage.is_none() {
            (self.stat_sn, self.isid) = (request.exp_stat_sn, request.isid);
        }
        match self.try_request(&request, data) {
            Err(refusal) => self.refuse(&request, refusal),
            Ok(answer) if request.transit && request.nsg == FULL_FEATURE => {
                self.last = Some((request, answer));
                self.again(exports)
            }
            Ok(answer) => {
                if request.transit {
                    self.stage = Some(request.nsg);
                }
                Step::Reply(self.reply(&request), answer)
            }
        }
    }

    /// True while [`Login::again`] is to be asked.
    pub fn waits(&self) -> bool {
        self.last.is_some()
    }

    /// Asks for the volume, and for the session's nexus, once more.
    pub fn again(&mut self, exports: &dyn Exports) -> Step {
        let Some((request, answer)) = self.last.take() else {
            unreachable!("a login asks when it has come to its end")
        };
        let export = match self.purpose() {
            Err(refusal) => return self.refuse(&request, refusal),
            Ok(Purpose::Discovery) => None,
            Ok(Purpose::Volume(name)) => match exports.open(&name) {
                Opening::Ready(export) => Some(export),
                Opening::Unknown if exports.may_come(&name) => {
                    self.last = Some((request, answer));
                    return Step::Missing(name);
                }
                Opening::Unknown => return self.refuse(&request, Refusal::NotFound),
                Opening::Later(name) => {
                    self.last = Some((request, answer));
                    return Step::Wanted(name);
                }
                Opening::Refused(_) => return self.refuse(&request, Refusal::Unavailable),
            },
        };
        // Session reinstatement (section 6.3.5): this session's tasks begin when the earlier one's have ended.
        if let (Some(export), Some(initiator)) = (&export, &self.initiator)
            && !exports.has_nexus()
        {
            let name = export.name.clone();
            let nexus = nexus(initiator, self.isid, &name, PORTAL_GROUP);
            self.last = Some((request, answer));
            return Step::Nexus(nexus, name);
        }
        let mut bhs = self.reply(&request);
        bhs.put(14, &TSIH.to_be_bytes());
        let (parameters, stat_sn) = (self.parameters.clone(), self.stat_sn);
        let registrant = self.initiator.as_deref().map(|initiator| registrant(initiator, self.isid, PORTAL_GROUP));
        let exp_cmd_sn = request.cmd_sn;
        Step::Done(bhs, answer, Box::new(LoggedIn { parameters, export, registrant, exp_cmd_sn, stat_sn }))
    }

    fn purpose(&self) -> Result<Purpose, Refusal> {
        match &self.target {
            _ if self.is_discovery => Ok(Purpose::Discovery),
            None => Err(Refusal::MissingParameter),
            Some(target) => volume_name(target).map(Purpose::Volume).ok_or(Refusal::NotFound),
        }
    }

    fn try_request(&mut self, request: &LoginRequest, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        if request.version_min > 0 {
            return Err(Refusal::Version);
        }
        if request.tsih != 0 {
            return Err(Refusal::NoSession);
        }
        // Section 11.12.5: a login is of one session.
        if request.isid != self.isid {
            return Err(Refusal::InitiatorError);
        }
        let stage = *self.stage.get_or_insert(request.csg);
        let is_forward = !request.transit || request.nsg > request.csg && request.nsg != 2;
        if request.csg != stage || stage > OPERATIONAL || !is_forward || request.transit && request.goes_on {
            return Err(Refusal::InitiatorError);
        }
        if self.text.len() + data.len() > TEXT_MAX {
            return Err(Refusal::InitiatorError);
        }
        self.text.extend_from_slice(data);
        if request.goes_on {
            return Ok(Vec::new());
        }
        let text = std::mem::take(&mut self.text);
        let mut answer = Vec::new();
        for (key, value) in parse(&text).map_err(|_| Refusal::InitiatorError)? {
            self.key(key, value, &mut answer)?;
        }
        // It has to fit into one PDU, and there are no keys that would make it so long.
        if answer.len() > ANSWER_MAX {
            return Err(Refusal::InitiatorError);
        }
        if !std::mem::replace(&mut self.is_known, true) {
            // Section 6.3: the first request says who comes and what for.
            if self.initiator.is_none() || self.target.is_none() && !self.is_discovery {
                return Err(Refusal::MissingParameter);
            }
            if !self.is_discovery {
                put(&mut answer, "TargetPortalGroupTag", &PORTAL_GROUP.to_string());
            }
        }
        if stage == OPERATIONAL && !std::mem::replace(&mut self.has_declared, true) {
            Parameters::declarations().iter().for_each(|(key, value)| put(&mut answer, key, value));
        }
        Ok(answer)
    }

    fn key(&mut self, key: &str, value: &str, answer: &mut Vec<u8>) -> Result<(), Refusal> {
        // Section 6.2: a key is negotiated once in a login.
        if self.seen.len() >= KEYS_MAX || self.seen.iter().any(|seen| seen == key) {
            return Err(Refusal::InitiatorError);
        }
        self.seen.push(key.to_owned());
        match key {
            "InitiatorName" | "TargetName" if value.len() > NAME_MAX => return Err(Refusal::InitiatorError),
            "InitiatorName" => self.initiator = Some(value.to_owned()),
            "TargetName" => self.target = Some(value.to_owned()),
            "SessionType" => match value {
                "Discovery" => self.is_discovery = true,
                "Normal" => {}
                _ => return Err(Refusal::SessionType),
            },
            "AuthMethod" => Login::security_key(value, answer)?,
            _ => {
                let said = self.parameters.answer(key, value);
                said.text().into_iter().for_each(|value| put(answer, key, value));
            }
        }
        Ok(())
    }

    /// `AuthMethod` (section 12.1).
    fn security_key(value: &str, answer: &mut Vec<u8>) -> Result<(), Refusal> {
        if !value.split(',').any(|method| method == "None") {
            return Err(Refusal::Authentication);
        }
        put(answer, "AuthMethod", "None");
        Ok(())
    }

    /// The header of an answer that takes the login where the initiator wants it.
    fn reply(&mut self, request: &LoginRequest) -> Bhs {
        let mut bhs = Bhs::new(LOGIN_RESPONSE);
        let next = if request.transit { 0x80 | request.nsg } else { 0 };
        bhs.0[1] = next | request.csg << 2;
        self.number(&mut bhs, request);
        bhs
    }

    fn refuse(&mut self, request: &LoginRequest, refusal: Refusal) -> Step {
        let mut bhs = Bhs::new(LOGIN_RESPONSE);
        bhs.0[1] = (request.csg & 1) << 2;
        self.number(&mut bhs, request);
        bhs.put(36, &(refusal as u16).to_be_bytes());
        Step::Refused(bhs, refusal)
    }

    fn number(&mut self, bhs: &mut Bhs, request: &LoginRequest) {
        bhs.put(8, &request.isid);
        bhs.put_u32(16, request.itt);
        bhs.put_u32(24, self.stat_sn);
        self.stat_sn = self.stat_sn.wrapping_add(1);
        bhs.put_u32(28, request.cmd_sn);
        bhs.put_u32(32, request.cmd_sn);
    }
}

const _: () = assert!(BHS_SIZE == 48 && SECURITY < OPERATIONAL && OPERATIONAL < FULL_FEATURE);
