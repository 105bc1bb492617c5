//! `azekura volume protect`: snapshots that come and go by themselves.

use std::process::ExitCode;
use std::str::FromStr;

use azekura_api::endpoint::VolumeProtect;
use azekura_api::{Period, ProtectVolume, Thinning};
use clap::Args;

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// Arguments of `azekura volume protect`.
#[derive(Debug, Args)]
pub struct ProtectArgs {
    /// Name of the volume.
    name: String,
    /// Pause between two snapshots, such as 10s.
    #[arg(long, value_name = "TIME", required_unless_present = "off")]
    every: Option<Period>,
    /// How long all of them are kept, such as 1h.
    #[arg(long, value_name = "TIME", required_unless_present = "off")]
    keep: Option<Period>,
    /// What is kept of them afterwards: one in so long, for so long, such as 1h:24h,1d:30d.
    #[arg(long, value_name = "TIME:TIME,…", value_delimiter = ',')]
    then: Vec<Step>,
    /// Make none any more; those that are there stay until they are deleted.
    #[arg(long, conflicts_with_all = ["every", "keep", "then"])]
    off: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// `1h:24h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step(Period, Period);

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let (every, keep) = text.split_once(':').ok_or_else(|| {
            format!("'{text}' is not a step of thinning; write 1h:24h for one an hour, kept for 24 hours")
        })?;
        Ok(Step(every.parse()?, keep.parse()?))
    }
}

/// Runs the command.
pub fn protect(arguments: &ProtectArgs) -> Result<ExitCode, CliError> {
    let ProtectArgs { name, every, keep, then, api, .. } = arguments;
    let thinning = |step: &Step| Thinning { every_seconds: step.0.0, keep_seconds: step.1.0 };
    let body = ProtectVolume {
        every_seconds: every.map(|period| period.0),
        keep_seconds: keep.map(|period| period.0),
        then: then.iter().map(thinning).collect(),
        off: every.is_none(),
    };
    let volume = api.client()?.send::<VolumeProtect>([name.clone()], &body)?;
    if api.json {
        return print_json(&volume);
    }
    print(&match &volume.protection {
        Some(protection) => format!(
            "Volume {name} is protected: snapshots {}.\n'azekura volume revert {name} --at \"10 minutes ago\"' takes it \
             back, 'azekura volume clone {name}@\"10 minutes ago\" NAME' shows what it was.\n",
            protection
        ),
        None => format!("Volume {name} is not protected any more; its {} snapshots stay.\n", volume.snapshots),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_as_people_write_them() {
        assert_eq!("1h:24h".parse(), Ok(Step(Period(3_600), Period(86_400))));
        for bad in ["", "1h", "1h:", ":24h", "1h:24h:3", "one:two"] {
            assert!(bad.parse::<Step>().is_err(), "{bad}");
        }
    }
}
