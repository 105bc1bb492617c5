//! Questions about layers: between the control plane and the data plane.

use crate::driver::dataplane::{Command, Handle};
use azekura_base::BLOCK_SIZE;
use azekura_control::layers::{CompareLayers, Differences, DifferingBlocks, MeasureLayer, Measured, NotTold};
use azekura_node::{Node, Refusal};
use azekura_store::{ChunkDifference, Comparison, DifferencePage, Measure, MeasuredPage};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Chunks that are compared for one answer, and leaves that are looked at for one, whatever another node asks for.
const CHUNKS_MAX: u32 = 1024;
const LEAVES_MAX: u32 = 16_384;

/// Gets the answer to a question.
type Asker<T> = oneshot::Sender<Result<T, NotTold>>;

/// A question.
pub enum LayerQuestion {
    /// What two layers show differently.
    Compare(CompareLayers, Asker<Differences>),
    /// What the end of a layer would give back.
    Measure(MeasureLayer, Asker<Measured>),
}

/// Asks the data plane what two layers show differently.
pub async fn compare(handle: &Handle, asked: CompareLayers) -> Result<Differences, NotTold> {
    let (asker, answer) = oneshot::channel();
    handle.send(Command::AskOfLayers(LayerQuestion::Compare(asked, asker)));
    answer.await.unwrap_or(Err(NotTold::Later))
}

/// Asks the data plane what the end of a layer would give back.
pub async fn measure(handle: &Handle, asked: MeasureLayer) -> Result<Measured, NotTold> {
    let (asker, answer) = oneshot::channel();
    handle.send(Command::AskOfLayers(LayerQuestion::Measure(asked, asker)));
    answer.await.unwrap_or(Err(NotTold::Later))
}

/// The questions that the node has not answered yet.
#[derive(Default)]
pub struct LayerQuestions {
    asked: u64,
    comparing: BTreeMap<u64, Asker<Differences>>,
    measuring: BTreeMap<u64, Asker<Measured>>,
}

impl LayerQuestions {
    /// Asks the node.
    pub fn ask(&mut self, node: &mut Node, question: LayerQuestion) {
        self.asked += 1;
        match question {
            LayerQuestion::Compare(asked, asker) => {
                self.comparing.insert(self.asked, asker);
                let CompareLayers { revision, pg, from, to, first, end, limit } = asked;
                let limit = limit.clamp(1, CHUNKS_MAX) as usize;
                node.compare_layers(self.asked, revision, Comparison { pg, from, to, first, end, limit });
            }
            LayerQuestion::Measure(asked, asker) => {
                self.measuring.insert(self.asked, asker);
                let MeasureLayer { revision, device, layer, heir, from, leaves_max } = asked;
                let leaves_max = leaves_max.min(LEAVES_MAX) as usize;
                let measure = Measure { layer, heir, from, leaves_max };
                node.measure_layer(self.asked, revision, device, measure);
            }
        }
    }

    /// The node has compared layers. Whoever asked may have given up.
    pub fn compared(&mut self, token: u64, result: Result<DifferencePage, Refusal>) {
        if let Some(asker) = self.comparing.remove(&token) {
            let _ = asker.send(result.map(told).map_err(not_told));
        }
    }

    /// The node has measured a layer. Whoever asked may have given up.
    pub fn measured(&mut self, token: u64, result: Result<MeasuredPage, Refusal>) {
        if let Some(asker) = self.measuring.remove(&token) {
            let told = |page: MeasuredPage| Measured {
                bytes: page.blocks * BLOCK_SIZE as u64,
                next: page.next.map(|chunk| chunk.0),
            };
            let _ = asker.send(result.map(told).map_err(not_told));
        }
    }
}

fn told(page: DifferencePage) -> Differences {
    let chunk = |ChunkDifference { chunk, runs }| {
        let runs = runs.iter().map(|run| DifferingBlocks(run.first.0, run.count, run.data));
        (chunk.0, runs.collect())
    };
    Differences { chunks: page.chunks.into_iter().map(chunk).collect(), next: page.next.map(|chunk| chunk.0) }
}

fn not_told(refusal: Refusal) -> NotTold {
    match refusal {
        Refusal::Later => NotTold::Later,
        Refusal::Gone => NotTold::Gone,
        Refusal::Failed(why) => NotTold::Failed(why),
    }
}
