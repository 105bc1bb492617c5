//! Operational keys (RFC 7143 section 13, RFC 7144 section 7): what each comes to.

use super::text::number;
use crate::pdu::Digests;
use crate::{BURST_MAX, FIRST_BURST_MAX, SEGMENT_MAX};

/// What a login has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Digests from the full feature phase on.
    pub digests: Digests,
    /// Bytes of a data segment that the initiator takes.
    pub send_segment_max: u32,
    /// Bytes of one sequence of Data-In, or of Data-Out that an R2T asks for.
    pub burst_max: u32,
    /// Bytes that may come with a command, unasked for.
    pub first_burst_max: u32,
    /// All but immediate data is asked for.
    pub initial_r2t: bool,
    /// Data may come in the PDU of its command.
    pub immediate_data: bool,
}

impl Default for Parameters {
    /// What holds for keys that are not named.
    fn default() -> Parameters {
        Parameters {
            digests: Digests::default(),
            send_segment_max: 8192,
            burst_max: 262_144,
            first_burst_max: 65_536,
            initial_r2t: true,
            immediate_data: true,
        }
    }
}

/// What is answered to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This value.
    Value(String),
    /// Nothing: the key only says something.
    Silence,
    /// The value is none that the key can have (section 6.2).
    Reject,
    /// There is no such key here.
    NotUnderstood,
}

impl Answer {
    /// The value to be sent; `None` for nothing.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Answer::Value(value) => Some(value),
            Answer::Silence => None,
            Answer::Reject => Some("Reject"),
            Answer::NotUnderstood => Some("NotUnderstood"),
        }
    }
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn yes(value: bool) -> Answer {
    Answer::Value(if value { "Yes" } else { "No" }.to_owned())
}

/// A number of the given range, joined with this side's by `join`.
fn numeric(value: &str, range: (u32, u32), join: impl Fn(u32) -> u32) -> Result<u32, Answer> {
    let offered = number(value).filter(|number| (range.0..=range.1).contains(number));
    offered.map(join).ok_or(Answer::Reject)
}

/// The first of the offered values that this side takes (section 6.2.1).
fn first<'a>(value: &str, takes: &[&'a str]) -> Option<&'a str> {
    value.split(',').find_map(|offered| takes.iter().find(|taken| **taken == offered).copied())
}

impl Parameters {
    /// Deals with an operational key of the initiator's, by the key's result function.
    pub fn answer(&mut self, key: &str, value: &str) -> Answer {
        self.number_key(key, value)
            .or_else(|| self.boolean_key(key, value))
            .unwrap_or_else(|| self.list_key(key, value))
    }

    fn number_key(&mut self, key: &str, value: &str) -> Option<Answer> {
        const SEGMENT: (u32, u32) = (512, 0x00ff_ffff);
        let mut set =
            |range, join: &dyn Fn(u32) -> u32, keep: &dyn Fn(&mut Parameters, u32)| match numeric(value, range, join) {
                Ok(result) => {
                    keep(self, result);
                    Answer::Value(result.to_string())
                }
                Err(answer) => answer,
            };
        let nothing = |_: &mut Parameters, _: u32| {};
        Some(match key {
            // Declared, not negotiated (section 13.12).
            "MaxRecvDataSegmentLength" => match set(SEGMENT, &|n| n, &|own, n| own.send_segment_max = n) {
                Answer::Value(_) => Answer::Silence,
                other => other,
            },
            "MaxBurstLength" => set(SEGMENT, &|n| n.min(BURST_MAX), &|own, n| own.burst_max = n),
            "FirstBurstLength" => set(SEGMENT, &|n| n.min(FIRST_BURST_MAX), &|own, n| own.first_burst_max = n),
            "MaxConnections" => set((1, 65_535), &|_| 1, &nothing),
            "MaxOutstandingR2T" => set((1, 65_535), &|_| 1, &nothing),
            "DefaultTime2Wait" => set((0, 3600), &|n| n.max(2), &nothing),
            // No task outlives its connection.
            "DefaultTime2Retain" => set((0, 3600), &|_| 0, &nothing),
            "ErrorRecoveryLevel" => set((0, 2), &|_| 0, &nothing),
            "iSCSIProtocolLevel" => set((0, 31), &|n| n.min(1), &nothing),
            _ => return None,
        })
    }

    fn boolean_key(&mut self, key: &str, value: &str) -> Option<Answer> {
        let mut set = |join: &dyn Fn(bool) -> bool, keep: &dyn Fn(&mut Parameters, bool)| match boolean(value) {
            Some(offered) => {
                let result = join(offered);
                keep(self, result);
                yes(result)
            }
            None => Answer::Reject,
        };
        let nothing = |_: &mut Parameters, _: bool| {};
        Some(match key {
            "InitialR2T" => set(&|offered| offered, &|own, result| own.initial_r2t = result),
            "ImmediateData" => set(&|offered| offered, &|own, result| own.immediate_data = result),
            "DataPDUInOrder" | "DataSequenceInOrder" => set(&|_| true, &nothing),
            // Obsolete (section 13.25): markers are never used.
            "IFMarker" | "OFMarker" => set(&|_| false, &nothing),
            _ => return None,
        })
    }

    fn list_key(&mut self, key: &str, value: &str) -> Answer {
        let choose =
            |takes: &[&'static str]| first(value, takes).map_or(Answer::Reject, |v| Answer::Value(v.to_owned()));
        match key {
            "HeaderDigest" | "DataDigest" => {
                let answer = choose(&["CRC32C", "None"]);
                let on = answer.text() == Some("CRC32C");
                let digest = if key == "HeaderDigest" { &mut self.digests.header } else { &mut self.digests.data };
                *digest = on;
                answer
            }
            // What RFC 3720 had is what there is: no fence, no fast abort (section 13.23).
            "TaskReporting" => choose(&["RFC3720"]),
            "OFMarkInt" | "IFMarkInt" => Answer::Value("Irrelevant".to_owned()),
            "InitiatorAlias" => Answer::Silence,
            _ => Answer::NotUnderstood,
        }
    }

    /// What this side declares, once in each login, in the operational stage.
    pub fn declarations() -> [(&'static str, String); 1] {
        [("MaxRecvDataSegmentLength", SEGMENT_MAX.to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(key: &str, value: &str) -> Option<String> {
        Parameters::default().answer(key, value).text().map(str::to_owned)
    }

    #[test]
    fn lists_are_chosen_from_in_the_initiators_order() {
        assert_eq!(ask("HeaderDigest", "CRC32C,None").as_deref(), Some("CRC32C"));
        assert_eq!(ask("DataDigest", "None,CRC32C").as_deref(), Some("None"));
        assert_eq!(ask("DataDigest", "MD5").as_deref(), Some("Reject"));
        assert_eq!(ask("TaskReporting", "FastAbort,RFC3720").as_deref(), Some("RFC3720"));
        assert_eq!(ask("X-com.example.fast", "Yes").as_deref(), Some("NotUnderstood"));
        assert_eq!(ask("InitiatorAlias", "me"), None);
    }

    #[test]
    fn flags_have_their_functions() {
        for (key, of_yes, of_no) in [
            ("InitialR2T", "Yes", "No"),
            ("ImmediateData", "Yes", "No"),
            ("DataPDUInOrder", "Yes", "Yes"),
            ("DataSequenceInOrder", "Yes", "Yes"),
            ("IFMarker", "No", "No"),
        ] {
            assert_eq!(ask(key, "Yes").as_deref(), Some(of_yes), "{key}");
            assert_eq!(ask(key, "No").as_deref(), Some(of_no), "{key}");
            assert_eq!(ask(key, "yes").as_deref(), Some("Reject"), "{key}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_the_lesser_or_the_greater_of_both(offered in any::<u32>()) {
            let value = offered.to_string();
            let answer = |key| ask(key, &value).and_then(|text| number(&text));
            let legal = (512..=0x00ff_ffff).contains(&offered);
            prop_assert_eq!(answer("MaxBurstLength"), legal.then(|| offered.min(BURST_MAX)));
            prop_assert_eq!(answer("FirstBurstLength"), legal.then(|| offered.min(FIRST_BURST_MAX)));
            prop_assert_eq!(answer("DefaultTime2Wait"), (offered <= 3600).then(|| offered.max(2)));
            prop_assert_eq!(answer("ErrorRecoveryLevel"), (offered <= 2).then_some(0));
            let one = (1..=65_535).contains(&offered).then_some(1);
            prop_assert_eq!((answer("MaxConnections"), answer("MaxOutstandingR2T")), (one, one));
        }

        #[test]
        fn both_sides_agree(offered in 512..=0x00ff_ffff_u32, on in any::<bool>()) {
            // What is answered is what this side goes by.
            let mut own = Parameters::default();
            let value = offered.to_string();
            let burst = own.answer("MaxBurstLength", &value);
            prop_assert_eq!(burst, Answer::Value(own.burst_max.to_string()));
            let first = own.answer("FirstBurstLength", &value);
            prop_assert_eq!(first, Answer::Value(own.first_burst_max.to_string()));
            prop_assert_eq!(own.answer("InitialR2T", if on { "Yes" } else { "No" }), yes(own.initial_r2t));
            prop_assert_eq!(own.answer("ImmediateData", if on { "Yes" } else { "No" }), yes(own.immediate_data));
        }

        #[test]
        fn no_value_does_harm(key in prop_oneof![
            Just("MaxBurstLength"), Just("HeaderDigest"), Just("InitialR2T"), Just("TaskReporting"), Just("IFMarkInt"),
            Just("MaxRecvDataSegmentLength"), Just("DefaultTime2Retain")], value in ".*") {
            let mut own = Parameters::default();
            let _ = own.answer(key, &value);
            prop_assert!(own.burst_max >= 512 && own.first_burst_max >= 512 && own.send_segment_max >= 512);
        }
    }
}
