//! The messages.

use crate::expected::Expected;
use azekura_base::{
    BlockRange, Body, Checksum, Checksums, ChunkIndex, DeviceId, Endpoint, Epoch, Extent, Generation, IoStatus,
    LayerId, PgId, RequestId, Run, Sequence, SessionId, VolumeId, Write, WriteHeader,
};
use bytes::Bytes;

/// One message between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message on a connection, from the shard that dialled it.
    Hello(Hello),
    /// Its answer, from the shard that accepted.
    Welcome(Hello),
    /// Gateway to primary: write bytes or zeros.
    Write(WriteRequest),
    /// Primary to gateway.
    WriteDone(WriteDone),
    /// Gateway to any copy: read blocks.
    Read(ReadRequest),
    /// Copy to gateway.
    ReadDone(ReadDone),
    /// Gateway to any copy: which blocks of a chunk hold data?
    Status(StatusRequest),
    /// Copy to gateway.
    StatusDone(StatusDone),
    /// Primary to secondary: make this write durable at this place of the order.
    Prepare(Prepare),
    /// The same, of blocks that the receiving node's own gateway holds.
    PrepareHeld(PrepareHeld),
    /// Secondary to primary: durable up to here.
    PrepareOk(PrepareOk),
    /// Primary to secondary, after a new epoch or a new connection: where are you?
    NewEpoch(NewEpoch),
    /// Secondary to primary.
    NewEpochOk(NewEpochOk),
    /// Primary to a copy that is not in sync: become up to date, from here on.
    Learn(Learn),
    /// Its answer: the copy has begun.
    LearnOk(LearnOk),
    /// Primary to a copy that learns: are your blocks of this chunk the same?
    Compare(Compare),
    /// Its answer.
    CompareOk(CompareOk),
    /// Primary to a copy: these blocks hold this.
    Repair(Repair),
    /// The repair is durable.
    RepairOk(RepairOk),
    /// Secondary to primary: this copy is about to stop; it answers nobody from now on.
    Leaving(Leaving),
    /// Primary to secondary: the sender has stopped; reign in its place.
    HandOver(HandOver),
    /// Secondary to primary: a block of this copy is damaged.
    Damaged(Damaged),
    /// Primary to secondary: give me these blocks, mine are damaged.
    Fetch(Fetch),
    /// Its answer.
    Fetched(Fetched),
    /// Node to node: the sender is alive and primary of these groups.
    Heartbeat(Heartbeat),
    /// Its answer.
    HeartbeatOk(HeartbeatOk),
    /// Node to primary: attachments of a volume have been ended; take no more writes of theirs.
    Fence(Fence),
    /// The answer to a fence or a freeze.
    FenceDone(FenceDone),
    /// Node to primary: a snapshot is being made; take no more writes to the volume's head layer.
    Freeze(Freeze),
    /// Node to node, before the first message that names a layer: what the receiver may not have heard of layers yet.
    Layers(Layers),
}

impl Message {
    /// The secondary's device and the header of a prepared write, whether or not the blocks come with the message.
    #[must_use]
    pub fn prepared(&self) -> Option<(DeviceId, &WriteHeader)> {
        match self {
            Message::Prepare(Prepare { device, header, .. })
            | Message::PrepareHeld(PrepareHeld { device, header, .. }) => Some((*device, header)),
            _ => None,
        }
    }
}

/// Who is speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version.
    pub version: u16,
    /// The cluster's identity; nodes of different clusters refuse each other.
    pub cluster: u128,
    /// The speaker.
    pub from: Endpoint,
    /// Whom the speaker believes to have reached.
    pub to: Endpoint,
    /// Raised at each start of the speaker's process.
    pub incarnation: u64,
    /// Raised at each connection of that process: the older of two connections is dropped.
    pub connection: u64,
}

/// A client's write to one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The gateway's session.
    pub session: SessionId,
    /// This write's number: a session's writes to one group are counted from 1.
    pub request: RequestId,
    /// The oldest write of this session to this group that is not answered yet: older ones will not be asked for again.
    pub oldest: RequestId,
    /// The chunk's placement group.
    pub pg: PgId,
    /// The volume.
    pub volume: VolumeId,
    /// The gateway's attachment of it.
    pub attachment: Generation,
    /// The volume's head layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// First byte, counted from the chunk's start.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
    /// What the volume has to hold there for the write to be carried out; else it fails with
    /// [`IoStatus::Miscompare`]. Such a write is of bytes inside one block.
    pub expected: Option<Box<Expected>>,
    /// What is written: `len` bytes with the CRC-32C of each piece after cutting them at block borders, or zeros.
    pub body: Body,
}

/// The outcome of a [`WriteRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// The group that the write is numbered in.
    pub pg: PgId,
    /// The write's number.
    pub request: RequestId,
    /// Durable as the ack rule demands, or why not.
    pub result: Result<(), IoStatus>,
}

/// A client's read from one chunk, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Names the answer.
    pub request: RequestId,
    /// The chunk's placement group.
    pub pg: PgId,
    /// The volume.
    pub volume: VolumeId,
    /// The gateway's attachment of it.
    pub attachment: Generation,
    /// The blocks, read through this layer.
    pub range: BlockRange,
}

/// The outcome of a [`ReadRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// The read's number.
    pub request: RequestId,
    /// The blocks asked for, in order, or why not.
    pub result: Result<Vec<Extent>, IoStatus>,
}

/// Asks which blocks of a chunk hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRequest {
    /// Names the answer.
    pub request: RequestId,
    /// The chunk's placement group.
    pub pg: PgId,
    /// The volume.
    pub volume: VolumeId,
    /// The gateway's attachment of it.
    pub attachment: Generation,
    /// The layer to look through.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
}

/// The outcome of a [`StatusRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusDone {
    /// The request's number.
    pub request: RequestId,
    /// Runs that cover the chunk, in order, or why not.
    pub result: Result<Vec<Run>, IoStatus>,
}

/// One write in its group's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The secondary's device.
    pub device: DeviceId,
    /// The oldest write of the same session that is not answered yet.
    pub oldest: RequestId,
    /// Which write, in the primary's epoch.
    pub header: WriteHeader,
    /// The blocks; never [`Body::Lost`].
    pub body: Body,
}

impl Prepare {
    /// What a log keeps of the message.
    #[must_use]
    pub fn write(self) -> Write {
        Write { header: self.header, body: self.body }
    }
}

/// A [`Prepare`] for a node whose own gateway has sent the blocks, and still holds them: the write of this session and
/// number. They need not cross the network again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareHeld {
    /// The secondary's device.
    pub device: DeviceId,
    /// The oldest write of the same session that is not answered yet.
    pub oldest: RequestId,
    /// Which write, in the primary's epoch.
    pub header: WriteHeader,
    /// One checksum a block.
    pub checksums: Checksums,
}

/// The secondary's log is durable up to `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareOk {
    /// The group.
    pub pg: PgId,
    /// The secondary's device.
    pub device: DeviceId,
    /// The epoch in which it was prepared.
    pub epoch: Epoch,
    /// The last durable place.
    pub sequence: Sequence,
    /// The secondary's device takes no more data.
    pub full: bool,
}

/// The primary of `epoch` speaks to a secondary for the first time on a connection, or in a new stage of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEpoch {
    /// The group.
    pub pg: PgId,
    /// The secondary's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub committed: Sequence,
    /// `None` while the primary gathers what was prepared in earlier epochs: the secondary keeps what it has, follows
    /// nobody older, and says how far it is. Then the last place of earlier epochs, all of which is committed: the
    /// secondary records the epoch, or says that it holds more of them than that.
    pub opens_at: Option<Sequence>,
    /// The epoch that the primary has recorded.
    pub recorded: Epoch,
    /// The last reign in which nobody serves any more, for sure; [`Epoch::BEFORE_ALL`] if the primary knows of none.
    pub ended: Epoch,
}

/// The secondary follows the epoch, and has recorded it if it was to; it holds everything up to `prepared`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEpochOk {
    /// The group.
    pub pg: PgId,
    /// The secondary's device.
    pub device: DeviceId,
    /// The secondary's epoch: newer than asked for when it refuses the primary.
    pub epoch: Epoch,
    /// The last durable place.
    pub prepared: Sequence,
    /// The epoch is recorded on the device.
    pub open: bool,
    /// The secondary's device takes no more data.
    pub full: bool,
    /// The epoch that is recorded on the device.
    pub recorded: Epoch,
    /// Everything up to here is committed, as far as the secondary knows.
    pub committed: Sequence,
}

/// The primary of `epoch` starts to bring a copy up to date: what is ordered after `base` follows as [`Prepare`], what
/// was ordered after `since` and up to `base` as [`Repair`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learn {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The copy held everything up to here when it was last in sync.
    pub since: Sequence,
    /// Everything up to here is committed.
    pub base: Sequence,
    /// The checksum of `note`, for whoever reads it to compare.
    pub note_checksum: Checksum,
    /// Which writes of which sessions are committed, as the primary's log keeps it. At most [`crate::NOTE_SIZE_MAX`]
    /// bytes.
    pub note: Bytes,
}

/// A copy has begun to learn, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnOk {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// As asked for; or where the copy's own commit point is, if that is higher: then it refuses to begin.
    pub base: Sequence,
    /// Everything up to here had been there before: at most what was asked for as `since`.
    pub complete: Sequence,
}

/// Digests of a chunk's blocks on the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// Names the question.
    pub id: u64,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// The digests are those of the checksums in the map, and no block is to be read for the answer.
    pub light: bool,
    /// One digest for each of [`crate::DIGEST_SPANS`] equal spans of the chunk.
    pub spans: Vec<u64>,
}

/// A span of a chunk that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which one.
    pub index: u8,
    /// One digest for each of its blocks, on the answering copy.
    pub blocks: Vec<u64>,
}

/// The answer to a [`Compare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareOk {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The question's name.
    pub id: u64,
    /// The spans that differ, in order; all of them when the chunk could not be read.
    pub differing: Vec<Span>,
    /// The chunk could not be read.
    pub unreadable: bool,
    /// The copy has no such layer (any more): its blocks are those of another by now, or of none.
    pub gone: bool,
}

/// The contents of some blocks with everything up to `commit` applied. Writes after that come after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// Everything up to here is committed, and in these contents.
    pub commit: Sequence,
    /// Names the repair, if somebody waits for it.
    pub id: Option<std::num::NonZeroU64>,
    /// Which blocks.
    pub range: BlockRange,
    /// What they hold.
    pub body: Body,
}

/// A [`Repair`] is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairOk {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The repair's name, if it has one.
    pub id: Option<std::num::NonZeroU64>,
}

/// A copy's process is about to end, or its device has left the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The epoch that it follows.
    pub epoch: Epoch,
}

/// The primary of `epoch` asks a copy to claim the next one, and serves on until that copy reigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The group.
    pub pg: PgId,
    /// The successor's device.
    pub device: DeviceId,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// What is committed; a copy that does not hold it all is not to reign.
    pub committed: Sequence,
}

/// Blocks of a copy can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The epoch that it follows.
    pub epoch: Epoch,
    /// The blocks.
    pub range: BlockRange,
}

/// Asks a secondary for blocks to which no write is under way, with everything up to `commit` applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub commit: Sequence,
    /// Names the question.
    pub id: u64,
    /// The blocks.
    pub range: BlockRange,
}

/// The answer to a [`Fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The question's name.
    pub id: u64,
    /// The blocks, in order; `None` when this copy can't give them either.
    pub extents: Option<Vec<Extent>>,
}

/// One group in a [`Heartbeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBeat {
    /// The group.
    pub pg: PgId,
    /// The secondary's device.
    pub device: DeviceId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub commit: Sequence,
    /// Every in-sync copy holds everything up to here.
    pub low_watermark: Sequence,
}

/// The sender is alive, and primary of `groups`. Times are the named clock's microseconds: only their owner
/// interprets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The sender's clock.
    pub stamp_us: u64,
    /// The receiver's clock in its last [`HeartbeatOk`] that the sender had received, if any: what the receiver's
    /// lease counts from.
    pub echo_us: Option<std::num::NonZeroU64>,
    /// The groups that the sender is primary of and the receiver has a copy of.
    pub groups: Vec<GroupBeat>,
}

/// The answer to a [`Heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatOk {
    /// The heartbeat's own stamp.
    pub echo_us: u64,
    /// The answering node's clock.
    pub stamp_us: u64,
    /// The answering node knows the configuration up to this revision.
    pub revision: u64,
    /// The copies that follow the heartbeat's epoch: they promise to follow nobody else for a while.
    pub copies: Vec<CopyBeat>,
}

/// One copy in a [`HeartbeatOk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBeat {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// The device takes no more data.
    pub full: bool,
}

/// The attachments of a volume as of one generation. Every earlier one that is not among them has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Names the answer.
    pub request: RequestId,
    /// The group that is to know of it.
    pub pg: PgId,
    /// The volume.
    pub volume: VolumeId,
    /// The generation.
    pub generation: Generation,
    /// The attachments that stand, in ascending order; at most [`crate::ATTACHMENTS_MAX`].
    pub attachments: Vec<Generation>,
}

impl Fence {
    /// True when requests of this attachment of this volume are to be refused.
    #[must_use]
    pub fn ends(&self, volume: VolumeId, attachment: Generation) -> bool {
        volume == self.volume && attachment <= self.generation && !self.attachments.contains(&attachment)
    }
}

/// The answer to a [`Fence`] or a [`Freeze`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceDone {
    /// The question's name.
    pub request: RequestId,
    /// No write of an ended attachment, or to the frozen layer, will be applied in the group any more; or why that
    /// can't be said.
    pub result: Result<(), IoStatus>,
}

/// A volume's head layer is to get another one on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// Names the answer.
    pub request: RequestId,
    /// The group that is to confirm.
    pub pg: PgId,
    /// The volume.
    pub volume: VolumeId,
    /// Its head layer.
    pub head: LayerId,
    /// The revision of the configuration in which that began.
    pub revision: u64,
}

/// Layers, as of a revision of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// The revision.
    pub revision: u64,
    /// Head layers of volumes, that take writes; at most [`crate::LAYERS_MAX`].
    pub heads: Vec<(VolumeId, LayerId)>,
    /// Layers and the layer that each lies on; at most [`crate::LAYERS_MAX`].
    pub parents: Vec<(LayerId, LayerId)>,
}
