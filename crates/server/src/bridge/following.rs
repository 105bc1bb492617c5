//! The configuration, as the data plane and the devices' folders are told of it.

use crate::bridge::holdings::Parents;
use crate::disk::layers_file::{self, Note};
use crate::disk::seen::Memory;
use crate::driver::dataplane::{self, Handle};
use azekura_meta::MetaClient;
use azekura_model::MetaError;
use azekura_node::ClusterView;
use std::path::PathBuf;
use tokio::sync::watch;

/// The tree of layers as the devices' folders have it.
pub(crate) fn known_parents(folders: &[PathBuf]) -> Parents {
    let mut parents = Parents::new();
    for folder in folders {
        match layers_file::read(folder) {
            Ok(known) => parents.extend(known),
            Err(error) => tracing::warn!("the layers of {} can't be read: {error}", folder.display()),
        }
    }
    parents
}

/// Passes every change of the configuration on to the data plane, and that of layers to the devices' folders before.
/// What was seen is noted first. Ends when the configuration can't be believed any more.
pub(crate) async fn follow_model(
    client: MetaClient,
    handle: Handle,
    told: watch::Sender<u64>,
    folders: Vec<PathBuf>,
    known: Parents,
    mut memory: Memory,
) -> MetaError {
    let mut models = client.watch_model();
    let mut views = azekura_node::Views::default();
    let mut notes: Vec<Note> = folders.into_iter().map(Note::new).collect();
    let mut last: Option<ClusterView> = None;
    loop {
        let model = models.borrow_and_update().clone();
        if let Err(error) = memory.follow(&client, &model).await {
            return error;
        }
        let mut view = views.of(&model);
        if model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some()) {
            // What a device holds of layers that the restored configuration does not know lies on others all the same.
            let unknown = known.iter().filter(|(layer, _)| !model.layers.contains_key(layer));
            view.parents.extend(unknown.map(|(layer, parent)| (*layer, *parent)));
        }
        let revision = std::mem::take(&mut view.revision);
        for note in &mut notes {
            note.keep(&view.parents).await;
        }
        if last.as_ref() == Some(&view) {
            handle.send(dataplane::Command::Known(revision));
        } else {
            last = Some(view.clone());
            handle.send(dataplane::Command::Configure(Box::new(ClusterView { revision, ..view })));
        }
        told.send_replace(revision);
        if models.changed().await.is_err() {
            return MetaError::Interrupted { reason: "the configuration is not followed any more".to_owned() };
        }
    }
}
