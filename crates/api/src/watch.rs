//! Watching: changes as they happen, as server-sent events (WHATWG HTML, section 9.2).

use azekura_base::Needs;
use serde::{Deserialize, Serialize};

use crate::Answer;

/// The header in which a client that comes again says what it was told last.
pub const LAST_EVENT_HEADER: &str = "last-event-id";
/// The event that begins a whole state: what was told before counts no more. Its data is a [`ResetView`].
pub const RESET_EVENT: &str = "reset";
/// The id of an event of a whole state that is not told to its end yet. Who comes again with it is told the whole
/// state.
pub const NO_POSITION: &str = "0";

/// Query of `GET /v1/watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    /// What to tell of: `volumes`, `nodes`, `jobs`, or several of them with commas between them.
    pub of: String,
    /// Only what has changed since then: the `id` of an event. The header `Last-Event-ID` counts more. If nothing is
    /// said, the whole state is told first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// What can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// Volumes; the data is a `VolumeView`.
    Volumes,
    /// Nodes; the data is a `NodeView` without counters.
    Nodes,
    /// Jobs; the data is a `JobView` without what is at work now.
    Jobs,
}

impl Watched {
    /// All of them.
    pub const ALL: [Watched; 3] = [Watched::Volumes, Watched::Nodes, Watched::Jobs];

    /// As a query has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Watched::Volumes => "volumes",
            Watched::Nodes => "nodes",
            Watched::Jobs => "jobs",
        }
    }

    /// As the name of an event begins.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Watched::Volumes => "volume",
            Watched::Nodes => "node",
            Watched::Jobs => "job",
        }
    }

    /// What whoever watches must be allowed to: as for the list.
    #[must_use]
    pub const fn needs(self) -> Needs {
        match self {
            Watched::Volumes => Needs::SeeVolumes,
            Watched::Nodes | Watched::Jobs => Needs::SeeCluster,
        }
    }

    /// Reads a query's list.
    ///
    /// # Errors
    /// The word that is none of them.
    pub fn list(text: &str) -> Result<Vec<Watched>, String> {
        let read = |word: &str| Watched::ALL.into_iter().find(|kind| kind.word() == word).ok_or(word.to_owned());
        let mut list = text.split(',').map(|word| read(word.trim())).collect::<Result<Vec<_>, _>>()?;
        list.sort_unstable();
        list.dedup();
        Ok(list)
    }
}

/// Data of the event `reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResetView {
    /// The revision of the configuration whose state follows.
    pub revision: i64,
    /// So many things follow, each as one that was created.
    pub things: usize,
}

/// Server-sent events without an end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Events(pub String);

impl Answer for Events {
    const MEDIA_TYPE: Option<&'static str> = Some("text/event-stream");

    fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok(self.0.clone().into_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Events, serde_json::Error> {
        Ok(Events(String::from_utf8_lossy(bytes).into_owned()))
    }
}

/// Appends an event to a stream. `data` has no line ends, as JSON that is not indented.
pub fn write_event(stream: &mut String, id: &str, event: &str, data: &str) {
    debug_assert!(![id, event, data].iter().any(|field| field.contains(['\n', '\r'])), "{event}: {data}");
    for part in ["id: ", id, "\nevent: ", event, "\ndata: ", data, "\n\n"] {
        stream.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(Watched::list("nodes, volumes,nodes"), Ok(vec![Watched::Volumes, Watched::Nodes]));
        for (text, wrong) in [("", ""), ("volumes,", ""), ("volumes,snapshots", "snapshots"), ("Nodes", "Nodes")] {
            assert_eq!(Watched::list(text), Err(wrong.to_owned()), "{text}");
        }
    }
}
