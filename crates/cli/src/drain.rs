//! `azekura device drain`, `azekura node drain`, and back.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use azekura_api::endpoint::{DeviceDrain, DeviceList, DeviceUndrain, NodeDrain, NodeUndrain, Status};
use azekura_api::{DeviceView, NoQuery};
use azekura_base::DeviceId;
use azekura_client::{Client, ClientError};
use clap::Args;

use super::output::{print, print_json};
use super::progress::Progress;
use super::{ApiArgs, CliError, lists};

/// Pause between two looks with --wait.
const WAIT_STEP: Duration = Duration::from_millis(500);

/// What draining is.
const DRAINING: &str = "Copies move away a few at a time ('azekura cluster set moves-at-once N'), while clients read and \
    write. It is refused when the other devices have no room, or when copies could not be kept apart without it. \
    'azekura device list' shows how many groups are left; 'undrain' calls it off.";

/// The node whose devices are to be emptied, or to take data again.
#[derive(Debug, Args)]
pub struct NodeName {
    /// The node's name.
    name: String,
}

/// The device that is to be emptied, or to take data again.
#[derive(Debug, Args)]
pub struct DeviceName {
    /// The device: its number, NODE/NAME, or its name if only one has it.
    name: String,
}

/// What can be drained.
pub trait Drained: Args {
    /// Its name.
    fn name(&self) -> String;
    /// Begins to empty it.
    fn drain(client: &Client, name: String) -> Result<Vec<DeviceView>, ClientError>;
    /// Ends that.
    fn undrain(client: &Client, name: String) -> Result<Vec<DeviceView>, ClientError>;
}

impl Drained for NodeName {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn drain(client: &Client, name: String) -> Result<Vec<DeviceView>, ClientError> {
        client.ask::<NodeDrain>([name], &NoQuery {})
    }

    fn undrain(client: &Client, name: String) -> Result<Vec<DeviceView>, ClientError> {
        client.ask::<NodeUndrain>([name], &NoQuery {})
    }
}

impl Drained for DeviceName {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn drain(client: &Client, name: String) -> Result<Vec<DeviceView>, ClientError> {
        client.ask::<DeviceDrain>([name], &NoQuery {})
    }

    fn undrain(client: &Client, name: String) -> Result<Vec<DeviceView>, ClientError> {
        client.ask::<DeviceUndrain>([name], &NoQuery {})
    }
}

/// What is to be emptied.
#[derive(Debug, Args)]
#[command(after_help = DRAINING)]
pub struct DrainArgs<D: Drained> {
    #[command(flatten)]
    of: D,
    /// Wait until nothing is left, at most this many seconds; tells how far it is.
    #[arg(long, value_name = "SECS")]
    wait: Option<u64>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is to take data again.
#[derive(Debug, Args)]
pub struct UndrainArgs<D: Drained> {
    #[command(flatten)]
    of: D,
    #[command(flatten)]
    api: ApiArgs,
}

impl<D: Drained> DrainArgs<D> {
    /// Drains a node or a device.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let mut devices = D::drain(&client, self.of.name())?;
        if let Some(seconds) = self.wait {
            devices = wait(&client, &devices, Duration::from_secs(seconds))?;
        }
        show(&self.api, &devices)
    }
}

impl<D: Drained> UndrainArgs<D> {
    /// Undrains a node or a device.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        show(&self.api, &D::undrain(&self.api.client()?, self.of.name())?)
    }
}

fn show(api: &ApiArgs, devices: &[DeviceView]) -> Result<ExitCode, CliError> {
    if api.json { print_json(&devices) } else { print(&lists::devices(devices)) }
}

fn left(devices: &[DeviceView]) -> usize {
    devices.iter().map(DeviceView::groups_left).sum()
}

/// What holds the draining of these devices up, as the status tells it.
fn in_the_way(client: &Client, ids: &[DeviceId]) -> String {
    let Ok(status) = client.ask::<Status>([], &NoQuery {}) else { return String::new() };
    let of = |note: &&String| ids.iter().any(|id| note.starts_with(&format!("device {id} (")));
    status.notes.iter().filter(of).map(|note| format!("; {note}")).collect()
}

/// Looks until the devices are empty.
fn wait(client: &Client, drained: &[DeviceView], time: Duration) -> Result<Vec<DeviceView>, CliError> {
    let ids: Vec<DeviceId> = drained.iter().map(|device| device.id).collect();
    let deadline = Instant::now() + time;
    let groups = left(drained);
    let mut progress = Progress::new();
    loop {
        let mut devices = client.ask::<DeviceList>([], &NoQuery {})?;
        devices.retain(|device| ids.contains(&device.id));
        let left = left(&devices);
        if left == 0 {
            return Ok(devices);
        }
        progress.part(groups.saturating_sub(left) as u64, groups as u64, format!("draining: {left} groups left"));
        if Instant::now() + WAIT_STEP >= deadline {
            let reason = format!("{left} groups are left after {} s", time.as_secs());
            return Err(CliError::new(reason).hint(format!("it goes on by itself{}", in_the_way(client, &ids))));
        }
        std::thread::sleep(WAIT_STEP);
    }
}
