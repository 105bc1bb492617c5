//! Parameter lists of PERSISTENT RESERVE OUT (SPC-4 sections 6.16.3 and 6.16.4).

use super::super::sense::Sense;
use super::{Action, transport};
use azekura_model::ReservationCommand;

/// Bytes of the basic list, and of what REGISTER AND MOVE has before its TransportID.
pub const BASIC_BYTES: u32 = 24;
/// The portal group that registrants are named by: each node has a port of its own, and what is registered is with the
/// volume, whichever of them the host comes by.
const PORTAL_GROUP: u16 = 1;

/// The command that an action and its list, all of it, come to.
///
/// # Errors
/// When the list is too short or too long, or asks for what there is not.
pub fn command(action: Action, bytes: &[u8]) -> Result<ReservationCommand, Sense> {
    let (basic, rest) = bytes.split_first_chunk::<{ BASIC_BYTES as usize }>().ok_or(Sense::LIST_LENGTH)?;
    let number = |at: usize| basic[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let (key, other) = (number(0), number(8));
    if action == Action::RegisterAndMove {
        return register_and_move(key, other, basic, rest);
    }
    check_basic(action, basic[20], rest)?;
    Ok(match action {
        Action::Register => ReservationCommand::Register { key, new: other },
        Action::RegisterIgnoringKey => ReservationCommand::RegisterIgnoringKey { new: other },
        Action::Reserve(kind) => ReservationCommand::Reserve { key, kind },
        Action::Release(kind) => ReservationCommand::Release { key, kind },
        Action::Clear => ReservationCommand::Clear { key },
        Action::Preempt { kind, abort } => ReservationCommand::Preempt { key, victim: other, kind, abort },
        Action::RegisterAndMove => unreachable!("it has a list of its own"),
    })
}

/// SPEC_I_PT and ALL_TG_PT are not taken (SIP_C and ATP_C are 0). APTPL is what is always so, whatever it says.
fn check_basic(action: Action, flags: u8, rest: &[u8]) -> Result<(), Sense> {
    const SPEC_I_PT: u8 = 0x08;
    const ALL_TG_PT: u8 = 0x04;
    let registers = matches!(action, Action::Register | Action::RegisterIgnoringKey);
    if flags & SPEC_I_PT != 0 || registers && flags & ALL_TG_PT != 0 {
        return Err(Sense::PARAMETER);
    }
    if rest.is_empty() { Ok(()) } else { Err(Sense::LIST_LENGTH) }
}

fn register_and_move(key: u64, new: u64, basic: &[u8; 24], rest: &[u8]) -> Result<ReservationCommand, Sense> {
    const UNREG: u8 = 0x02;
    let (unregister, port) = (basic[17] & UNREG != 0, u16::from_be_bytes([basic[18], basic[19]]));
    let len = u32::from_be_bytes([basic[20], basic[21], basic[22], basic[23]]);
    if len as usize != rest.len() {
        return Err(Sense::LIST_LENGTH);
    }
    // Relative target ports begin at 1 (SPC-4 section 4.3.3).
    if port == 0 {
        return Err(Sense::PARAMETER);
    }
    let to = transport::parse(rest, PORTAL_GROUP)?;
    Ok(ReservationCommand::RegisterAndMove { key, new, to, unregister })
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::{RegistrantName, ReservationKind};
    use proptest::prelude::*;

    fn basic(flags: u8) -> Vec<u8> {
        let mut bytes = [&7_u64.to_be_bytes()[..], &9_u64.to_be_bytes(), &[0; 8]].concat();
        bytes[20] = flags;
        bytes
    }

    #[test]
    fn keys_stand_where_the_standard_has_them() {
        let kind = ReservationKind::WriteExclusiveRegistrantsOnly;
        for (action, expected) in [
            (Action::Register, ReservationCommand::Register { key: 7, new: 9 }),
            (Action::RegisterIgnoringKey, ReservationCommand::RegisterIgnoringKey { new: 9 }),
            (Action::Reserve(kind), ReservationCommand::Reserve { key: 7, kind }),
            (Action::Release(kind), ReservationCommand::Release { key: 7, kind }),
            (Action::Clear, ReservationCommand::Clear { key: 7 }),
            (
                Action::Preempt { kind, abort: true },
                ReservationCommand::Preempt { key: 7, victim: 9, kind, abort: true },
            ),
        ] {
            assert_eq!(command(action, &basic(0)), Ok(expected.clone()));
            assert_eq!(command(action, &basic(1)), Ok(expected), "APTPL");
            assert_eq!(command(action, &basic(8)), Err(Sense::PARAMETER), "SPEC_I_PT");
            assert_eq!(command(action, &basic(0)[..23]), Err(Sense::LIST_LENGTH));
            assert_eq!(command(action, &[basic(0), vec![0]].concat()), Err(Sense::LIST_LENGTH));
        }
        assert_eq!(command(Action::Register, &basic(4)), Err(Sense::PARAMETER), "ALL_TG_PT");
        assert_eq!(command(Action::Clear, &basic(4)), Ok(ReservationCommand::Clear { key: 7 }), "nobody registers");
    }

    fn moves(flags: u8, port: u16, len: usize, id: &[u8]) -> Vec<u8> {
        let mut bytes = basic(0);
        bytes[17] = flags;
        bytes[18..20].copy_from_slice(&port.to_be_bytes());
        bytes[20..24].copy_from_slice(&(len as u32).to_be_bytes());
        bytes.extend_from_slice(id);
        bytes
    }

    #[test]
    fn a_reservation_moves_to_a_port() {
        let to = RegistrantName::Iscsi { initiator: "iqn.a:b".to_owned(), isid: 5, portal_group: 1 };
        let id = transport::of(&to);
        let parse = |bytes: &[u8]| command(Action::RegisterAndMove, bytes);
        let expected = |unregister| ReservationCommand::RegisterAndMove { key: 7, new: 9, to: to.clone(), unregister };
        assert_eq!(parse(&moves(0, 1, id.len(), &id)), Ok(expected(false)));
        assert_eq!(parse(&moves(2, 1, id.len(), &id)), Ok(expected(true)));
        assert_eq!(parse(&moves(0, 2, id.len(), &id)), Ok(expected(false)), "any node's");
        assert_eq!(parse(&moves(0, 0, id.len(), &id)), Err(Sense::PARAMETER), "there is no such port");
        assert_eq!(parse(&moves(0, 1, id.len() + 4, &id)), Err(Sense::LIST_LENGTH));
        assert_eq!(parse(&moves(0, 1, 0, &[])), Err(Sense::PARAMETER));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80), code in 0..4_u8) {
            let kind = ReservationKind::ExclusiveAccess;
            let action = [Action::Register, Action::RegisterAndMove, Action::Clear, Action::Reserve(kind)][code as usize];
            if command(action, &bytes).is_ok() && action != Action::RegisterAndMove {
                prop_assert!(bytes.len() == 24 && bytes[20] & 8 == 0);
            }
        }
    }
}
