//! Which blocks of a snapshot have data, and which have changed since another one: for backup programs, by way of the
//! sidecar external-snapshot-metadata (docs/csi.md).
//!
//! A stream asks the cluster for a page when its reader has taken the one before, so that a slow reader costs one page
//! of memory here and nothing in the cluster. Nothing is kept between two streams: who was interrupted asks again with
//! an offset.

use std::sync::Arc;
use std::time::Duration;

use azekura_base::CHUNK_SIZE;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::Outcome;
use crate::cluster::Cluster;
use crate::proto::snapshot_metadata_server::SnapshotMetadata;
use crate::proto::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest, GetMetadataDeltaResponse,
};
use crate::sizes::signed;

mod question;
mod ranges;

use question::{Page, Question};
use ranges::Lists;

/// Streams that are served at once.
const STREAMS_MAX: usize = 16;
/// How long a reader may take over one message before its place is given to others.
const READER_WAIT: Duration = Duration::from_secs(600);

/// Tells of snapshots' blocks. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    cluster: Cluster,
    places: Arc<Semaphore>,
}

/// A message of a stream.
trait Told: Send + 'static {
    fn of(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self;
}

/// Ranges are of any length: what lies together is told together.
const STYLE: i32 = BlockMetadataType::VariableLength as i32;

impl Told for GetMetadataAllocatedResponse {
    fn of(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self {
        GetMetadataAllocatedResponse { block_metadata_type: STYLE, volume_capacity_bytes, block_metadata }
    }
}

impl Told for GetMetadataDeltaResponse {
    fn of(volume_capacity_bytes: i64, block_metadata: Vec<BlockMetadata>) -> Self {
        GetMetadataDeltaResponse { block_metadata_type: STYLE, volume_capacity_bytes, block_metadata }
    }
}

type Stream<T> = ReceiverStream<Result<T, Status>>;

/// From where on, and how many ranges a message may have.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    start: u64,
    results_max: usize,
}

impl Wanted {
    fn read(starting_offset: i64, max_results: i32) -> Outcome<Wanted> {
        let results_max = usize::try_from(max_results)
            .map_err(|_| Status::invalid_argument(format!("max_results is {max_results}: not less than 0")))?;
        let start = u64::try_from(starting_offset).map_err(|_| {
            Status::out_of_range(format!("starting_offset is {starting_offset}: begin with 0, or where a range ended"))
        })?;
        Ok(Wanted { start, results_max })
    }

    /// Where the cluster is asked from: it tells of whole chunks.
    fn first_chunk(self) -> u64 {
        self.start - self.start % CHUNK_SIZE as u64
    }
}

impl Metadata {
    pub(crate) fn new(cluster: Cluster) -> Metadata {
        Metadata { cluster, places: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    /// The first page, so that what is wrong with a question is told at once; and then a stream of all.
    async fn tell<T: Told>(
        &self,
        name: &'static str,
        question: Outcome<Question>,
        wanted: Outcome<Wanted>,
    ) -> Result<Response<Stream<T>>, Status> {
        let failed = |status: Status| {
            tracing::warn!("{name}: {:?}: {}", status.code(), status.message());
            status
        };
        let (question, wanted) = (question.map_err(failed)?, wanted.map_err(failed)?);
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let reason = format!("{STREAMS_MAX} streams are being read already: ask again when one has ended");
            failed(Status::resource_exhausted(reason))
        })?;
        let cluster = self.cluster.clone();
        let begun = spawn_blocking(move || question.begin(&cluster, wanted.start, wanted.first_chunk())).await;
        let begun = begun.unwrap_or_else(|error| Err(Status::internal(format!("{name} has ended: {error}"))));
        let (question, page) = begun.map_err(failed)?;
        let (sender, receiver) = mpsc::channel(1);
        let telling = Telling { cluster: self.cluster.clone(), question, wanted, sender, _place: place };
        tokio::spawn(async move {
            let volume = telling.question.about();
            if let Err((sender, status)) = telling.run(page).await {
                tracing::warn!(volume, "{name}: {:?}: {}", status.code(), status.message());
                // A reader that is gone needs no word.
                let _ = timeout(READER_WAIT, sender.send(Err(status))).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// A stream that is being told.
struct Telling<T> {
    cluster: Cluster,
    question: Question,
    wanted: Wanted,
    sender: mpsc::Sender<Result<T, Status>>,
    _place: OwnedSemaphorePermit,
}

/// Why a stream ends early.
enum Ended {
    /// Nobody reads it any more.
    Left,
    Failed(Status),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        Ended::Failed(status)
    }
}

impl<T: Told> Telling<T> {
    /// Tells all pages from this one on. An error comes with the way to the reader.
    async fn run(self, page: Page) -> Result<(), (mpsc::Sender<Result<T, Status>>, Status)> {
        match self.pages(page).await {
            Ok(()) | Err(Ended::Left) => Ok(()),
            Err(Ended::Failed(status)) => Err((self.sender, status)),
        }
    }

    async fn pages(&self, mut page: Page) -> Result<(), Ended> {
        let size_bytes = page.size_bytes;
        let mut lists = Lists::new(self.wanted.start, size_bytes, self.wanted.results_max);
        let mut is_silent = true;
        loop {
            if page.size_bytes != size_bytes {
                let changed = format!("{} has changed while it was told: begin again", self.question.about());
                return Err(Status::aborted(changed).into());
            }
            lists.add(std::mem::take(&mut page.spans))?;
            while let Some(blocks) = lists.take(page.next.is_none()) {
                self.send(T::of(signed(size_bytes), blocks)).await?;
                is_silent = false;
            }
            let Some(at) = page.next else { break };
            let (cluster, question, layers) = (self.cluster.clone(), self.question.clone(), page.layers);
            let next = spawn_blocking(move || question.page(&cluster, at, Some(layers))).await;
            page = next.map_err(|error| Status::internal(format!("a page could not be asked for: {error}")))??;
            if page.next.is_some_and(|next| next <= at) {
                return Err(Status::internal(format!("the cluster does not go on behind byte {at}")).into());
            }
        }
        if is_silent {
            // Nothing there: the volume's size is told all the same.
            self.send(T::of(signed(size_bytes), Vec::new())).await?;
        }
        Ok(())
    }

    async fn send(&self, told: T) -> Result<(), Ended> {
        match timeout(READER_WAIT, self.sender.send(Ok(told))).await {
            Ok(sent) => sent.map_err(|_| Ended::Left),
            Err(_) => {
                let reason = format!("nothing was read for {} s: go on from there", READER_WAIT.as_secs());
                Err(Status::deadline_exceeded(reason).into())
            }
        }
    }
}

#[tonic::async_trait]
impl SnapshotMetadata for Metadata {
    type GetMetadataAllocatedStream = Stream<GetMetadataAllocatedResponse>;

    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Result<Response<Self::GetMetadataAllocatedStream>, Status> {
        let asked = request.into_inner();
        let question = Question::allocated(&asked.snapshot_id);
        let wanted = Wanted::read(asked.starting_offset, asked.max_results);
        self.tell("get_metadata_allocated", question, wanted).await
    }

    type GetMetadataDeltaStream = Stream<GetMetadataDeltaResponse>;

    async fn get_metadata_delta(
        &self,
        request: Request<GetMetadataDeltaRequest>,
    ) -> Result<Response<Self::GetMetadataDeltaStream>, Status> {
        let asked = request.into_inner();
        let question = Question::delta(&asked.base_snapshot_id, &asked.target_snapshot_id);
        let wanted = Wanted::read(asked.starting_offset, asked.max_results);
        self.tell("get_metadata_delta", question, wanted).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_numbers_that_can_not_be() {
        assert_eq!(Wanted::read(-1, 0).unwrap_err().code(), tonic::Code::OutOfRange);
        assert_eq!(Wanted::read(0, -1).unwrap_err().code(), tonic::Code::InvalidArgument);
        let wanted = Wanted::read(CHUNK_SIZE as i64 * 3 + 4096, 5).unwrap();
        assert_eq!((wanted.first_chunk(), wanted.results_max), (CHUNK_SIZE as u64 * 3, 5));
    }
}
