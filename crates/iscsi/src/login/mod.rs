//! The login phase (RFC 7143 section 6.3): who comes, what for, and what both sides agree on.
//!
//! ```text
//!   security ──► operational ──► full feature phase
//!       └────────────────────────────►┘
//! ```
//!
//! In the security stage an initiator proves by [`chap`] who it is, if its grant has a secret; else the only method is
//! `None`. Redirection to another portal (section 11.13.5, class 1) has its place in `Refusal`.

pub mod binary;
pub mod chap;
pub mod keys;
pub mod text;

use crate::names::{NAME_MAX, nexus, registrant, target_name, units_name, units_of, volume_name};
use crate::pdu::initiator::LoginRequest;
use crate::pdu::target::LOGIN_RESPONSE;
use crate::pdu::{BHS_SIZE, Bhs};
use azekura_base::HostName;
use azekura_frontend::{Admittance, Export, Exports, Named, Nexus, Opening};
use azekura_model::RegistrantName;
use chap::{Challenge, Chap, Failure, Said};
use keys::Parameters;
use text::{TEXT_MAX, parse, put};

/// The portal group by which sessions and reservations have their names, whichever node they are with: a host that
/// comes back under its ISID to another node is who it was. What initiators see is a group for each node (section
/// 13.9).
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
    /// It has not proved who it is, or wants to do so in ways that there are not.
    Authentication = 0x0201,
    /// It is not let in here, whatever it asks for.
    Forbidden = 0x0202,
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
    /// To use the logical units of this target.
    Units(String),
}

/// A login that has come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// What was agreed on.
    pub parameters: Parameters,
    /// The volume; `None` in a discovery session, and where the target has several logical units.
    pub export: Option<Export>,
    /// The target, where it has several logical units.
    pub units: Option<LoggedInto>,
    /// As whom the initiator can register with the volume.
    pub registrant: Option<RegistrantName>,
    /// The portal group that it is with.
    pub portal_group: u16,
    /// The number of the next command.
    pub exp_cmd_sn: u32,
    /// The number of the next status.
    pub stat_sn: u32,
}

/// A target of several logical units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedInto {
    /// Its name.
    pub name: String,
    /// Its iSCSI name.
    pub target: String,
    /// The session's name.
    pub nexus: Nexus,
}

/// What one step of a login came to.
#[derive(Debug)]
pub enum Step {
    /// The initiator goes on.
    Reply(Bhs, Vec<u8>),
    /// The initiator is let in: what there is depends on that from now on.
    Named(Named),
    /// It is not known yet whether this volume can be opened.
    Wanted(String),
    /// It is not known yet whether there is a volume of this name.
    Missing(String),
    /// An earlier session of this nexus has to end first, if there is one; with this volume, if that is one.
    Nexus(Nexus, String),
    /// Done.
    Done(Bhs, Vec<u8>, Box<LoggedIn>),
    /// Refused: to be closed when that has been sent.
    Refused(Bhs, Refusal),
}

/// A login under way.
#[derive(Debug)]
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
    /// The first whole text has been dealt with: as whom the initiator comes.
    named: Option<Named>,
    /// That has been told.
    is_told: bool,
    /// What it has to prove first.
    chap: Option<Chap>,
    /// What it is asked then; `None`: there is no randomness.
    challenge: Option<Challenge>,
    /// It has proved something else.
    is_mistaken: bool,
    has_declared: bool,
    stat_sn: u32,
    /// The last request and its answer, while that waits for the volume.
    last: Option<(LoginRequest, Vec<u8>)>,
}

impl Login {
    /// One that has not begun. Who has to prove something is asked this; without it nobody is let in who has to.
    #[must_use]
    pub fn new(challenge: Option<Challenge>) -> Login {
        Login {
            parameters: Parameters::default(),
            stage: None,
            text: Vec::new(),
            seen: Vec::new(),
            initiator: None,
            isid: [0; 6],
            target: None,
            is_discovery: false,
            named: None,
            is_told: false,
            chap: None,
            challenge,
            is_mistaken: false,
            has_declared: false,
            stat_sn: 0,
            last: None,
        }
    }

    /// The host that has been refused because what it has shown is wrong; `None`: it is another reason.
    #[must_use]
    pub fn mistaken(&self) -> Option<&HostName> {
        self.named.as_ref().filter(|_| self.is_mistaken)?.host.as_ref()
    }

    /// Whether the next stage may begin.
    fn is_through(&self) -> bool {
        self.chap.as_ref().is_none_or(Chap::is_proved)
    }

    /// Deals with a login request.
    pub fn request(&mut self, request: LoginRequest, data: &[u8], exports: &dyn Exports) -> Step {
        if self.stage.is_none() {
            (self.stat_sn, self.isid) = (request.exp_stat_sn, request.isid);
        }
        match self.try_request(&request, data, exports) {
            Err(refusal) => self.refuse(&request, refusal),
            Ok(answer) if !self.is_through() => {
                // The target says when the stage is over (section 6.3.1).
                let stays = LoginRequest { transit: false, ..request };
                Step::Reply(self.reply(&stays), answer)
            }
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

    /// Says who comes; asks for the volume, and for the session's nexus, once more.
    pub fn again(&mut self, exports: &dyn Exports) -> Step {
        let Some((request, answer)) = self.last.take() else {
            unreachable!("a login asks when it has come to its end")
        };
        if let Some(named) = self.named.clone().filter(|_| !std::mem::replace(&mut self.is_told, true)) {
            self.last = Some((request, answer));
            return Step::Named(named);
        }
        let (export, target) = match self.purpose() {
            Err(refusal) => return self.refuse(&request, refusal),
            Ok(Purpose::Discovery) => (None, None),
            // Its units are opened one by one, by the commands that need them.
            Ok(Purpose::Units(name)) => match exports.units(&name) {
                Some(_) => (None, units_name(&name).map(|target| (name, target))),
                None if exports.units_may_come() => {
                    self.last = Some((request, answer));
                    return Step::Missing(name);
                }
                None => return self.refuse(&request, Refusal::NotFound),
            },
            Ok(Purpose::Volume(name)) => match exports.open(&name) {
                Opening::Ready(export) => (Some(export), None),
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
        let named = self.initiator.as_deref().unwrap_or_default();
        let nexus = |target: &str| nexus(named, self.isid, target, PORTAL_GROUP);
        let units = target.map(|(name, target)| LoggedInto { name, nexus: nexus(&target), target });
        let own = export.as_ref().map(|export| (&export.name, target_name(&export.name).unwrap_or_default()));
        let wants = match (own, &units) {
            (Some((name, target)), _) => Some((nexus(&target), name.clone())),
            // It opens no volume by itself.
            (None, Some(units)) => Some((Nexus::clone(&units.nexus), String::new())),
            (None, None) => None,
        };
        if let Some((nexus, name)) = wants.filter(|_| !exports.has_nexus()) {
            self.last = Some((request, answer));
            return Step::Nexus(nexus, name);
        }
        let mut bhs = self.reply(&request);
        bhs.put(14, &TSIH.to_be_bytes());
        let (parameters, stat_sn) = (self.parameters.clone(), self.stat_sn);
        let registrant = self.initiator.as_deref().map(|initiator| registrant(initiator, self.isid, PORTAL_GROUP));
        let (portal_group, exp_cmd_sn) = (exports.portals().group(), request.cmd_sn);
        Step::Done(
            bhs,
            answer,
            Box::new(LoggedIn { parameters, export, units, registrant, portal_group, exp_cmd_sn, stat_sn }),
        )
    }

    fn purpose(&self) -> Result<Purpose, Refusal> {
        match &self.target {
            _ if self.is_discovery => Ok(Purpose::Discovery),
            None => Err(Refusal::MissingParameter),
            Some(target) => {
                let units = || units_of(target).map(Purpose::Units);
                volume_name(target).map(Purpose::Volume).or_else(units).ok_or(Refusal::NotFound)
            }
        }
    }

    fn try_request(&mut self, request: &LoginRequest, data: &[u8], exports: &dyn Exports) -> Result<Vec<u8>, Refusal> {
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
        let (mut answer, mut said) = (Vec::new(), Said::default());
        for (key, value) in parse(&text).map_err(|_| Refusal::InitiatorError)? {
            self.key(key, value, &mut said, &mut answer)?;
        }
        // It has to fit into one PDU, and there are no keys that would make it so long.
        if answer.len() > ANSWER_MAX {
            return Err(Refusal::InitiatorError);
        }
        let is_first = self.named.is_none();
        if is_first {
            // Section 6.3: the first request says who comes and what for.
            if self.initiator.is_none() || self.target.is_none() && !self.is_discovery {
                return Err(Refusal::MissingParameter);
            }
            // Before anything else: who is not let in learns nothing of what there is.
            self.named = Some(self.admitted(exports)?);
        }
        self.authenticate(stage, request.transit, &said, &mut answer)?;
        if is_first && !self.is_discovery {
            put(&mut answer, "TargetPortalGroupTag", &exports.portals().group().to_string());
        }
        if stage == OPERATIONAL && !std::mem::replace(&mut self.has_declared, true) {
            Parameters::declarations().iter().for_each(|(key, value)| put(&mut answer, key, value));
        }
        Ok(answer)
    }

    /// As whom the initiator is let in, once it has proved what it has to.
    fn admitted(&mut self, exports: &dyn Exports) -> Result<Named, Refusal> {
        let host = self.initiator.as_deref().and_then(HostName::of_initiator);
        match exports.admittance(host.as_ref()) {
            Admittance::Granted(grant) => Ok(Named { host, grant }),
            Admittance::Proves(grant, secrets) => {
                let challenge = self.challenge.ok_or(Refusal::Unavailable)?;
                self.chap = Some(Chap::new(secrets, challenge));
                Ok(Named { host, grant: Some(grant) })
            }
            Admittance::Refused => Err(Refusal::Forbidden),
            // It tries again; a refusal would be the end for it.
            Admittance::NotYet => Err(Refusal::Unavailable),
        }
    }

    /// `AuthMethod` (section 12.1), and what follows it.
    fn authenticate(&mut self, stage: u8, ends: bool, said: &Said, answer: &mut Vec<u8>) -> Result<(), Refusal> {
        let Some(chap) = &mut self.chap else {
            return match &said.method {
                Some(methods) if !methods.split(',').any(|method| method == "None") => Err(Refusal::Authentication),
                Some(_) => {
                    put(answer, "AuthMethod", "None");
                    Ok(())
                }
                None if said.is_empty() => Ok(()),
                None => Err(Refusal::InitiatorError),
            };
        };
        if stage != SECURITY {
            // It has left out the security stage; or goes on with it when that is over.
            return match chap.is_proved() && said.method.is_none() && said.is_empty() {
                true => Ok(()),
                false => Err(Refusal::Authentication),
            };
        }
        chap.text(said, ends, answer).map_err(|failure| {
            self.is_mistaken = failure == Failure::Mistaken;
            match failure {
                Failure::Nonsense => Refusal::InitiatorError,
                Failure::Unwilling | Failure::Mistaken => Refusal::Authentication,
            }
        })
    }

    /// Whether a key says once more who comes and what for: libiscsi does that in each stage.
    fn is_repeated(&self, key: &str, value: &str) -> bool {
        let said = match key {
            "InitiatorName" => self.initiator.as_deref(),
            "TargetName" => self.target.as_deref(),
            "SessionType" if self.is_discovery => Some("Discovery"),
            "SessionType" => Some("Normal"),
            "InitiatorAlias" => Some(value),
            _ => None,
        };
        // The first text of the first stage has them once, so that nobody is somebody else behind it.
        self.named.is_some() && self.stage == Some(OPERATIONAL) && said == Some(value)
    }

    fn key(&mut self, key: &str, value: &str, said: &mut Said, answer: &mut Vec<u8>) -> Result<(), Refusal> {
        if self.is_repeated(key, value) {
            return Ok(());
        }
        // Section 6.2: a key is negotiated once in a login.
        if self.seen.len() >= KEYS_MAX || self.seen.iter().any(|seen| seen == key) {
            return Err(Refusal::InitiatorError);
        }
        self.seen.push(key.to_owned());
        match key {
            // Section 6.3: the first request says who comes and what for.
            "InitiatorName" | "TargetName" | "SessionType" if self.named.is_some() => {
                return Err(Refusal::InitiatorError);
            }
            "InitiatorName" | "TargetName" if value.len() > NAME_MAX => return Err(Refusal::InitiatorError),
            "InitiatorName" => self.initiator = Some(value.to_owned()),
            "TargetName" => self.target = Some(value.to_owned()),
            "SessionType" => match value {
                "Discovery" => self.is_discovery = true,
                "Normal" => {}
                _ => return Err(Refusal::SessionType),
            },
            _ if said.keep(key, value) => {}
            _ => {
                let said = self.parameters.answer(key, value);
                said.text().into_iter().for_each(|value| put(answer, key, value));
            }
        }
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
