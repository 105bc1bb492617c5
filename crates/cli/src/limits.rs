//! `azekura volume limit`: what a volume's clients may ask for in a second.

use std::process::ExitCode;

use azekura_api::endpoint::VolumeLimit;
use azekura_api::{IoLimits, Period};
use azekura_base::Size;
use clap::Args;

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// Limits as people write them.
#[derive(Clone, Debug, Default, Args)]
pub struct LimitArgs {
    /// Requests a second, at the most: 10 to 10000000.
    #[arg(long, value_name = "N")]
    iops: Option<u64>,
    /// Bytes read and written in a second, at the most, such as 100MiB: 1MiB to 100GiB.
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<Size>,
    /// What is not asked for in this time may be asked for later, all at once, such as 10s: at most 1h.
    #[arg(long, value_name = "TIME")]
    burst: Option<Period>,
}

impl LimitArgs {
    /// As the API has them; `None` when there are none.
    pub fn limits(&self) -> Result<Option<IoLimits>, CliError> {
        let LimitArgs { iops, bandwidth, burst } = self;
        if iops.is_none() && bandwidth.is_none() {
            return match burst {
                None => Ok(None),
                Some(_) => Err(CliError::new("--burst needs a limit: give --iops, --bandwidth or both")),
            };
        }
        let burst_seconds = burst.map_or(0, |burst| u32::try_from(burst.0).unwrap_or(u32::MAX));
        Ok(Some(IoLimits { iops: *iops, bytes_per_second: bandwidth.map(Size::bytes), burst_seconds }))
    }
}

/// Arguments of `azekura volume limit`.
#[derive(Debug, Args)]
pub struct LimitVolumeArgs {
    /// Name of the volume.
    name: String,
    #[command(flatten)]
    limits: LimitArgs,
    /// Limit nothing any more.
    #[arg(long, conflicts_with_all = ["iops", "bandwidth", "burst"])]
    off: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
pub fn limit(arguments: &LimitVolumeArgs) -> Result<ExitCode, CliError> {
    let LimitVolumeArgs { name, limits, off, api } = arguments;
    let body = match (limits.limits()?, off) {
        (Some(limits), _) => limits,
        (None, true) => IoLimits::default(),
        (None, false) => return Err(CliError::new("give --iops, --bandwidth or both, or --off to end all limits")),
    };
    let volume = api.client()?.send::<VolumeLimit>([name.clone()], &body)?;
    if api.json {
        return print_json(&volume);
    }
    print(&match &volume.limits {
        Some(limits) => format!("Volume {name} is limited to {limits}.\n"),
        None => format!("Volume {name} is not limited any more.\n"),
    })
}
