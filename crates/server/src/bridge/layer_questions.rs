//! Questions about layers: between the control plane and the data plane.

use crate::driver::commands::{Asker, Command, LayerQuestion};
use crate::driver::messages::{Handle, Handles};
use azekura_base::{CompareLayers, Differences, MeasureLayer, Measured, NotTold};
use azekura_node::Node;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Chunks that are compared for one answer, and leaves that are looked at for one, whatever another node asks for.
const CHUNKS_MAX: u32 = 1024;
const LEAVES_MAX: u32 = 16_384;

/// Asks the data plane what two layers show differently: the shard that has the group's primary tells.
pub async fn compare(shards: &Handles, asked: CompareLayers) -> Result<Differences, NotTold> {
    ask(shards, |asker| LayerQuestion::Compare(asked, asker)).await
}

/// Asks the data plane what the end of a layer would give back: the shard that has the device tells.
pub async fn measure(shards: &Handles, asked: MeasureLayer) -> Result<Measured, NotTold> {
    ask(shards, |asker| LayerQuestion::Measure(asked, asker)).await
}

/// Asks all shards; those that can't know refer to a later moment.
async fn ask<T>(shards: &Handles, question: impl Fn(Asker<T>) -> LayerQuestion) -> Result<T, NotTold> {
    let put = |shard: &Handle| {
        let (asker, answer) = oneshot::channel();
        shard.send(Command::AskOfLayers(question(asker)));
        answer
    };
    let answers: Vec<oneshot::Receiver<Result<T, NotTold>>> = shards.all().map(put).collect();
    let mut found = Err(NotTold::Later);
    for answer in answers {
        match answer.await.unwrap_or(Err(NotTold::Later)) {
            Err(NotTold::Later) => {}
            answer => found = answer,
        }
    }
    found
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
