//! Questions about layers: between the control plane and the data plane.

use crate::driver::dataplane::{Command, Handle};
use azekura_base::{CompareLayers, Differences, MeasureLayer, Measured, NotTold};
use azekura_node::Node;
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
                let limit = asked.limit.clamp(1, CHUNKS_MAX);
                node.compare_layers(self.asked, CompareLayers { limit, ..asked });
            }
            LayerQuestion::Measure(asked, asker) => {
                self.measuring.insert(self.asked, asker);
                let leaves_max = asked.leaves_max.min(LEAVES_MAX);
                node.measure_layer(self.asked, MeasureLayer { leaves_max, ..asked });
            }
        }
    }

    /// The node has compared layers. Whoever asked may have given up.
    pub fn compared(&mut self, token: u64, result: Result<Differences, NotTold>) {
        let _ = self.comparing.remove(&token).map(|asker| asker.send(result));
    }

    /// The node has measured a layer. Whoever asked may have given up.
    pub fn measured(&mut self, token: u64, result: Result<Measured, NotTold>) {
        let _ = self.measuring.remove(&token).map(|asker| asker.send(result));
    }
}
