//! Snapshots in the configuration, with the embedded server and with a real etcd process: cuts, clones, reverts, and
//! what becomes of layers that nothing names any more.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Server;
use azekura_base::{DeviceId, LayerId, NodeId, PeerKey, Shard};
use azekura_meta::cluster::{ClassSpec, DeviceSpec, MetaClient, NodeSpec};
use azekura_model::transitions::attachments::AttachRequest;
use azekura_model::transitions::cuts::VolumeCut;
use azekura_model::transitions::groups::NewGroup;
use azekura_model::transitions::layers;
use azekura_model::transitions::snapshots::CloneSpec;
use azekura_model::transitions::volumes::{VolumeDeletion, VolumeSpec};
use azekura_model::{
    Ending, Kind, LayerEnd, LayerHolders, LayerState, MetaError, Model, ProtectionRecord, SnapshotOrigin,
    SnapshotRecord, VolumeAccess, VolumeRecord,
};

const GIB: u64 = 1 << 30;

/// A client, with two nodes, a class of two copies and these volumes of 1 GiB.
async fn prepare(server: &Server, volumes: &[&str]) -> MetaClient {
    let client = MetaClient::connect(vec![server.endpoint()]).await.unwrap();
    for name in ["n1", "n2"] {
        let spec = NodeSpec {
            incarnation: 1,
            uuid: name.to_owned(),
            name: name.to_owned(),
            data_address: "127.0.0.1:7181".parse().unwrap(),
            api_address: "127.0.0.1:7180".parse().unwrap(),
            endpoints: Vec::new(),
            site: String::new(),
            rack: String::new(),
            shards: NonZeroU8::MIN,
            key: PeerKey::unproved(name),
            api_tls: false,
        };
        let node = client.register_node(&spec).await.unwrap().id;
        let (uuid, shard) = (name.to_owned(), Shard(0));
        let spec =
            DeviceSpec { uuid, node, shard, name: "d".to_owned(), capacity_bytes: 10 * GIB, usable_bytes: 10 * GIB };
        client.register_device(&spec).await.unwrap();
    }
    client.create_class(&ClassSpec::new("c", 2)).await.unwrap();
    let on_both = |model: &Model, _: &azekura_model::ClassRecord, count: u32| {
        let members: Vec<DeviceId> = model.devices.keys().copied().collect();
        Ok(vec![NewGroup { primary: members[0], members }; count as usize])
    };
    client.create_groups("c", 4, on_both).await.unwrap();
    for name in volumes {
        let spec = VolumeSpec {
            name: (*name).to_owned(),
            size_bytes: GIB,
            class: "c".to_owned(),
            access: VolumeAccess::Exclusive,
            key: None,
            logical_block: azekura_base::LogicalBlock::Bytes512,
            limits: None,
        };
        client.create_volume(&spec).await.unwrap();
    }
    client
}

async fn cut(client: &MetaClient, id: &str, wishes: &[VolumeCut]) -> Result<Vec<SnapshotRecord>, MetaError> {
    let cut = client.begin_cut(id, NodeId(1), wishes).await?;
    client.finish_cut(&cut).await.map(|done| done.snapshots)
}

fn of(volume: &str, snapshot: &str) -> VolumeCut {
    VolumeCut::snapshot(volume, snapshot, SnapshotOrigin::Person)
}

async fn now(client: &MetaClient) -> Arc<Model> {
    client.model_of_snapshots().await.unwrap()
}

fn volume(model: &Model, name: &str) -> VolumeRecord {
    model.volumes[name].record.clone()
}

fn layer(model: &Model, id: u64) -> (LayerState, Option<u64>) {
    let layer = &model.layers[&LayerId(id)];
    (layer.state, layer.parent.map(|parent| parent.0))
}

/// Begins the end of a layer as it was planned from a model.
async fn begin_layer_end(client: &MetaClient, model: &Model, layer: LayerId, end: LayerEnd) {
    let txn = layers::begin_layer_end(model, layer, end).unwrap();
    client.run_known("ending", model, |records| records.unless_overtaken(txn.clone())).await.unwrap();
}

async fn remove_layer(client: &MetaClient, layer: LayerId) {
    client.run_known("removing", &client.model(), |records| layers::remove_layer(records, layer)).await.unwrap();
}

/// What the leader does until nothing is left to do, with devices that do as they are told.
async fn settle_layers(client: &MetaClient) -> Arc<Model> {
    loop {
        let model = now(client).await;
        let ends = model.layers_to_end();
        for (layer, end) in &ends {
            begin_layer_end(client, &model, *layer, *end).await;
        }
        let holders = LayerHolders::new(&model);
        let mut busy = !ends.is_empty();
        for (layer, open) in model.ending_layers(&holders) {
            for device in open {
                client.confirm_layer_gone(layer.id, device).await.unwrap();
            }
            remove_layer(client, layer.id).await;
            busy = true;
        }
        if !busy {
            return model;
        }
        // Layers have no counter: give the watch a moment.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn cuts(server: &mut Server) {
    let client = prepare(server, &["a", "b"]).await;
    let begun = client.begin_cut("x", NodeId(1), &[of("a", "s"), of("b", "s")]).await.unwrap();
    assert_eq!(client.begin_cut("x", NodeId(1), &[of("a", "s"), of("b", "s")]).await.unwrap().volumes, begun.volumes);
    let model = client.model_at(begun.revision).await.unwrap();
    assert_eq!(volume(&model, "a").cut.unwrap().next, LayerId(3));
    assert_eq!((layer(&model, 1), layer(&model, 3)), ((LayerState::Head, None), (LayerState::Next, Some(1))));
    let done = client.finish_cut(&begun).await.unwrap();
    let again = client.finish_cut(&begun).await.unwrap();
    assert_eq!(done.snapshots, again.snapshots, "a lost answer is made up for");
    let model = client.model_at(done.revision).await.unwrap();
    for (name, old, new) in [("a", 1, 3), ("b", 2, 4)] {
        let volume = volume(&model, name);
        assert!(volume.head == LayerId(new) && volume.cut.is_none());
        assert_eq!((layer(&model, old).0, layer(&model, new)), (LayerState::Frozen, (LayerState::Head, Some(old))));
        let snapshot = &model.snapshots[&(volume.id, "s".to_owned())];
        assert_eq!((snapshot.layer, snapshot.size_bytes, &snapshot.cut[..]), (LayerId(old), GIB, "x"));
    }
    // A name is taken once; what can't be finished leaves nothing behind.
    let begun = client.begin_cut("y", NodeId(1), &[of("a", "t"), of("b", "s")]).await.unwrap();
    assert!(matches!(client.finish_cut(&begun).await, Err(MetaError::Exists { kind: Kind::Snapshot, .. })));
    let names = ["a".to_owned(), "b".to_owned()];
    client.call_off_cut("another", &names).await.unwrap();
    assert!(volume(&*now(&client).await, "a").cut.is_some());
    client.call_off_cut("y", &names).await.unwrap();
    client.call_off_cut("y", &names).await.unwrap();
    client.finish_cut(&begun).await.unwrap_err();
    let model = client.model_of_volumes().await.unwrap();
    assert!(model.snapshots_of(volume(&model, "a").id).count() == 1);
    let begun = client.begin_cut("z", NodeId(1), &[of("a", "u")]).await.unwrap();
    client.call_off_cut("z", &names).await.unwrap();
    assert!(matches!(client.finish_cut(&begun).await, Err(MetaError::CutEnded { .. })));
    for bad in [of("a", "x/y"), of("none", "s")] {
        client.begin_cut("w", NodeId(1), &[bad]).await.unwrap_err();
    }
    // One that is under way holds the next one up.
    let first = client.begin_cut("p", NodeId(1), &[of("a", "p")]).await.unwrap();
    let later = [of("a", "q")];
    let (second, _) = tokio::join!(cut(&client, "q", &later), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.finish_cut(&first).await.unwrap()
    });
    assert_eq!(second.unwrap()[0].name, "q");
}

async fn reverts_and_clones(server: &mut Server) {
    let client = prepare(server, &["v"]).await;
    cut(&client, "1", &[of("v", "monday")]).await.unwrap();
    client.resize_volume("v", 2 * GIB).await.unwrap();
    let back = VolumeCut { back_to: Some("monday".into()), unattached: true, ..of("v", "before") };
    // Somebody who has it is in the way.
    let wish = AttachRequest { shared: Some(false), ..AttachRequest::of_node(NodeId(1), Some(7)) };
    let free = |what| panic!("{what:?} is in the way");
    let attached = client.attach("v", &wish, &BTreeSet::new(), "", free).await.unwrap().attachments;
    let begun = client.begin_cut("2", NodeId(1), std::slice::from_ref(&back)).await.unwrap();
    assert!(matches!(client.finish_cut(&begun).await, Err(MetaError::InUse { .. })));
    client.call_off_cut("2", &["v".to_owned()]).await.unwrap();
    let generation = attached.of(NodeId(1), None).unwrap().generation;
    client.give_back("v", NodeId(1), generation).await.unwrap();
    let kept = cut(&client, "3", std::slice::from_ref(&back)).await.unwrap();
    assert_eq!((kept[0].layer, kept[0].size_bytes), (LayerId(2), 2 * GIB));
    let model = now(&client).await;
    assert_eq!(volume(&model, "v").size_bytes, GIB, "it has the size of then");
    let head = volume(&model, "v").head;
    assert_eq!(layer(&model, head.0), (LayerState::Head, Some(1)));
    // A clone has its source's place in the groups, and outlives it.
    let spec = |name: &str, size_bytes| CloneSpec {
        volume: "v".to_owned(),
        snapshot: "monday".to_owned(),
        name: name.to_owned(),
        size_bytes,
        access: None,
        key: None,
    };
    let clone = client.clone_snapshot(&spec("c", None)).await.unwrap();
    assert_eq!((clone.size_bytes, clone.source.as_deref()), (GIB, Some("v@monday")));
    assert_eq!(clone.group_offset, volume(&model, "v").group_offset);
    assert!(matches!(client.clone_snapshot(&spec("c", None)).await, Err(MetaError::Exists { .. })));
    assert!(matches!(client.clone_snapshot(&spec("d", Some(4096))).await, Err(MetaError::ShrinkRefused { .. })));
    assert_eq!(client.clone_snapshot(&spec("d", Some(3 * GIB))).await.unwrap().size_bytes, 3 * GIB);
    let none = CloneSpec { snapshot: "tuesday".to_owned(), ..spec("e", None) };
    assert!(matches!(client.clone_snapshot(&none).await, Err(MetaError::NotFound { kind: Kind::Snapshot, .. })));
    let refused = client.delete_volume("v", &VolumeDeletion::default()).await.unwrap_err();
    assert!(matches!(refused, MetaError::HasSnapshots { count: 2, .. }), "{refused}");
    client.delete_volume("v", &VolumeDeletion { snapshots: true, ..VolumeDeletion::default() }).await.unwrap();
    let model = now(&client).await;
    assert!(!model.volumes.contains_key("v") && model.volumes.contains_key("c"));
    // The leader deletes what is left of it.
    for snapshot in model.snapshots.values() {
        assert!(client.delete_snapshot(snapshot.volume, &snapshot.name).await.unwrap());
        assert!(!client.delete_snapshot(snapshot.volume, &snapshot.name).await.unwrap());
    }
    let model = settle_layers(&client).await;
    let left: Vec<u64> = model.layers.keys().map(|layer| layer.0).collect();
    let expected = [1, volume(&model, "c").head.0, volume(&model, "d").head.0];
    assert_eq!(left, expected, "the layer that two clones stand on stays, hidden");
    assert_eq!(layer(&model, 1), (LayerState::Hidden, None));
    client.delete_volume("d", &VolumeDeletion::default()).await.unwrap();
    client.model_of_volumes().await.unwrap();
    let model = settle_layers(&client).await;
    assert_eq!(model.layers.len(), 1, "{:?}", model.layers.keys());
    assert_eq!(layer(&model, volume(&model, "c").head.0), (LayerState::Head, None));
}

async fn layers_end_in_any_order(server: &mut Server) {
    let client = prepare(server, &["v"]).await;
    for name in ["1", "2", "3", "4"] {
        cut(&client, name, &[of("v", name)]).await.unwrap();
    }
    let id = volume(&*now(&client).await, "v").id;
    // Layers 1 to 4 are frozen, 5 is the head.
    client.delete_snapshot(id, "2").await.unwrap();
    client.delete_snapshot(id, "3").await.unwrap();
    let model = now(&client).await;
    let first = model.layers_to_end();
    assert_eq!(first, [(LayerId(2), LayerEnd::MergeInto(LayerId(3)))], "one at a time at each place");
    begin_layer_end(&client, &model, LayerId(2), LayerEnd::MergeInto(LayerId(3))).await;
    // What was decided on an older model does not happen.
    client.delete_snapshot(id, "4").await.unwrap();
    let model = now(&client).await;
    assert_eq!(layer(&model, 2).0, LayerState::Merging);
    assert_eq!(model.layers_to_end(), [(LayerId(4), LayerEnd::MergeInto(LayerId(5)))]);
    let begun = client.begin_cut("5", NodeId(1), &[of("v", "5")]).await.unwrap();
    client.finish_cut(&begun).await.unwrap();
    begin_layer_end(&client, &model, LayerId(4), LayerEnd::MergeInto(LayerId(5))).await;
    let model = now(&client).await;
    assert_eq!(layer(&model, 4).0, LayerState::Hidden, "the layer on top was changed since");
    client.confirm_layer_gone(LayerId(2), DeviceId(1)).await.unwrap();
    client.confirm_layer_gone(LayerId(4), DeviceId(1)).await.unwrap();
    let model = now(&client).await;
    let holders = LayerHolders::new(&model);
    let open: Vec<_> = model.ending_layers(&holders).map(|(layer, open)| (layer.id.0, open)).collect();
    assert_eq!(open, [(2, [DeviceId(2)].into())]);
    let model = settle_layers(&client).await;
    assert_eq!(model.layers.keys().map(|layer| layer.0).collect::<Vec<_>>(), [1, 5, 6]);
    assert_eq!((layer(&model, 5), layer(&model, 6)), ((LayerState::Frozen, Some(1)), (LayerState::Head, Some(5))));
    // The volume goes while something is merged into its head: the head is dropped only after that.
    client.delete_snapshot(id, "5").await.unwrap();
    let model = now(&client).await;
    begin_layer_end(&client, &model, LayerId(5), LayerEnd::MergeInto(LayerId(6))).await;
    client.delete_volume("v", &VolumeDeletion { snapshots: true, attached: Ending::All }).await.unwrap();
    let model = client.model_of_volumes().await.unwrap();
    let holders = LayerHolders::new(&model);
    assert_eq!(model.ending_layers(&holders).map(|(layer, _)| layer.id.0).collect::<Vec<_>>(), [5]);
    client.delete_snapshot(id, "1").await.unwrap();
    let model = settle_layers(&client).await;
    assert!(model.layers.is_empty() && model.dropped.is_empty() && model.snapshots.is_empty(), "{model:?}");
}

async fn protection(server: &mut Server) {
    let client = prepare(server, &["v"]).await;
    let policy = ProtectionRecord { every_seconds: 10, keep_seconds: 60, then: Vec::new() };
    assert_eq!(client.protect_volume("v", Some(&policy)).await.unwrap().protection, Some(policy.clone()));
    assert_eq!(client.protect_volume("v", Some(&policy)).await.unwrap().protection, Some(policy));
    assert_eq!(client.protect_volume("v", None).await.unwrap().protection, None);
    assert!(matches!(client.protect_volume("w", None).await, Err(MetaError::NotFound { .. })));
}

macro_rules! with_both_servers {
    ($($test:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&mut super::Server::embedded().await).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(mut server) = super::Server::etcd().await {
                    super::$test(&mut server).await;
                }
            })*
        }
    };
}

with_both_servers!(cuts, reverts_and_clones, layers_end_in_any_order, protection);
