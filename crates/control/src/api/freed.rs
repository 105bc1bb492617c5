//! What would come back if a snapshot were deleted: every device measures the layers that would end.

use std::time::Duration;

use azekura_base::{ChunkIndex, DeviceId, LayerId, NodeId};
use azekura_model::{LayerHolders, Model};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Api;
use super::layer_questions::ask_to_measure;
use crate::layers::{MeasureLayer, NotTold};
use crate::snapshots::tree::{ends_with, known_since};

/// Leaves of the map that a device looks at for one answer.
const LEAVES_MAX: u32 = 2048;
/// Pause before a device is asked again that could not answer.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What would come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Freed {
    /// Bytes on all devices that have answered.
    pub(super) bytes: u64,
    /// Devices whose part is not in it, or not all of it, and why.
    pub(super) missing: Vec<String>,
}

/// Measures what would come back if the snapshot with this layer were deleted, for as long as `patience`.
pub(super) async fn measure(api: &Api, model: &Model, snapshot: LayerId, patience: Duration) -> Freed {
    let ends = ends_with(model, snapshot);
    let Some(record) = model.layers.get(&snapshot).filter(|_| !ends.is_empty()) else { return Freed::default() };
    let named: Vec<LayerId> =
        ends.iter().flat_map(|(layer, merged_into)| [Some(*layer), *merged_into]).flatten().collect();
    let revision = known_since(model, &named);
    let until = Instant::now() + patience;
    let mut asked = JoinSet::new();
    let mut freed = Freed::default();
    for device in LayerHolders::new(model).of(record) {
        let Some(record) = model.devices.get(device) else { continue };
        let name = model.nodes.get(&record.node).map_or_else(|| record.node.to_string(), |node| node.name.clone());
        let name = format!("{name}/{}", record.name);
        if !model.is_device_alive(*device) {
            freed.missing.push(format!("{name}: it is not served"));
            continue;
        }
        let (api, node, device, ends) = (api.clone(), record.node, *device, ends.clone());
        asked.spawn(async move { (name, measure_device(&api, node, device, &ends, revision, until).await) });
    }
    while let Some(answer) = asked.join_next().await {
        let Ok((name, (bytes, problem))) = answer else {
            freed.missing.push("a device: measuring it broke off".to_owned());
            continue;
        };
        freed.bytes += bytes;
        freed.missing.extend(problem.map(|problem| format!("{name}: {problem}")));
    }
    freed.missing.sort_unstable();
    freed
}

/// Bytes that a device would give back, and what is wrong if they are not all.
async fn measure_device(
    api: &Api,
    node: NodeId,
    device: DeviceId,
    ends: &[(LayerId, Option<LayerId>)],
    revision: u64,
    until: Instant,
) -> (u64, Option<String>) {
    let mut bytes = 0;
    for (layer, merged_into) in ends {
        let mut from = Some(ChunkIndex(0));
        while let Some(chunk) = from {
            if Instant::now() >= until {
                return (bytes, Some("there was not enough time to measure all of it".to_owned()));
            }
            let asked = MeasureLayer {
                revision,
                device,
                layer: *layer,
                merged_into: *merged_into,
                from: chunk,
                leaves_max: LEAVES_MAX,
            };
            match ask_to_measure(api, node, asked).await {
                Ok(Ok(measured)) => {
                    bytes += measured.bytes;
                    from = measured.next.map(ChunkIndex).filter(|next| *next > chunk);
                }
                Ok(Err(NotTold::Later)) => tokio::time::sleep(ASK_AGAIN).await,
                Ok(Err(NotTold::Gone)) => from = None,
                Ok(Err(NotTold::Failed(problem))) | Err(problem) => return (bytes, Some(problem)),
            }
        }
    }
    (bytes, None)
}
