//! The client against both servers: every test here runs with the embedded server and with a real etcd process.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Server;
use azekura_base::{DeviceId, Epoch, LayerId, NodeId, PeerKey, PgId, Shard};
use azekura_meta::client::{EtcdClient, Txn};
use azekura_meta::cluster::{CasOutcome, ClassSpec, DeviceSpec, MetaClient, NodeSpec};
use azekura_model::transitions::groups::NewGroup;
use azekura_model::transitions::layers;
use azekura_model::transitions::volumes::{VolumeDeletion, VolumeSpec};
use azekura_model::{
    DeviceFailure, Endpoint, EtcdError, FailureDomain, FailureKind, Kind, LayerState, MetaError, Model, NodeRecord,
    SettingsRecord, VolumeAccess,
};

const GIB: u64 = 1 << 30;

async fn connect(server: &Server) -> MetaClient {
    MetaClient::connect(vec![server.endpoint()]).await.unwrap()
}

async fn remove_layer(client: &MetaClient, layer: LayerId) {
    client.run_known("removing", &client.model(), |records| layers::remove_layer(records, layer)).await.unwrap();
}

fn node(name: &str) -> NodeSpec {
    NodeSpec {
        incarnation: 1,
        uuid: format!("uuid-of-{name}"),
        name: name.to_owned(),
        data_address: "127.0.0.1:7181".parse().unwrap(),
        api_address: "127.0.0.1:7180".parse().unwrap(),
        endpoints: vec![Endpoint::new(Endpoint::NBD, "127.0.0.1:10809".to_owned())],
        site: String::new(),
        rack: String::new(),
        shards: NonZeroU8::MIN,
        key: PeerKey::unproved(name),
        api_tls: false,
    }
}

fn device(name: &str, node: NodeId) -> DeviceSpec {
    let uuid = format!("uuid-of-{name}");
    DeviceSpec { uuid, node, shard: Shard(0), name: name.to_owned(), capacity_bytes: 10 * GIB, usable_bytes: 10 * GIB }
}

fn volume(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        name: name.to_owned(),
        size_bytes,
        class: "c".to_owned(),
        access: VolumeAccess::Exclusive,
        key: None,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        limits: None,
    }
}

/// A class "c" of two copies with groups on two devices of 10 GiB.
async fn prepare(client: &MetaClient) {
    for name in ["n1", "n2"] {
        let id = client.register_node(&node(name)).await.unwrap().id;
        client.register_device(&device(&format!("{name}-d"), id)).await.unwrap();
    }
    client.create_class(&ClassSpec::new("c", 2)).await.unwrap();
    client.create_groups("c", 8, on_both).await.unwrap();
}

fn on_both(model: &Model, _: &azekura_model::ClassRecord, count: u32) -> Result<Vec<NewGroup>, MetaError> {
    let members: Vec<DeviceId> = model.devices.keys().copied().collect();
    Ok((0..count as usize)
        .map(|i| NewGroup { primary: members[i % members.len()], members: members.clone() })
        .collect())
}

/// Waits until the model is as wanted.
async fn until(client: &MetaClient, wanted: impl FnMut(&Arc<Model>) -> bool) -> Arc<Model> {
    let mut model = client.watch_model();
    let reached = tokio::time::timeout(Duration::from_secs(30), model.wait_for(wanted)).await;
    Arc::clone(&reached.expect("the model gets there").unwrap())
}

async fn identity(server: &mut Server) {
    let client = connect(server).await;
    assert_eq!(client.cluster_identity().await.unwrap(), None);
    let missing =
        client.ensure_cluster("lab", SettingsRecord::default(), Some("00000000000000000000000000000001")).await;
    assert!(matches!(missing, Err(MetaError::ClusterMissing { .. })));
    let other = connect(server).await;
    let (a, b) = tokio::join!(
        client.ensure_cluster("lab", SettingsRecord::default(), None),
        other.ensure_cluster("lab", SettingsRecord::default(), None)
    );
    let cluster = a.unwrap();
    assert_eq!(cluster.id, b.unwrap().id, "two first nodes make one cluster");
    assert!(cluster.number().is_some());
    assert_eq!(client.cluster_identity().await.unwrap().unwrap(), cluster);
    assert!(client.ensure_cluster("lab", SettingsRecord::default(), Some(&cluster.id)).await.is_ok());
    let wrong = client
        .ensure_cluster("lab", SettingsRecord::default(), Some("00000000000000000000000000000001"))
        .await
        .unwrap_err();
    assert!(matches!(wrong, MetaError::WrongCluster { .. }) && wrong.hint().is_some(), "{wrong}");
}

async fn members(server: &mut Server) {
    let client = connect(server).await;
    let first = client.register_node(&node("n1")).await.unwrap();
    assert_eq!(first.id, NodeId(1));
    let again = client.register_node(&node("n1")).await.unwrap();
    assert_eq!((again.id, first.incarnation, again.incarnation), (first.id, 1, 2), "its data folder was put back");
    let later = client.register_node(&NodeSpec { incarnation: 9, ..node("n1") }).await.unwrap();
    assert_eq!(later, NodeRecord { incarnation: 9, ..first.clone() });
    let mut moved = node("n1");
    moved.data_address = "127.0.0.1:9999".parse().unwrap();
    let again = client.register_node(&moved).await.unwrap();
    assert_eq!((again.id, again.data_address), (first.id, moved.data_address));
    let mut impostor = node("n1");
    impostor.uuid = "another".to_owned();
    assert!(matches!(client.register_node(&impostor).await, Err(MetaError::NameTaken { kind: Kind::Node, .. })));
    // Many at once, from several clients: ids are unique and without gaps.
    let mut tasks = Vec::new();
    for worker in 0..3 {
        let client = connect(server).await;
        tasks.push(tokio::spawn(async move {
            for number in 0..5 {
                let name = format!("d{worker}-{number}");
                client.register_device(&device(&name, NodeId(1))).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let model = until(&client, |model| model.devices.len() == 15).await;
    let ids: Vec<u32> = model.devices.keys().map(|id| id.0).collect();
    assert_eq!(ids, (1..=15).collect::<Vec<_>>());
    assert_eq!(model.counters["devices"], 16);
}

/// A lost device leaves its name to another, at once: the client's own change counts, also before it is told of it.
async fn own_changes_are_no_reason_to_refuse(server: &mut Server) {
    let client = connect(server).await;
    prepare(&client).await;
    let mut lost = client.register_device(&device("old", NodeId(1))).await.unwrap().id;
    for round in 0..20 {
        let failure = DeviceFailure { kind: FailureKind::Lost, reason: "gone".into(), since: String::new() };
        client.note_device_failure(lost, Some(&failure)).await.unwrap();
        let next = DeviceSpec { uuid: format!("uuid-{round}"), ..device("old", NodeId(1)) };
        lost = client.register_device(&next).await.unwrap().id;
    }
}

async fn volumes(server: &mut Server) {
    let client = connect(server).await;
    let missing = client.create_volume(&volume("v", GIB)).await.unwrap_err();
    assert!(matches!(missing, MetaError::NotFound { kind: Kind::Class, .. }), "{missing}");
    client.create_class(&ClassSpec { copies: 17, ..ClassSpec::new("bad", 1) }).await.unwrap_err();
    prepare(&client).await;
    assert!(matches!(
        client.create_class(&ClassSpec::new("c", 2)).await,
        Err(MetaError::Exists { kind: Kind::Class, .. })
    ));
    let made = client.create_volume(&volume("v", GIB)).await.unwrap();
    assert_eq!((made.id.0, made.head, made.access), (1, LayerId(1), VolumeAccess::Exclusive));
    let taken = client.create_volume(&volume("v", GIB)).await.unwrap_err();
    assert!(matches!(taken, MetaError::Exists { kind: Kind::Volume, .. }), "{taken}");
    for bad in [0, 4095, 65 << 40] {
        assert!(matches!(client.create_volume(&volume("w", bad)).await, Err(MetaError::InvalidSize { .. })));
    }
    assert!(matches!(client.create_volume(&volume("a b", GIB)).await, Err(MetaError::InvalidName { .. })));
    assert!(matches!(client.create_volume(&volume("a/b", GIB)).await, Err(MetaError::NotFound { .. })));
    // 20 GiB of devices, ratio 4, 2 copies: volumes up to 40 GiB, of which 1 is taken.
    let model = until(&client, |model| model.volumes.contains_key("v")).await;
    assert_eq!(model.layers[&LayerId(1)].state, LayerState::Head);
    assert_eq!(model.group_of(&model.volumes["v"], azekura_base::ChunkIndex(7)), Some(PgId(1)));
    let too_much = client.create_volume(&volume("w", 40 * GIB)).await.unwrap_err();
    assert!(too_much.to_string().contains("already promise 2GiB of the 80GiB"), "{too_much}");
    client.create_volume(&volume("w", 39 * GIB)).await.unwrap();
    assert!(matches!(client.resize_volume("v", 2 * GIB).await, Err(MetaError::Overcommit { .. })));
    client.delete_volume("w", &VolumeDeletion::default()).await.unwrap();
    assert!(matches!(
        client.delete_volume("w", &VolumeDeletion::default()).await,
        Err(MetaError::NotFound { kind: Kind::Volume, .. })
    ));
    let model = until(&client, |model| model.layers[&LayerId(2)].state == LayerState::Deleted).await;
    assert!(model.ended_layers().is_empty());
    assert_eq!(client.resize_volume("v", 2 * GIB).await.unwrap().size_bytes, 2 * GIB);
    assert_eq!(client.resize_volume("v", 2 * GIB).await.unwrap().size_bytes, 2 * GIB);
    assert!(matches!(client.resize_volume("v", GIB).await, Err(MetaError::ShrinkRefused { .. })));
    assert!(matches!(client.resize_volume("x", GIB).await, Err(MetaError::NotFound { .. })));
    // Both devices drop the deleted layer; then its record may go.
    client.confirm_layer_gone(LayerId(2), DeviceId(1)).await.unwrap();
    remove_layer(&client, LayerId(1)).await;
    client.confirm_layer_gone(LayerId(2), DeviceId(2)).await.unwrap();
    let model = until(&client, |model| model.ended_layers() == [LayerId(2)]).await;
    assert!(model.layers.contains_key(&LayerId(1)), "a head is not removed");
    remove_layer(&client, LayerId(2)).await;
    client.confirm_layer_gone(LayerId(2), DeviceId(1)).await.unwrap();
    until(&client, |model| !model.layers.contains_key(&LayerId(2)) && model.dropped.is_empty()).await;
    // Ids are never used again.
    assert_eq!(client.create_volume(&volume("w", GIB)).await.unwrap().head, LayerId(3));
}

async fn races(server: &mut Server) {
    let client = connect(server).await;
    prepare(&client).await;
    let mut tasks = Vec::new();
    for worker in 0..4 {
        let client = connect(server).await;
        tasks.push(tokio::spawn(async move {
            let mut made = 0;
            for number in 0..6 {
                // Half of the names are wanted by everybody. 39 × 1 GiB and more are allowed: none is refused for
                // space.
                let name = if number % 2 == 0 { format!("shared{number}") } else { format!("own{worker}-{number}") };
                match client.create_volume(&volume(&name, GIB)).await {
                    Ok(_) => made += 1,
                    Err(MetaError::Exists { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            made
        }));
    }
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap();
    }
    assert_eq!(made, 3 + 4 * 3);
    let model = until(&client, |model| model.volumes.len() == 15).await;
    let mut ids: Vec<u64> = model.volumes.values().map(|volume| volume.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=15).collect::<Vec<_>>());
    assert_eq!(model.layers.len(), 15);
    // The last GiB of the limit goes to one of them only: 15 + 24 + 1 = 40.
    client.create_volume(&volume("big", 24 * GIB)).await.unwrap();
    let other = connect(server).await;
    let (one, two) = (volume("last1", GIB), volume("last2", GIB));
    let (one, two) = tokio::join!(client.create_volume(&one), other.create_volume(&two));
    assert_eq!(u32::from(one.is_ok()) + u32::from(two.is_ok()), 1);
    // A group's record has one winner an epoch.
    let model = until(&client, |model| !model.groups.is_empty()).await;
    let group = &model.groups[&PgId(1)];
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (client, mut wanted, revision) = (other.clone(), group.record.clone(), group.mod_revision);
        wanted.epoch = Epoch(2);
        wanted.primary = DeviceId(2);
        tasks.push(tokio::spawn(async move { client.update_group(&wanted, revision).await.unwrap() }));
    }
    let mut winners = 0;
    for task in tasks {
        match task.await.unwrap() {
            CasOutcome::Updated { mod_revision } => {
                assert!(mod_revision > group.mod_revision);
                winners += 1;
            }
            CasOutcome::Conflict { current } => assert_eq!(current.unwrap().epoch, Epoch(2)),
        }
    }
    assert_eq!(winners, 1);
    until(&client, |model| model.groups[&PgId(1)].primary == DeviceId(2)).await;
}

async fn many_groups(server: &mut Server) {
    let client = connect(server).await;
    prepare(&client).await;
    client
        .create_class(&ClassSpec { failure_domain: FailureDomain::Device, ..ClassSpec::new("wide", 2) })
        .await
        .unwrap();
    let other = connect(server).await;
    // More than one transaction can hold, by two clients at once.
    let (a, b) = tokio::join!(client.create_groups("wide", 300, on_both), other.create_groups("wide", 300, on_both));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.len(), &a), (300, &b));
    // The class names its groups in a change of its own, after theirs.
    let model = until(&client, |model| model.classes.get("wide").is_some_and(|class| !class.groups.is_empty())).await;
    assert_eq!((model.groups.len(), &model.classes["wide"].groups), (308, &a));
    assert_eq!(model.classes["wide"].plan, None);
    assert!(model.groups.values().all(|group| group.in_sync.len() == 2 && group.epoch == Epoch(1)));
    let few = |_: &Model, class: &azekura_model::ClassRecord, _| {
        Err(MetaError::NotEnoughDevices {
            class: class.name.clone(),
            copies: class.copies,
            failure_domain: class.failure_domain,
            found: 2,
        })
    };
    client.create_class(&ClassSpec::new("three", 3)).await.unwrap();
    let refused = client.create_groups("three", 64, few).await.unwrap_err();
    assert!(refused.to_string().contains("3 copies on different hosts") && refused.to_string().contains("on 2 host"));
    assert_eq!(client.model().classes.get("three").and_then(|class| class.plan.clone()), None);
}

async fn watch_survives(server: &mut Server) {
    let client = connect(server).await;
    let writer = connect(server).await;
    writer.register_node(&node("n1")).await.unwrap();
    until(&client, |model| model.nodes.len() == 1).await;
    server.stop().await;
    let mut link = client.watch_link();
    tokio::time::timeout(Duration::from_secs(30), link.wait_for(Option::is_some)).await.unwrap().unwrap();
    assert_eq!(client.model().nodes.len(), 1, "the last model stays");
    server.start().await;
    tokio::time::timeout(Duration::from_secs(30), link.wait_for(Option::is_none)).await.unwrap().unwrap();
    writer.register_node(&node("n2")).await.unwrap();
    until(&client, |model| model.nodes.len() == 2).await;
    // Changes made while nobody watched are seen as well.
    let late = connect(server).await;
    assert_eq!(late.model().nodes.len(), 2);
}

async fn watch_after_compaction(server: &mut Server) {
    let etcd = EtcdClient::new(&[server.endpoint()]).unwrap();
    let mut last = 0;
    for number in 0..5 {
        let txn = Txn::new().put("/azekura/v1/counters/x", number.to_string().into_bytes());
        last = etcd.txn(txn).await.unwrap().header.unwrap().revision;
    }
    let mut watch = etcd.watch_prefix("/azekura/v1/", last - 1).await.unwrap();
    let (events, reached) = watch.next().await.unwrap();
    assert_eq!(events.len() as i64, reached - (last - 1) + 1);
    etcd.compact(last).await.unwrap();
    let ended = match etcd.watch_prefix("/azekura/v1/", 2).await {
        Ok(mut watch) => watch.next().await.unwrap_err(),
        Err(end) => end,
    };
    assert_eq!(ended, azekura_meta::client::WatchEnd::Resync);
    // A server that is behind (it lost its data) makes the client read everything again, too.
    let ahead = etcd.watch_prefix("/azekura/v1/", last + 100).await;
    assert_eq!(ahead.err(), Some(azekura_meta::client::WatchEnd::Resync));
}

async fn many_keys(server: &mut Server) {
    let etcd = EtcdClient::new(&[server.endpoint()]).unwrap();
    for part in 0..45 {
        let mut txn = Txn::new();
        for number in 0..100 {
            txn = txn.put(&format!("/azekura/v1/counters/{:05}", part * 100 + number), b"1".to_vec());
        }
        etcd.txn(txn).await.unwrap();
    }
    let (kvs, revision) = etcd.range_prefix("/azekura/v1/", Duration::from_secs(10)).await.unwrap();
    assert_eq!((kvs.len(), revision), (4500, 46));
    assert!(kvs.windows(2).all(|pair| pair[0].key < pair[1].key));
    let client = connect(server).await;
    assert_eq!(client.model().counters.len(), 4500);
}

async fn life(server: &mut Server) {
    let client = connect(server).await;
    let other = connect(server).await;
    let hold = client.keep_alive(NodeId(1));
    until(&other, |model| model.alive.contains_key(&NodeId(1))).await;
    // Somebody deletes the key: it comes back.
    let etcd = EtcdClient::new(&[server.endpoint()]).unwrap();
    etcd.delete("/azekura/v1/alive/1").await.unwrap();
    until(&other, |model| !model.alive.contains_key(&NodeId(1))).await;
    until(&other, |model| model.alive.contains_key(&NodeId(1))).await;
    // The server goes away and comes back: so does the sign of life.
    server.stop().await;
    server.start().await;
    until(&other, |model| model.alive.contains_key(&NodeId(1))).await;
    hold.release().await;
    until(&other, |model| model.alive.is_empty()).await;
    // Without release (a crash) it ends by itself.
    let hold = client.keep_alive(NodeId(2));
    until(&other, |model| model.alive.contains_key(&NodeId(2))).await;
    drop(hold);
    until(&other, |model| model.alive.is_empty()).await;
}

async fn leadership(server: &mut Server) {
    let (a, b) = (connect(server).await, connect(server).await);
    let first = a.campaign(NodeId(1));
    first.watch().wait_for(|held| *held).await.unwrap();
    let second = b.campaign(NodeId(2));
    let model = until(&b, |model| model.leader.is_some()).await;
    assert_eq!(model.leader.as_ref().unwrap().node, NodeId(1));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(first.is_held() && !second.is_held());
    first.release().await;
    tokio::time::timeout(Duration::from_secs(20), second.watch().wait_for(|held| *held)).await.unwrap().unwrap();
    until(&a, |model| model.leader.as_ref().is_some_and(|leader| leader.node == NodeId(2))).await;
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

with_both_servers!(
    identity,
    members,
    own_changes_are_no_reason_to_refuse,
    volumes,
    races,
    many_groups,
    watch_survives,
    watch_after_compaction,
    many_keys,
    life,
    leadership,
);

#[tokio::test]
async fn a_server_that_is_away_is_a_clear_error() {
    let started = std::time::Instant::now();
    let wait = Duration::from_millis(500);
    let refused = MetaClient::connect_within(vec!["127.0.0.1:1".to_owned()], wait).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(matches!(refused, MetaError::Etcd(EtcdError::Unreachable { .. })));
    assert!(refused.to_string().contains("http://127.0.0.1:1") && refused.to_string().contains("refused"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_endpoint_takes_over() {
    let server = Server::embedded().await;
    let client = MetaClient::connect(vec!["127.0.0.1:1".to_owned(), server.endpoint()]).await.unwrap();
    client.ensure_cluster("lab", SettingsRecord::default(), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_endpoint_takes_over_from_one_that_is_silent() {
    let server = Server::embedded().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoints = vec![silent.local_addr().unwrap().to_string(), server.endpoint()];
    let client = MetaClient::connect(endpoints).await.unwrap();
    client.ensure_cluster("lab", SettingsRecord::default(), None).await.unwrap();
}
