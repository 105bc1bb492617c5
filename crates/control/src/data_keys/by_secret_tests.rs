use azekura_base::{Generation, VolumeId};
use azekura_model::{Key, Memory, Txn};
use serde_json::{Value, json};

use super::*;

/// A key: the cheapest secret.
fn secret(digit: &str) -> SecretText {
    SecretText::new(format!("azekura-key:{}\n", digit.repeat(64)))
}

/// A cluster with a volume `v` of number 3 that is encrypted with the secret of ones, and node 1.
struct Fixture {
    memory: Memory,
    keys: DataKeys,
    id: KeyId,
}

const HERE: azekura_base::NodeId = azekura_base::NodeId(1);

impl Fixture {
    async fn new() -> Fixture {
        let mut memory = Memory::new();
        let cluster = json!({ "id": format!("{:032x}", 7), "name": "c", "created": "" });
        memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
        let keys = DataKeys::new(None);
        let record = keys.draw(memory.model(), Some(&secret("1"))).await.unwrap();
        let volume = json!({ "id": 3, "name": "v", "uuid": "u", "size_bytes": 4096, "class": "c", "created": "",
            "group_offset": 0, "head": 1, "key": record.id.0 });
        let txn = Txn::new().put(&Key::DataKey(record.id).to_string(), &record);
        memory.run(&txn.put(&Key::Volume("v").to_string(), &volume)).unwrap();
        assert!(memory.model().volumes.contains_key("v"), "{:?}", memory.model().problems);
        Fixture { memory, keys, id: record.id }
    }

    /// What a node of this cluster does whenever the configuration changes.
    async fn follow(&self) {
        let model = self.memory.model().clone();
        self.keys.give_back(&model, HERE);
        if let Some(ring) = self.keys.follow(&model).await {
            self.keys.passed_on(&ring);
        }
    }

    /// The secret is brought, while the node follows.
    async fn unlock(&self, secret: &SecretText) -> Result<(), NotOpened> {
        let model = self.memory.model().clone();
        let unlock = self.keys.unlock(&model, self.id, secret);
        tokio::pin!(unlock);
        loop {
            tokio::select! {
                outcome = &mut unlock => return outcome,
                () = self.keys.arrived() => self.follow().await,
            }
        }
    }

    /// Who has the volume, and until when.
    fn attach(&mut self, attachments: &[(u32, bool)]) {
        let one = |(node, pinned): &(u32, bool)| json!({ "node": node, "incarnation": 0, "generation": 1, "shared": false, "pinned": pinned, "since": "" });
        let all: Vec<Value> = attachments.iter().map(one).collect();
        let record = json!({ "volume": 3, "generation": Generation(1), "attachments": all });
        self.memory.run(&Txn::new().put(&Key::Attachments(VolumeId(3)).to_string(), &record)).unwrap();
        assert!(self.memory.model().problems.is_empty(), "{:?}", self.memory.model().problems);
    }

    fn is_open(&self) -> bool {
        matches!(self.keys.state().ring.get(&self.id), Some(Ok(_)))
    }
}

#[tokio::test]
async fn a_key_waits_for_its_secret_and_goes_when_the_volume_is_given_back() {
    let mut fixture = Fixture::new().await;
    fixture.follow().await;
    assert!(!fixture.is_open() && !fixture.keys.any_missing(), "nobody can be asked for it");
    assert!(fixture.keys.needed().is_empty(), "nobody uses it");
    fixture.attach(&[(2, true)]);
    fixture.follow().await;
    assert!(fixture.keys.needed().is_empty(), "nobody uses it here");
    fixture.attach(&[(1, true)]);
    fixture.follow().await;
    let why = fixture.keys.why_missing(fixture.id).unwrap();
    assert!(why.contains("waits for its secret") && why.contains("azekura volume unlock"), "{why}");
    assert_eq!(fixture.keys.needed(), BTreeMap::from([(fixture.id, why)]));
    let wrong = fixture.unlock(&secret("2")).await.unwrap_err();
    assert!(matches!(&wrong, NotOpened::Refused(why) if why.contains("another one than")), "{wrong}");
    assert!(!fixture.is_open());
    fixture.unlock(&secret("1")).await.unwrap();
    assert!(fixture.is_open() && fixture.keys.needed().is_empty());
    assert!(fixture.unlock(&secret("2")).await.is_err(), "also where it is open");
    fixture.unlock(&secret("1")).await.unwrap();
    fixture.follow().await;
    assert!(fixture.is_open());
    fixture.attach(&[(2, true)]);
    fixture.follow().await;
    assert!(!fixture.is_open(), "it was detached by name");
    fixture.attach(&[(1, true)]);
    fixture.follow().await;
    assert!(!fixture.is_open(), "and comes back with a secret alone");
}

#[tokio::test]
async fn a_client_that_goes_gives_nothing_back() {
    let mut fixture = Fixture::new().await;
    fixture.unlock(&secret("1")).await.unwrap();
    for attachments in [&[(1, false)][..], &[], &[(1, false)]] {
        fixture.attach(attachments);
        fixture.follow().await;
        assert!(fixture.is_open(), "{attachments:?}");
    }
    // It comes before somebody attaches the volume by name.
    fixture.attach(&[]);
    fixture.unlock(&secret("1")).await.unwrap();
    fixture.attach(&[(1, true)]);
    fixture.follow().await;
    assert!(fixture.is_open());
}

#[tokio::test]
async fn a_secret_is_changed_by_who_knows_it() {
    let mut fixture = Fixture::new().await;
    fixture.unlock(&secret("1")).await.unwrap();
    let model = fixture.memory.model().clone();
    let change = |from: &'static str, to: &'static str| {
        let (keys, model, id) = (fixture.keys.clone(), model.clone(), fixture.id);
        async move { keys.change_secret(&model, id, &secret(from), &secret(to)).await }
    };
    assert!(matches!(change("2", "3").await, Err(NotOpened::Refused(_))));
    assert_eq!(change("2", "1").await, Ok(None), "it is done");
    let (from, to) = change("1", "2").await.unwrap().unwrap();
    let mut record = model.data_keys[&fixture.id].record.clone();
    assert_eq!(record.generations[0].wrapping(), from);
    record.generations[0].wrapped = to.wrapped;
    fixture.memory.run(&Txn::new().put(&Key::DataKey(fixture.id).to_string(), &record)).unwrap();
    fixture.follow().await;
    assert!(fixture.is_open(), "nobody who has it notices");
    let tried = |digit: &'static str| {
        let (keys, model, id) = (fixture.keys.clone(), fixture.memory.model().clone(), fixture.id);
        async move { keys.try_secret(&model, id, &secret(digit)).await }
    };
    assert!(tried("1").await.is_err());
    assert_eq!(tried("2").await, Ok(()));
}

#[tokio::test]
async fn what_a_secret_does_not_open_is_told() {
    let mut fixture = Fixture::new().await;
    let told = |outcome: Result<(), NotOpened>| outcome.unwrap_err().to_string();
    assert!(told(fixture.unlock(&SecretText::new("short".to_owned())).await).contains("12 bytes"));
    let mut record = fixture.memory.model().data_keys[&fixture.id].record.clone();
    for (provider, check, why) in [("file", None, "by 'file'"), ("csi", Some("00".repeat(16)), "check value")] {
        record.generations[0].provider = provider.to_owned();
        record.generations[0].check = check.unwrap_or_else(|| record.generations[0].check.clone());
        fixture.memory.run(&Txn::new().put(&Key::DataKey(fixture.id).to_string(), &record)).unwrap();
        let told = told(fixture.unlock(&secret("1")).await);
        assert!(told.contains(why), "{told}");
    }
    let refused = fixture.keys.draw(fixture.memory.model(), Some(&SecretText::new("short".to_owned()))).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("12 bytes")));
}

#[tokio::test]
async fn who_tries_many_secrets_waits_and_is_sent_away() {
    let fixture = Fixture::new().await;
    let turn = Arc::clone(&fixture.keys.making.one).acquire_owned().await.unwrap();
    let model = fixture.memory.model().clone();
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (keys, model, id) = (fixture.keys.clone(), model.clone(), fixture.id);
        tries.spawn(async move { keys.try_secret(&model, id, &secret("1")).await });
    }
    // Those that find no place come back at once, the others when it is their turn.
    for _ in 0..4 {
        assert!(matches!(tries.join_next().await.unwrap().unwrap(), Err(NotOpened::Busy(_))));
    }
    drop(turn);
    while let Some(outcome) = tries.join_next().await {
        assert_eq!(outcome.unwrap(), Ok(()));
    }
}

#[tokio::test]
async fn a_node_that_is_behind_gets_the_key_all_the_same() {
    let fixture = Fixture::new().await;
    let model = fixture.memory.model().clone();
    let mut before = Memory::new();
    let cluster = json!({ "id": format!("{:032x}", 7), "name": "c", "created": "" });
    before.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
    let secret = secret("1");
    let unlock = fixture.keys.unlock(&model, fixture.id, &secret);
    tokio::pin!(unlock);
    let mut is_behind = true;
    loop {
        tokio::select! {
            outcome = &mut unlock => break outcome.unwrap(),
            () = fixture.keys.arrived() => match std::mem::take(&mut is_behind) {
                true => assert!(fixture.keys.follow(before.model()).await.is_none()),
                false => fixture.follow().await,
            }
        }
    }
    assert!(fixture.is_open());
}

#[tokio::test]
async fn rewrapping_leaves_them_alone() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.keys.older(fixture.memory.model(), 1).count(), 0);
}
