//! `azekura csi …`.

use std::path::PathBuf;

use azekura_attach::Way;
use azekura_logging::LogFormat;
use clap::{Args, Subcommand};

use crate::cluster::Cluster;
use crate::controller::Controller;
use crate::error::CsiError;
use crate::node::{Node, NodeSetup};
use crate::orphans::OrphansArgs;
use crate::serve::{Offered, serve};

/// Run the CSI driver, which makes and mounts volumes for Kubernetes, or look after what it has left over.
#[derive(Debug, Args)]
pub struct CsiCommand {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Run the part that makes volumes, snapshots and attachments: once in a cluster.
    Controller(ControllerArgs),
    /// Run the part that mounts volumes: on every machine with containers.
    Node(NodeArgs),
    /// Show volumes, snapshots and attachments that the driver has made and that nobody in Kubernetes owns, and delete
    /// them if that is asked for.
    Orphans(Orphans),
}

/// Whom to ask.
#[derive(Debug, Args)]
struct Asked {
    /// The REST API of a node, or unix:DIR/api.sock: the own socket of a node of this machine. Given several times, the
    /// next one is asked when one does not answer.
    #[arg(
        long,
        value_name = "URL",
        env = "AZEKURA_API",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7180"
    )]
    api: Vec<String>,
    /// A file with a token of the role csi ('azekura token create'). It is read anew for each call.
    #[arg(long, value_name = "FILE", env = "AZEKURA_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// A file with the certificate of the cluster's authority ('azekura ca show'), for https://.
    #[arg(long, value_name = "FILE", env = "AZEKURA_CA_FILE")]
    ca: Option<PathBuf>,
    /// The driver's name, which StorageClasses have as their provisioner.
    #[arg(long, value_name = "NAME", default_value = crate::DRIVER_NAME)]
    driver_name: String,
}

impl Asked {
    fn cluster(self) -> Result<Cluster, CsiError> {
        Cluster::new(self.api, self.token_file, self.ca)
    }
}

/// What both parts need.
#[derive(Debug, Args)]
struct Common {
    /// The socket that the orchestrator asks at.
    #[arg(long, value_name = "unix://PATH", env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    endpoint: String,
    #[command(flatten)]
    asked: Asked,
    /// How a line of the log looks: text is a sentence for people, json an object that names volume and others apart
    /// (docs/operations/logs.md).
    #[arg(long, value_name = "text|json", value_enum, default_value_t, hide_possible_values = true)]
    log: LogFormat,
}

#[derive(Debug, Args)]
struct Orphans {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    options: OrphansArgs,
}

#[derive(Debug, Args)]
struct ControllerArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct NodeArgs {
    #[command(flatten)]
    common: Common,
    /// The name of the Azekura node that runs on this machine: the machine's volumes are attached to it.
    #[arg(long, value_name = "NAME", env = "AZEKURA_NODE")]
    node: String,
    /// A folder that is empty after a restart of the machine, for sockets and mounts of the way `fuse`.
    #[arg(long, value_name = "DIR", default_value = "/run/azekura-csi")]
    state: PathBuf,
    /// How the machine gets a block device: the kernel's NVMe/TCP, its NBD, or FUSE and a loop device. `auto` takes the
    /// first that the machine and its Azekura node have of NVMe/TCP, FUSE with qemu-storage-daemon, NBD, and FUSE with
    /// nbdfuse.
    #[arg(long, value_enum, default_value = "auto")]
    attach: Way,
}

impl CsiCommand {
    /// How a line of the log looks.
    #[must_use]
    pub fn log(&self) -> LogFormat {
        match &self.part {
            Part::Controller(arguments) => arguments.common.log,
            Part::Node(arguments) => arguments.common.log,
            Part::Orphans(_) => LogFormat::default(),
        }
    }

    /// Serves until the process is told to stop, or looks for what is left over.
    ///
    /// # Errors
    /// When it can't begin, or does not know all.
    pub fn run(self) -> Result<(), CsiError> {
        let (common, node) = match self.part {
            Part::Controller(arguments) => (arguments.common, None),
            Part::Node(arguments) => (arguments.common, Some((arguments.node, arguments.state, arguments.attach))),
            Part::Orphans(Orphans { asked, options }) => {
                let driver = asked.driver_name.clone();
                return options.run(asked.cluster()?, &driver);
            }
        };
        azekura_logging::begin(common.log);
        let driver_name = common.asked.driver_name.clone();
        let cluster = common.asked.cluster()?;
        let offered = match node {
            None => Offered::Controller(Controller::new(cluster)),
            Some((name, state, way)) => Offered::Node(Node::new(cluster, NodeSetup { name, state, way })?),
        };
        serve(&common.endpoint, driver_name, offered)
    }
}
