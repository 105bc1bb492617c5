//! What a stream asks the cluster.

use azekura_api::endpoint::{SnapshotAllocated, SnapshotDiff};
use azekura_api::{AllocatedQuery, AllocatedRange, DiffQuery, DiffRange};
use azekura_base::LayerId;
use tonic::Status;

use super::ranges::Span;
use crate::cluster::{Cluster, told};
use crate::{Outcome, names};

/// A snapshot's volume and name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    volume: String,
    name: String,
}

impl Place {
    fn read(id: &str) -> Outcome<Place> {
        let id = names::snapshot_id(id)?;
        let (volume, name) = names::parts(id).ok_or_else(|| absent(id))?;
        Ok(Place { volume: volume.to_owned(), name: name.to_owned() })
    }

    fn id(&self) -> String {
        names::id_of(&self.volume, &self.name)
    }

    fn names(&self) -> [String; 2] {
        [self.volume.clone(), self.name.clone()]
    }

    /// Its size, if it is there.
    fn size_bytes(&self, cluster: &Cluster) -> Outcome<u64> {
        let found = cluster.snapshot(&self.volume, &self.name)?;
        Ok(found.ok_or_else(|| absent(&self.id()))?.size_bytes)
    }

    /// The cluster has answered about this snapshot, and not about another one that a time names.
    fn is(&self, told: &str) -> Outcome<()> {
        if told == self.id() {
            return Ok(());
        }
        Err(Status::aborted(format!("snapshot '{}' was deleted while it was told", self.id())))
    }
}

fn absent(id: &str) -> Status {
    Status::not_found(format!("there is no snapshot '{id}': without it, copy everything"))
}

/// What is asked: what a snapshot has, or what it has differently from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    base: Option<Place>,
    target: Place,
}

/// The layers that a page was about; the next one must be about the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    base: Option<LayerId>,
    target: LayerId,
}

/// A page of an answer.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) size_bytes: u64,
    pub(super) spans: Vec<Span>,
    /// Where the next page begins, bytes.
    pub(super) next: Option<u64>,
    pub(super) layers: Layers,
}

impl Question {
    pub(super) fn allocated(snapshot_id: &str) -> Outcome<Question> {
        Ok(Question { base: None, target: Place::read(snapshot_id)? })
    }

    pub(super) fn delta(base_id: &str, target_id: &str) -> Outcome<Question> {
        Ok(Question { base: Some(Place::read(base_id)?), target: Place::read(target_id)? })
    }

    /// The snapshot that is told of.
    pub(super) fn about(&self) -> String {
        self.target.id()
    }

    /// The first page, if the snapshots are there and `start` lies in the volume.
    pub(super) fn begin(self, cluster: &Cluster, start: u64, first_chunk: u64) -> Outcome<(Question, Page)> {
        if let Some(base) = &self.base {
            base.size_bytes(cluster)?;
        }
        let size_bytes = self.target.size_bytes(cluster)?;
        if start > size_bytes {
            return Err(Status::out_of_range(format!(
                "starting_offset {start} lies behind the end of '{}', which has {size_bytes} bytes",
                self.about()
            )));
        }
        let page = self.page(cluster, first_chunk, None)?;
        Ok((self, page))
    }

    /// A page from a chunk's first byte on. `layers`: those of the page before.
    pub(super) fn page(&self, cluster: &Cluster, offset_bytes: u64, layers: Option<Layers>) -> Outcome<Page> {
        match &self.base {
            None => self.page_allocated(cluster, offset_bytes, layers),
            Some(base) => self.page_changed(cluster, base, offset_bytes, layers),
        }
    }

    fn page_allocated(&self, cluster: &Cluster, offset_bytes: u64, layers: Option<Layers>) -> Outcome<Page> {
        let query = AllocatedQuery { offset_bytes, layer: layers.map(|layers| layers.target) };
        let answer = cluster.ask::<SnapshotAllocated>(self.target.names(), &query)?;
        let page = answer.map_err(|error| told(&format!("listing the data of '{}'", self.about()), &error))?;
        self.target.is(&page.snapshot)?;
        let span = |range: AllocatedRange| Span::new(range.offset_bytes, range.length_bytes);
        Ok(Page {
            size_bytes: page.size_bytes,
            spans: page.ranges.into_iter().map(span).collect(),
            next: page.next_offset_bytes,
            layers: Layers { base: None, target: LayerId(page.layer) },
        })
    }

    fn page_changed(
        &self,
        cluster: &Cluster,
        base: &Place,
        offset_bytes: u64,
        layers: Option<Layers>,
    ) -> Outcome<Page> {
        let query = DiffQuery {
            to: Some(self.target.name.clone()),
            to_volume: Some(self.target.volume.clone()),
            offset_bytes,
            from_layer: layers.and_then(|layers| layers.base),
            to_layer: layers.map(|layers| layers.target),
        };
        let doing = || format!("comparing '{}' with '{}'", base.id(), self.about());
        let answer = cluster.ask::<SnapshotDiff>(base.names(), &query)?;
        let page = answer.map_err(|error| told(&doing(), &error))?;
        base.is(&page.from)?;
        self.target.is(&page.to)?;
        // What has become zeros has changed as well.
        let span = |range: DiffRange| Span::new(range.offset_bytes, range.length_bytes);
        Ok(Page {
            size_bytes: page.size_bytes,
            spans: page.ranges.into_iter().map(span).collect(),
            next: page.next_offset_bytes,
            layers: Layers { base: Some(LayerId(page.from_layer)), target: LayerId(page.to_layer) },
        })
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn ids_that_can_be_no_snapshots() {
        assert_eq!(Question::allocated("").unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(Question::allocated("v").unwrap_err().code(), Code::NotFound);
        assert_eq!(Question::delta("v@a", "").unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(Question::delta("v@", "v@b").unwrap_err().code(), Code::NotFound);
        assert_eq!(Question::delta("v@a", "v@b").unwrap().about(), "v@b");
    }
}
