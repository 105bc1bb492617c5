use super::*;
use azekura_model::{Key, Memory, Txn};
use azekura_secrets::FileProvider;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

struct Fixture {
    folder: TempDir,
    memory: Memory,
    keys: DataKeys,
}

impl Fixture {
    /// A cluster, and a node whose key file has this digit all over.
    fn new(digit: &str) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let provider = FileProvider::new(&folder.path().join("kek"));
        let mut memory = Memory::new();
        let cluster = serde_json::json!({ "id": format!("{:032x}", 7), "name": "c", "created": "" });
        memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
        let fixture = Fixture { folder, memory, keys: DataKeys::new(Some(Arc::new(provider))) };
        fixture.write(digit);
        fixture
    }

    fn write(&self, digit: &str) {
        self.write_lines(&format!("1 {}\n", digit.repeat(64)));
    }

    fn write_lines(&self, lines: &str) {
        let path = self.folder.path().join("kek");
        std::fs::write(&path, lines).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    async fn draw(&self) -> DataKeyRecord {
        self.keys.draw(self.memory.model()).await.unwrap()
    }

    fn put(&mut self, record: &DataKeyRecord) {
        self.memory.run(&Txn::new().put(&Key::DataKey(record.id).to_string(), record)).unwrap();
    }

    /// The keys of another node with this key file, which has just started.
    async fn seen_by(&self, digit: &str) -> Arc<Keyring> {
        let other = Fixture::new(digit);
        other.keys.follow(self.memory.model()).await.unwrap()
    }
}

#[tokio::test]
async fn what_one_node_draws_another_unwraps() {
    let mut fixture = Fixture::new("1");
    let record = fixture.draw().await;
    assert!(fixture.draw().await.id != record.id);
    fixture.put(&record);
    let ring = fixture.keys.follow(fixture.memory.model()).await.unwrap();
    assert!(ring[&record.id].is_ok() && fixture.keys.missing().is_empty() && !fixture.keys.any_missing());
    assert!(fixture.keys.follow(fixture.memory.model()).await.is_none(), "nothing is new");
    let other = fixture.seen_by("1").await;
    let (mut one, mut two) = (vec![0; 512], vec![0; 512]);
    ring[&record.id].as_ref().unwrap().encrypt(3, &[1; 512], &mut one);
    other[&record.id].as_ref().unwrap().encrypt(3, &[1; 512], &mut two);
    assert_eq!(one, two);
    fixture.memory.run(&Txn::new().delete(&Key::DataKey(record.id).to_string())).unwrap();
    assert!(fixture.keys.follow(fixture.memory.model()).await.is_some_and(|ring| ring.is_empty()));
}

#[tokio::test]
async fn keys_that_are_not_to_be_had_are_told_and_keep_no_other_away() {
    let mut fixture = Fixture::new("1");
    let mut altered = fixture.draw().await;
    altered.generations[0].check = fixture.draw().await.generations[0].check.clone();
    let mut foreign = fixture.draw().await;
    foreign.generations[0].provider = "vault".into();
    let sound = fixture.draw().await;
    for record in [&altered, &foreign, &sound] {
        fixture.put(record);
    }
    let ring = fixture.keys.follow(fixture.memory.model()).await.unwrap();
    let told = |record: &DataKeyRecord| ring[&record.id].as_ref().err().cloned().unwrap_or_default();
    assert!(told(&altered).contains("check value"), "{}", told(&altered));
    assert!(told(&foreign).contains("'vault'"), "{}", told(&foreign));
    assert!(ring[&sound.id].is_ok() && fixture.keys.missing().len() == 2 && fixture.keys.any_missing());
    let wrong = fixture.seen_by("2").await;
    assert!(wrong[&sound.id].as_ref().is_err_and(|why| why.contains("is not the key")), "{wrong:?}");
    let without = DataKeys::new(None).follow(fixture.memory.model()).await.unwrap();
    assert!(without[&sound.id].as_ref().is_err_and(|why| why.contains("--key-file")), "{without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_mended_is_noticed_after_a_while() {
    let mut fixture = Fixture::new("1");
    let record = fixture.draw().await;
    fixture.put(&record);
    fixture.write("2");
    let model = fixture.memory.model().clone();
    assert!(fixture.keys.follow(&model).await.unwrap()[&record.id].is_err());
    fixture.write("1");
    assert!(fixture.keys.follow(&model).await.is_none(), "it is not asked all the time");
    tokio::time::advance(KEYS_RETRY).await;
    assert!(fixture.keys.follow(&model).await.unwrap()[&record.id].is_ok());
}

#[tokio::test]
async fn without_a_provider_nothing_is_encrypted() {
    let fixture = Fixture::new("1");
    let refused = DataKeys::new(None).draw(fixture.memory.model()).await.unwrap_err().to_string();
    assert!(refused.contains("--key-file"), "{refused}");
    std::fs::remove_file(fixture.folder.path().join("kek")).unwrap();
    let refused = fixture.keys.draw(fixture.memory.model()).await.unwrap_err().to_string();
    assert!(refused.contains("kek") && refused.contains("can't be read"), "{refused}");
}

#[tokio::test]
async fn what_an_older_key_wraps_is_wrapped_anew_and_opens_as_before() {
    let mut fixture = Fixture::new("1");
    let (one, two) = (fixture.draw().await, fixture.draw().await);
    let mut foreign = fixture.draw().await;
    foreign.generations[0].check = one.generations[0].check.clone();
    for record in [&one, &two, &foreign] {
        fixture.put(record);
    }
    let model = fixture.memory.model().clone();
    assert_eq!(fixture.keys.rewrap(&model, 9).await, Ok(Vec::new()), "there is no newer one");
    fixture.write_lines(&format!("1 {}\n2 {}\n", "1".repeat(64), "2".repeat(64)));
    assert_eq!(fixture.keys.rewrap(&model, 2).await.unwrap().len(), 2, "no more than was asked for");
    let mut anew = BTreeMap::from_iter(fixture.keys.rewrap(&model, 9).await.unwrap());
    assert!(anew[&foreign.id].as_ref().is_err_and(|why| why.contains("check value")), "it is not what it says it is");
    let (from, to) = anew.remove(&one.id).unwrap().unwrap();
    assert!(from == one.generations[0].wrapped && to.starts_with("2:"));
    let mut record = one.clone();
    record.generations[0].wrapped = to;
    assert_eq!((fixture.keys.version_of(&one), fixture.keys.version_of(&record)), (Some(1), Some(2)));
    fixture.put(&record);
    fixture.write_lines(&format!("2 {}\n", "2".repeat(64)));
    let other = DataKeys::new(fixture.keys.provider.clone());
    assert!(other.follow(fixture.memory.model()).await.unwrap()[&one.id].is_ok(), "without the older key");
}
