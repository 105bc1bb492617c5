//! What can be asked: one type for each method of each path.
//!
//! The list at the end of this file is the API. From it come the server's routes, the clients' requests and the OpenAPI
//! description.

use azekura_base::Needs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::layers::{CompareQuery, GroupDifferences, MeasureLayer, Measured, NotTold};
use crate::{
    AddUnit, AllocatedQuery, AllocatedView, AttachVolume, AuditQuery, AuditView, AuthorityKey, AuthorityQuery,
    AuthorityView, ChangeClass, ChangeProject, ChangeSettings, ChangeVolumeSecret, ClassView, CloneVolume,
    ClusterStats, ClusterStatus, CreateClass, CreateGrant, CreateHost, CreateKey, CreateProject, CreateSnapshots,
    CreateTarget, CreateVolume, DeleteVolume, DetachVolume, DeviceView, DiffQuery, DiffView, Events, ExposeHere,
    ExposeVolume, Exposed, GrantCreated, GrantView, GroupView, HealthView, HostCreated, IoLimits, JobView, JoinCluster,
    JoinedView, KekView, KeyCreated, KeyUnlocked, LayerUse, LetInNode, NodeDataKeys, NodeKeks, NodeSnapshot, NodeView,
    PageQuery, ProjectView, ProtectVolume, ReadyView, RemoveMember, RemoveUnits, RemovedView, ResizeVolume,
    ResizedView, RevertVolume, RevertedView, RewrapKeys, RewrappedView, ScrubRequest, ScrubStarted, SettingsView,
    ShowSnapshot, ShutOutNode, ShutOutView, SnapshotView, SpaceView, TargetView, UnlockKey, UnlockVolume,
    VolumeKeyView, VolumeView, WatchQuery, WhoView,
};

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Shows something.
    Get,
    /// Makes or changes something.
    Post,
    /// Removes something.
    Delete,
}

impl Method {
    /// As a request begins.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }
}

/// A method of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The path; a segment in braces stands for a name.
    pub path: &'static str,
    /// The method.
    pub method: Method,
    /// What whoever asks must be allowed to.
    pub needs: Needs,
}

/// Something that can be asked.
pub trait Endpoint: Send + Sync + 'static {
    /// Its name in the description.
    const NAME: &'static str;
    /// Where.
    const ROUTE: Route;
    /// Status of an answer that is no error.
    const STATUS: u16;
    /// The names in the path, in its order.
    type Names: AsRef<[String]> + DeserializeOwned + Send;
    /// What stands behind the path.
    type Query: Serialize + DeserializeOwned + Send;
    /// What is sent.
    type Body: Serialize + DeserializeOwned + Send;
    /// What comes back.
    type Answer: Answer + Send;

    /// The body of a request that has none; `None`: it has one.
    fn no_body() -> Option<Self::Body>;

    /// The path with these names and this query, as it stands in a request.
    ///
    /// # Errors
    /// When the query can't be written as one; no query in here is such.
    fn target(names: &Self::Names, query: &Self::Query) -> Result<String, serde_urlencoded::ser::Error> {
        let mut names = names.as_ref().iter().peekable();
        let mut target = String::new();
        for part in Self::ROUTE.path.split('/').skip(1) {
            target.push('/');
            match names.next_if(|_| part.starts_with('{')) {
                Some(name) => target += &segment(name),
                None => target += part,
            }
        }
        let query = serde_urlencoded::to_string(query)?;
        if !query.is_empty() {
            target.push('?');
            target += &query;
        }
        Ok(target)
    }
}

/// A name as a segment of a URL's path (RFC 3986, section 2.1).
fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric()
            || b"-_~".contains(&byte)
            || (byte == b'.' && !name.trim_matches('.').is_empty())
        {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

/// The body of an answer.
pub trait Answer: Sized {
    /// Its media type; `None`: it has no body.
    const MEDIA_TYPE: Option<&'static str>;

    /// As it is sent.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error>;

    /// As it was received.
    ///
    /// # Errors
    /// When it is not what it should be.
    fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned> Answer for T {
    const MEDIA_TYPE: Option<&'static str> = Some("application/json");

    fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    fn from_bytes(bytes: &[u8]) -> Result<T, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// No query. Parameters that are there all the same are not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoQuery {}

/// No body. One that is there all the same is not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoBody {}

/// An answer that says no more than that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoContent;

impl Answer for NoContent {
    const MEDIA_TYPE: Option<&'static str> = None;

    fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok(Vec::new())
    }

    fn from_bytes(_: &[u8]) -> Result<NoContent, serde_json::Error> {
        Ok(NoContent)
    }
}

/// Counters in Prometheus' text format, version 0.0.4.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Prometheus(pub String);

impl Answer for Prometheus {
    const MEDIA_TYPE: Option<&'static str> = Some("text/plain; version=0.0.4");

    fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok(self.0.clone().into_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Prometheus, serde_json::Error> {
        Ok(Prometheus(String::from_utf8_lossy(bytes).into_owned()))
    }
}

macro_rules! no_body {
    () => {
        Some(NoBody {})
    };
    ($body:ty) => {
        None
    };
}

macro_rules! or_else {
    ($default:ty) => {
        $default
    };
    ($default:ty, $given:ty) => {
        $given
    };
}

/// Declares endpoints: `/// what it does`, `Name: METHOD "path" (number of names in it) needs What [? Query] [; Body]
/// => status Answer`.
macro_rules! endpoints {
    ($($(#[doc = $doc:literal])+ $name:ident:
        $method:ident $path:literal ($names:literal) needs $needs:ident $(? $query:ty)? $(; $body:ty)? => $status:literal $answer:ty;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl Endpoint for $name {
                const NAME: &'static str = stringify!($name);
                const ROUTE: Route = Route { path: $path, method: Method::$method, needs: Needs::$needs };
                const STATUS: u16 = $status;
                type Names = [String; $names];
                type Query = or_else!(NoQuery $(, $query)?);
                type Body = or_else!(NoBody $(, $body)?);
                type Answer = $answer;

                fn no_body() -> Option<Self::Body> {
                    no_body!($($body)?)
                }
            }
        )+

        /// All that can be asked, in the order of the description.
        pub const ROUTES: &[Route] = &[$($name::ROUTE,)+];

        /// How many names are in each path.
        #[cfg(test)]
        const NAMES: &[(&str, usize)] = &[$(($path, $names),)+];

        /// All that can be asked, in the words of OpenAPI.
        #[cfg(test)]
        pub(crate) fn describe(description: &mut crate::description::Description) {
            $(description.add::<$name>(stringify!($name), &[$($doc,)+]);)+
        }
    };
}

endpoints! {
    /// Whether the node that is asked serves, for load balancers and probes: 200 while its data plane answers.
    Health: Get "/v1/health" (0) needs Nothing => 200 HealthView;
    /// Whether the node that is asked is ready, for probes: 200 when it knows the configuration, listens at all its
    /// doors, and each of its devices is open or declared failed; else 503, with what it waits for. It stays ready
    /// while the configuration is away.
    Ready: Get "/v1/ready" (0) needs Nothing => 200 ReadyView;
    /// How the whole cluster is, and what is wrong with it.
    Status: Get "/v1/status" (0) needs SeeCluster => 200 ClusterStatus;
    /// Counters of every node that answers.
    Stats: Get "/v1/stats" (0) needs SeeCluster => 200 ClusterStats;
    /// Where the space is: what volumes were promised, what is written, what snapshots share, what devices hold.
    Space: Get "/v1/space" (0) needs SeeCluster => 200 SpaceView;
    /// What takes long and goes on by itself: copies that are brought up to date, devices that are emptied or leave,
    /// scrubs that somebody has asked for, deleted data that is given back. What is over is not in the list.
    JobList: Get "/v1/jobs" (0) needs SeeCluster => 200 Vec<JobView>;

    /// What changes, as it changes: server-sent events without an end. `id` is a position, `event` is `reset`,
    /// `volume.created`, `volume.changed`, `volume.deleted`, `node.created` and so on, `data` what `GET` shows of it.
    /// Who comes again with the header `Last-Event-ID`, or `since`, is told what he has missed, or `reset` and the
    /// whole state. To watch nodes and jobs takes what their lists take.
    Watch: Get "/v1/watch" (0) needs SeeVolumes ? WatchQuery => 200 Events;

    /// All volumes, by name.
    VolumeList: Get "/v1/volumes" (0) needs SeeVolumes ? PageQuery => 200 Vec<VolumeView>;
    /// Makes a volume. It is thin: it takes no space until it is written.
    VolumeCreate: Post "/v1/volumes" (0) needs UseVolumes; CreateVolume => 201 VolumeView;
    /// One volume.
    VolumeShow: Get "/v1/volumes/{name}" (1) needs SeeVolumes => 200 VolumeView;
    /// Deletes a volume and all its data.
    VolumeDelete: Delete "/v1/volumes/{name}" (1) needs UseVolumes ? DeleteVolume => 204 NoContent;
    /// Makes a volume larger or smaller. Clients see the new size with their next connection.
    VolumeResize: Post "/v1/volumes/{name}/resize" (1) needs UseVolumes; ResizeVolume => 200 ResizedView;
    /// Gives a volume to a node's clients. Answered when no former user's write can be applied any more.
    VolumeAttach: Post "/v1/volumes/{name}/attach" (1) needs UseVolumes; AttachVolume => 200 VolumeView;
    /// Takes a volume away from a node's clients. Answered when no write of theirs can be applied any more.
    VolumeDetach: Post "/v1/volumes/{name}/detach" (1) needs UseVolumes; DetachVolume => 200 VolumeView;
    /// Serves a volume to virtual machines of a node's machine at a unix socket, by vhost-user, also after the node's
    /// restarts.
    VolumeExpose: Post "/v1/volumes/{name}/expose" (1) needs Administer; ExposeVolume => 200 VolumeView;
    /// No longer. Who is connected stays.
    VolumeUnexpose: Post "/v1/volumes/{name}/unexpose" (1) needs Administer; ExposeVolume => 200 VolumeView;
    /// Opens a volume that is encrypted with a secret of its own, at the nodes that it is attached to: they know its
    /// key until it is detached by name, or they restart. Over HTTPS, or on the node's machine, alone.
    VolumeUnlock: Post "/v1/volumes/{name}/unlock" (1) needs UseVolumes; UnlockVolume => 200 VolumeView;
    /// Wraps a volume's key with another secret; its snapshots and clones have that, too. No block is written.
    VolumeChangeSecret: Post "/v1/volumes/{name}/secret" (1) needs UseVolumes; ChangeVolumeSecret => 200 VolumeView;
    /// The data key of an encrypted volume, and how far another one is that takes its place.
    VolumeKeyShow: Get "/v1/volumes/{name}/key" (1) needs SeeVolumes => 200 VolumeKeyView;
    /// Draws another data key, for the volume and all that shares its key: writes are encrypted with that from when all
    /// nodes have it, and blocks under the former one get it in the background, while the volumes are used.
    VolumeKeyRotate: Post "/v1/volumes/{name}/key" (1) needs UseVolumes; NoBody => 202 VolumeKeyView;
    /// Takes a volume back to a snapshot. What it was until now is kept as a snapshot for a day.
    VolumeRevert: Post "/v1/volumes/{name}/revert" (1) needs UseVolumes; RevertVolume => 200 RevertedView;
    /// Makes a volume that is what another one is, or was.
    VolumeClone: Post "/v1/volumes/{name}/clone" (1) needs UseVolumes; CloneVolume => 201 VolumeView;
    /// Makes snapshots of a volume come and go by themselves, or ends that.
    VolumeProtect: Post "/v1/volumes/{name}/protect" (1) needs UseVolumes; ProtectVolume => 200 VolumeView;
    /// Sets the most that a volume's clients may ask for, also while they use it. What is not named is not limited.
    VolumeLimit: Post "/v1/volumes/{name}/limits" (1) needs UseVolumes; IoLimits => 200 VolumeView;

    /// All targets of several logical units, by name.
    TargetList: Get "/v1/targets" (0) needs SeeVolumes => 200 Vec<TargetView>;
    /// Makes a target: hosts have its units, which are volumes, in one iSCSI session. Who may open which volume is as
    /// ever: a host sees the units that it may open.
    TargetCreate: Post "/v1/targets" (0) needs UseVolumes; CreateTarget => 201 TargetView;
    /// One target.
    TargetShow: Get "/v1/targets/{name}" (1) needs SeeVolumes => 200 TargetView;
    /// Deletes a target. Its volumes stay.
    TargetDelete: Delete "/v1/targets/{name}" (1) needs UseVolumes ? RemoveUnits => 204 NoContent;
    /// Makes a volume a unit of a target.
    UnitAdd: Post "/v1/targets/{name}/units" (1) needs UseVolumes; AddUnit => 200 TargetView;
    /// Takes a unit from a target, by its number, which is not given again. The volume stays.
    UnitRemove: Delete "/v1/targets/{name}/units/{lun}" (2) needs UseVolumes ? RemoveUnits => 200 TargetView;

    /// The snapshots of a volume, by time.
    VolumeSnapshots: Get "/v1/volumes/{name}/snapshots" (1) needs SeeVolumes ? PageQuery => 200 Vec<SnapshotView>;
    /// One snapshot; it may be named by a time: the newest that is not younger.
    SnapshotShow: Get "/v1/volumes/{name}/snapshots/{snapshot}" (2) needs SeeVolumes ? ShowSnapshot => 200 SnapshotView;
    /// Deletes a snapshot; only by its name.
    SnapshotDelete: Delete "/v1/volumes/{name}/snapshots/{snapshot}" (2) needs UseVolumes => 204 NoContent;
    /// What has changed since a snapshot, a page at a time.
    SnapshotDiff: Get "/v1/volumes/{name}/snapshots/{snapshot}/diff" (2) needs UseVolumes ? DiffQuery => 200 DiffView;
    /// Where a snapshot has data, a page at a time: for a first copy.
    SnapshotAllocated: Get "/v1/volumes/{name}/snapshots/{snapshot}/allocated" (2) needs UseVolumes ? AllocatedQuery => 200 AllocatedView;
    /// The snapshots of all volumes, by volume and then by time.
    SnapshotList: Get "/v1/snapshots" (0) needs SeeVolumes ? PageQuery => 200 Vec<SnapshotView>;
    /// Makes snapshots of volumes at one instant. Every write that was acknowledged before is in them.
    SnapshotCreate: Post "/v1/snapshots" (0) needs UseVolumes; CreateSnapshots => 201 Vec<SnapshotView>;

    /// All storage classes, by name.
    ClassList: Get "/v1/classes" (0) needs SeeVolumes => 200 Vec<ClassView>;
    /// Makes a storage class.
    ClassCreate: Post "/v1/classes" (0) needs Operate; CreateClass => 201 ClassView;
    /// One storage class.
    ClassShow: Get "/v1/classes/{name}" (1) needs SeeVolumes => 200 ClassView;
    /// Changes a storage class; its volumes are as the class is, from then on.
    ClassChange: Post "/v1/classes/{name}" (1) needs Operate; ChangeClass => 200 ClassView;
    /// Deletes a storage class that no volume uses.
    ClassDelete: Delete "/v1/classes/{name}" (1) needs Operate => 200 RemovedView;

    /// All nodes, by number.
    NodeList: Get "/v1/nodes" (0) needs SeeCluster ? PageQuery => 200 Vec<NodeView>;
    /// Takes a node out of the cluster for good.
    NodeRemove: Delete "/v1/nodes/{name}" (1) needs Operate ? RemoveMember => 200 RemovedView;
    /// Empties a node's devices. Answered with them, as the emptying begins.
    NodeDrain: Post "/v1/nodes/{name}/drain" (1) needs Operate => 200 Vec<DeviceView>;
    /// Lets a node's devices take data again.
    NodeUndrain: Post "/v1/nodes/{name}/undrain" (1) needs Operate => 200 Vec<DeviceView>;
    /// Shuts a node out: its keys prove nothing any more, its volumes are taken away from its clients, and clients know
    /// the other nodes by another authority. No start of it brings it back.
    NodeShutOut: Post "/v1/nodes/{name}/shut-out" (1) needs Administer; ShutOutNode => 200 ShutOutView;
    /// Lets a node in again that was shut out.
    NodeLetIn: Post "/v1/nodes/{name}/let-in" (1) needs Administer; LetInNode => 204 NoContent;
    /// All devices, by number.
    DeviceList: Get "/v1/devices" (0) needs SeeCluster => 200 Vec<DeviceView>;
    /// Takes a device out of the cluster for good. It is named by its number, as NODE/NAME, or by a name that only it
    /// has.
    DeviceRemove: Delete "/v1/devices/{name}" (1) needs Operate ? RemoveMember => 200 RemovedView;
    /// Empties a device. Answered with it, as the emptying begins.
    DeviceDrain: Post "/v1/devices/{name}/drain" (1) needs Operate => 200 Vec<DeviceView>;
    /// Lets a device take data again.
    DeviceUndrain: Post "/v1/devices/{name}/undrain" (1) needs Operate => 200 Vec<DeviceView>;
    /// All placement groups, by number.
    GroupList: Get "/v1/groups" (0) needs SeeCluster => 200 Vec<GroupView>;
    /// Compares all copies of a volume, or of what is on a device. Answered when it is noted; it begins within seconds.
    ScrubStart: Post "/v1/scrub" (0) needs Operate; ScrubRequest => 200 ScrubStarted;

    /// The cluster's settings.
    SettingsShow: Get "/v1/settings" (0) needs SeeCluster => 200 SettingsView;
    /// Changes settings; those that are not named stay.
    SettingsChange: Post "/v1/settings" (0) needs Administer; ChangeSettings => 200 SettingsView;

    /// The projects that whoever asks has to do with, by name. 'default' is none of them: it is always there, and has
    /// no quota.
    ProjectList: Get "/v1/projects" (0) needs SeeVolumes => 200 Vec<ProjectView>;
    /// Makes a project.
    ProjectCreate: Post "/v1/projects" (0) needs Administer; CreateProject => 201 ProjectView;
    /// One project, with what it has.
    ProjectShow: Get "/v1/projects/{name}" (1) needs SeeVolumes => 200 ProjectView;
    /// Changes what a project may have.
    ProjectChange: Post "/v1/projects/{name}" (1) needs Administer; ChangeProject => 200 ProjectView;
    /// Deletes a project that has neither volumes nor grants.
    ProjectDelete: Delete "/v1/projects/{name}" (1) needs Administer => 204 NoContent;

    /// The grants that whoever asks may make, by name.
    GrantList: Get "/v1/grants" (0) needs Grants => 200 Vec<GrantView>;
    /// Makes a grant. Its token is told this once, and kept nowhere.
    GrantCreate: Post "/v1/grants" (0) needs Grants; CreateGrant => 201 GrantCreated;
    /// Revokes a grant, which is named by its name or number, or as PROJECT/NAME. Its token or key opens nothing any
    /// more.
    GrantRevoke: Delete "/v1/grants/{name}" (1) needs Grants => 204 NoContent;
    /// Gives a client's key a role: over HTTPS, NBD and whatever else takes certificates, who proves the key has it.
    KeyCreate: Post "/v1/keys" (0) needs Grants; CreateKey => 201 KeyCreated;
    /// Lets a host in, over iSCSI or NVMe, by the name that it gives itself.
    HostCreate: Post "/v1/hosts" (0) needs Grants; CreateHost => 201 HostCreated;
    /// Who asks, as the node sees it.
    Whoami: Get "/v1/whoami" (0) needs Grant => 200 WhoView;

    /// Who has changed what, the oldest first, a page at a time.
    AuditShow: Get "/v1/audit" (0) needs Administer ? AuditQuery => 200 AuditView;

    /// Makes the machine that asks a node, with a join token, which is used up by that.
    NodeJoin: Post "/v1/join" (0) needs Join; JoinCluster => 201 JoinedView;

    /// The certificate authority by which clients know the cluster's nodes.
    AuthorityShow: Get "/v1/authority" (0) needs Grant => 200 AuthorityView;
    /// Makes another authority take its place. Clients that know the one before go on trusting the nodes.
    AuthorityReplace: Post "/v1/authority" (0) needs Administer => 201 AuthorityView;

    /// By which keys (KEKs) the data keys of encrypted volumes are wrapped, and which nodes have these.
    KekShow: Get "/v1/kek" (0) needs SeeCluster => 200 KekView;
    /// Wraps data keys with the newest KEK, some hundreds at a time. Refused while a node does not have that.
    KekRewrap: Post "/v1/kek/rewrap" (0) needs Administer; RewrapKeys => 200 RewrappedView;

    /// The counters of the node that is asked. For other nodes.
    NodeStatistics: Get "/v1/node/stats" (0) needs Node => 200 NodeSnapshot;
    /// What layers hold on the devices of the node that is asked. For other nodes.
    NodeLayers: Get "/v1/node/layers" (0) needs Node => 200 LayerUse;
    /// What two layers show differently in groups that the node that is asked leads. For other nodes.
    NodeCompare: Get "/v1/node/compare" (0) needs Node ? CompareQuery => 200 Vec<GroupDifferences>;
    /// A part of what the end of a layer would give back on a device of the node that is asked. For other nodes.
    NodeMeasure: Get "/v1/node/measure" (0) needs Node ? MeasureLayer => 200 Result<Measured, NotTold>;

    /// Which keys for wrapping data keys this node has: nothing of the keys themselves.
    NodeKeksShow: Get "/v1/node/keks" (0) needs Node => 200 NodeKeks;
    /// What this node has of data keys that are being rotated: nothing of the keys themselves. For other nodes.
    NodeDataKeysShow: Get "/v1/node/data-keys" (0) needs Node => 200 NodeDataKeys;
    /// Makes a socket for a volume on the machine of the node that is asked, or removes it. For other nodes alone.
    NodeExpose: Post "/v1/node/expose" (0) needs Secrets; ExposeHere => 200 Exposed;
    /// Opens a data key with its volume's secret. For other nodes alone.
    NodeUnlock: Post "/v1/node/unlock" (0) needs Secrets; UnlockKey => 200 KeyUnlocked;
    /// A certificate authority with its key. For other nodes alone.
    NodeAuthority: Get "/v1/node/authority" (0) needs Secrets ? AuthorityQuery => 200 AuthorityKey;

    /// This description.
    OpenApi: Get "/v1/openapi.json" (0) needs Grant => 200 serde_json::Value;
    /// The counters of the node that is asked, for Prometheus.
    Metrics: Get "/metrics" (0) needs Metrics => 200 Prometheus;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> [String; N] {
        names.map(str::to_owned)
    }

    #[test]
    fn names_become_segments() {
        let target = |name| VolumeShow::target(&names([name]), &NoQuery {}).unwrap();
        assert_eq!(target("vol-1.x_y"), "/v1/volumes/vol-1.x_y");
        assert_eq!(target("a/b c\nä"), "/v1/volumes/a%2Fb%20c%0A%C3%A4");
        assert_eq!(target(".."), "/v1/volumes/%2E%2E");
        assert_eq!(target("{name}"), "/v1/volumes/%7Bname%7D");
        let diff = SnapshotDiff::target(&names(["v", "10 minutes ago"]), &DiffQuery::default()).unwrap();
        assert_eq!(diff, "/v1/volumes/v/snapshots/10%20minutes%20ago/diff");
    }

    #[test]
    fn queries_are_written() {
        let query = DeleteVolume { force: true, snapshots: false };
        assert_eq!(VolumeDelete::target(&names(["v"]), &query).unwrap(), "/v1/volumes/v?force=true");
        let compare = r#"{"revision":1,"from":2,"to":3,"first":4,"end":5,"limit":6,"groups":"7,8"}"#;
        let query: CompareQuery = serde_json::from_str(compare).unwrap();
        let target = NodeCompare::target(&[], &query).unwrap();
        assert_eq!(target, "/v1/node/compare?revision=1&from=2&to=3&first=4&end=5&limit=6&groups=7%2C8");
        let target = NodeCompare::target(&[], &CompareQuery { from: None, ..query }).unwrap();
        assert_eq!(target, "/v1/node/compare?revision=1&to=3&first=4&end=5&limit=6&groups=7%2C8");
    }

    #[test]
    fn paths_name_what_is_in_them() {
        let mut seen = std::collections::BTreeSet::new();
        for route in ROUTES {
            assert!(seen.insert(*route), "{route:?} twice");
            assert!(route.path.starts_with("/v1/") || route.path == "/metrics", "{}", route.path);
        }
        assert!(NAMES.iter().all(|(path, names)| path.matches('{').count() == *names));
        assert_eq!(VolumeShow::no_body(), Some(NoBody {}));
        assert_eq!(VolumeCreate::no_body(), None);
    }
}
