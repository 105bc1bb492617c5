use super::*;
use azekura_model::{Key, Memory, Txn};
use azekura_secrets::{FileProvider, SecretsError};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
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
        self.keys.draw(self.memory.model(), None).await.unwrap()
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

fn first(record: &DataKeyRecord) -> KeyName {
    (record.id, KeyGeneration::FIRST)
}

#[tokio::test]
async fn what_one_node_draws_another_unwraps() {
    let mut fixture = Fixture::new("1");
    let record = fixture.draw().await;
    assert!(fixture.draw().await.id != record.id);
    fixture.put(&record);
    let ring = fixture.keys.follow(fixture.memory.model()).await.unwrap();
    assert!(ring[&record.id].is_ok() && fixture.keys.needed().is_empty() && !fixture.keys.any_missing());
    assert!(fixture.keys.follow(fixture.memory.model()).await.is_none(), "nothing is new");
    let other = fixture.seen_by("1").await;
    let (mut one, mut two) = (vec![0; 512], vec![0; 512]);
    ring[&record.id].as_ref().unwrap().writing().1.encrypt(3, &[1; 512], &mut one);
    other[&record.id].as_ref().unwrap().writing().1.encrypt(3, &[1; 512], &mut two);
    assert_eq!(one, two);
    fixture.memory.run(&Txn::new().delete(&Key::DataKey(record.id).to_string())).unwrap();
    assert!(fixture.keys.follow(fixture.memory.model()).await.is_some_and(|ring| ring.is_empty()));
}

/// What it wrapped would open with nobody's key but this node's, as long as it runs.
#[tokio::test]
async fn another_key_of_a_version_that_has_wrapped_wraps_nothing() {
    let mut fixture = Fixture::new("1");
    let record = fixture.draw().await;
    fixture.put(&record);
    fixture.write("2");
    let refused = fixture.keys.draw(fixture.memory.model(), None).await.unwrap_err().to_string();
    assert!(refused.contains("version 1 of its key 'file' is not the one"), "{refused}");
    let next = fixture.keys.draw_next(fixture.memory.model(), record.id).await.unwrap_err().to_string();
    assert!(next.contains("is not the one"), "{next}");
    // A new version has wrapped nothing yet.
    fixture.write_lines(&format!("1 {}\n2 {}\n", "1".repeat(64), "3".repeat(64)));
    let second = fixture.draw().await;
    fixture.put(&second);
    fixture.write_lines(&format!("1 {}\n2 {}\n", "1".repeat(64), "4".repeat(64)));
    assert!(fixture.keys.draw(fixture.memory.model(), None).await.is_err());
    let rewrapped = fixture.keys.rewrap(fixture.memory.model(), 2, None, 9).await.unwrap_err();
    assert!(rewrapped.contains("version 2 of its key 'file' is not the one"), "{rewrapped}");
    fixture.write_lines(&format!("1 {}\n2 {}\n", "1".repeat(64), "3".repeat(64)));
    assert!(fixture.keys.rewrap(fixture.memory.model(), 2, None, 9).await.unwrap().done.len() == 1);
    // One that is spoilt keeps no other from being made.
    let mut spoilt = fixture.draw().await;
    spoilt.generations[0].check = fixture.draw().await.generations[0].check.clone();
    fixture.put(&spoilt);
    fixture.draw().await;
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
    assert!(told(&foreign).contains("'vault', and the node was started without --vault"), "{}", told(&foreign));
    assert!(ring[&sound.id].is_ok() && fixture.keys.needed().len() == 2 && fixture.keys.any_missing());
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
    let refused = DataKeys::new(None).draw(fixture.memory.model(), None).await.unwrap_err().to_string();
    assert!(refused.contains("--key-file"), "{refused}");
    std::fs::remove_file(fixture.folder.path().join("kek")).unwrap();
    let refused = fixture.keys.draw(fixture.memory.model(), None).await.unwrap_err().to_string();
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
    let none = Part { done: BTreeMap::new(), left: 0, upto: None };
    assert_eq!(fixture.keys.rewrap(&model, 1, None, 9).await, Ok(none), "there is no newer one");
    fixture.write_lines(&format!("1 {}\n2 {}\n", "1".repeat(64), "2".repeat(64)));
    let two_keys = fixture.keys.rewrap(&model, 2, None, 2).await.unwrap();
    assert_eq!((two_keys.done.len(), two_keys.left), (2, 1), "no more than was asked for");
    let rest = fixture.keys.rewrap(&model, 2, two_keys.upto, 2).await.unwrap();
    assert_eq!((rest.done.len(), rest.left), (1, 0), "from where the call before has ended");
    let mut anew = fixture.keys.rewrap(&model, 2, None, 9).await.unwrap().done;
    assert!(
        anew[&first(&foreign)].as_ref().is_err_and(|why| why.contains("check value")),
        "it is not what it says it is"
    );
    let (from, to) = anew.remove(&first(&one)).unwrap().unwrap();
    assert!(from == one.generations[0].wrapping() && to.provider == "file" && to.wrapped.starts_with("2:"));
    let mut record = one.clone();
    record.generations[0].wrapped = to.wrapped;
    fixture.put(&record);
    assert_eq!(fixture.keys.older(fixture.memory.model(), 2).count(), 2, "it is not done twice");
    fixture.write_lines(&format!("2 {}\n", "2".repeat(64)));
    let other = DataKeys::new(fixture.keys.providers.wraps.clone());
    assert!(other.follow(fixture.memory.model()).await.unwrap()[&one.id].is_ok(), "without the older key");
}

/// A record with another generation, which is not written with yet.
async fn with_two(fixture: &Fixture) -> DataKeyRecord {
    let mut record = fixture.draw().await;
    let next = fixture.keys.draw_next(fixture.memory.model(), record.id).await.unwrap();
    record.generations.push(WrappedKey { number: KeyGeneration::FIRST.next(), ..next });
    record.writing = Some(KeyGeneration::FIRST);
    record
}

#[tokio::test]
async fn all_generations_are_opened_and_the_record_says_which_is_written_with() {
    let mut fixture = Fixture::new("1");
    let mut record = with_two(&fixture).await;
    let alone = DataKeyRecord { generations: record.generations[..1].to_vec(), writing: None, ..record.clone() };
    let writes = |ring: &Keyring| {
        let keys = ring[&record.id].as_ref().unwrap();
        (keys.generations().map(KeyGeneration::number).collect::<Vec<_>>(), keys.writing().0.number())
    };
    fixture.put(&alone);
    assert_eq!(writes(&fixture.keys.follow(fixture.memory.model()).await.unwrap()), (vec![0], 0));
    fixture.put(&record);
    assert_eq!(writes(&fixture.keys.follow(fixture.memory.model()).await.unwrap()), (vec![0, 1], 0));
    record.writing = None;
    fixture.put(&record);
    assert_eq!(writes(&fixture.keys.follow(fixture.memory.model()).await.unwrap()), (vec![0, 1], 1));
    assert!(fixture.keys.follow(fixture.memory.model()).await.is_none());
    // One that is not written with yet may still be missing.
    let mut other = record.clone();
    other.writing = Some(KeyGeneration::FIRST);
    other.generations[1].check = fixture.draw().await.generations[0].check.clone();
    let node = DataKeys::new(fixture.keys.providers.wraps.clone());
    fixture.put(&other);
    assert_eq!(writes(&node.follow(fixture.memory.model()).await.unwrap()), (vec![0], 0));
    let why = node.why_not_opened(record.id, &other.generations[1]);
    assert!(why.is_some_and(|why| why.contains("check value")) && node.any_missing() && node.needed().is_empty());
    // Without one of the others some blocks could not be read.
    let damaged = fixture.draw().await.generations[0].check.clone();
    let mut other = record.clone();
    other.generations[0].check = damaged;
    fixture.put(&other);
    let ring = DataKeys::new(fixture.keys.providers.wraps.clone()).follow(fixture.memory.model()).await.unwrap();
    assert!(ring[&record.id].as_ref().is_err_and(|why| why.contains("check value")), "{ring:?}");
    record.generations.remove(0);
    fixture.put(&record);
    assert_eq!(writes(&fixture.keys.follow(fixture.memory.model()).await.unwrap()), (vec![1], 1));
}

#[tokio::test]
async fn each_generation_is_wrapped_anew() {
    let mut fixture = Fixture::new("1");
    let record = with_two(&fixture).await;
    fixture.put(&record);
    fixture.write_lines(&format!("1 {}\n2 {}\n", "1".repeat(64), "2".repeat(64)));
    let Part { done, left, .. } = fixture.keys.rewrap(fixture.memory.model(), 2, None, 9).await.unwrap();
    assert_eq!((done.len(), left), (2, 0));
    let mut anew = record.clone();
    for generation in &mut anew.generations {
        let (from, to) = done[&(record.id, generation.number)].clone().unwrap();
        assert_eq!(from, generation.wrapping());
        generation.wrapped = to.wrapped;
    }
    fixture.put(&anew);
    assert_eq!(fixture.keys.older(fixture.memory.model(), 2).count(), 0);
    fixture.write_lines(&format!("2 {}\n", "2".repeat(64)));
    let other = DataKeys::new(fixture.keys.providers.wraps.clone());
    assert!(other.follow(fixture.memory.model()).await.unwrap()[&record.id].is_ok(), "without the older KEK");
}

/// A provider by another name, which answers when it is let.
struct Other {
    inner: FileProvider,
    asked: Arc<AtomicUsize>,
    let_through: Mutex<Receiver<()>>,
}

impl Other {
    fn new(fixture: &Fixture) -> (Arc<Other>, Sender<()>, Arc<AtomicUsize>) {
        let (sender, receiver) = channel();
        let (inner, asked) = (FileProvider::new(&fixture.folder.path().join("kek")), Arc::<AtomicUsize>::default());
        (Arc::new(Other { inner, asked: Arc::clone(&asked), let_through: Mutex::new(receiver) }), sender, asked)
    }
}

impl KeyProvider for Other {
    fn name(&self) -> &'static str {
        "kmip"
    }

    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        self.inner.wrap(place, key)
    }

    fn unwrap(&self, wrapped: &[(KeyPlace, &str)]) -> Result<Vec<Result<DataKey, SecretsError>>, SecretsError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let _ = self.let_through.lock().unwrap().recv();
        self.inner.unwrap(wrapped)
    }

    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError> {
        self.inner.keks(cluster)
    }
}

#[tokio::test]
async fn who_does_not_answer_holds_up_nobody_else() {
    let mut fixture = Fixture::new("1");
    let sound = fixture.draw().await;
    let mut slow = fixture.draw().await;
    slow.generations[0].provider = "kmip".into();
    fixture.put(&sound);
    fixture.put(&slow);
    let (other, let_through, asked) = Other::new(&fixture);
    let file = fixture.keys.providers.wraps.clone();
    let all = [file.clone().unwrap(), other as Arc<dyn KeyProvider>];
    let keys = DataKeys::wrapped_by(file, all.into());
    let ring = keys.follow(fixture.memory.model()).await.unwrap();
    assert!(ring[&sound.id].is_ok());
    assert!(ring[&slow.id].as_ref().is_err_and(|why| why == ASKED), "{ring:?}");
    let mut more = fixture.draw().await;
    more.generations[0].provider = "kmip".into();
    fixture.put(&more);
    assert!(keys.follow(fixture.memory.model()).await.unwrap()[&more.id].is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one thread at most waits for it");
    for _ in 0..2 {
        let_through.send(()).unwrap();
    }
    // The second answer is about what came meanwhile.
    while keys.any_missing() {
        timeout(Duration::from_secs(60), keys.arrived()).await.unwrap();
        keys.follow(fixture.memory.model()).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn keys_move_to_the_provider_that_wraps() {
    let mut fixture = Fixture::new("1");
    let (one, mut lost) = (fixture.draw().await, fixture.draw().await);
    lost.generations[0].provider = "vault".into();
    fixture.put(&one);
    fixture.put(&lost);
    let (other, let_through, _) = Other::new(&fixture);
    // Nobody is waited for.
    drop(let_through);
    let other: Arc<dyn KeyProvider> = other;
    let all = [fixture.keys.providers.wraps.clone().unwrap(), Arc::clone(&other)];
    let keys = DataKeys::wrapped_by(Some(other), all.into());
    assert_eq!(keys.draw(fixture.memory.model(), None).await.unwrap().generations[0].provider, "kmip");
    let shown = keys.keks(fixture.memory.model()).await.unwrap();
    assert_eq!(shown.iter().map(|of| of.provider).collect::<Vec<_>>(), ["file", "kmip"]);
    let mut anew = keys.rewrap(fixture.memory.model(), 1, None, 9).await.unwrap().done;
    assert!(anew[&first(&lost)].as_ref().is_err_and(|why| why.contains("--vault")), "{anew:?}");
    let (from, to) = anew.remove(&first(&one)).unwrap().unwrap();
    assert_eq!((from.provider.as_str(), to.provider.as_str()), ("file", "kmip"));
    let mut moved = one.clone();
    (moved.generations[0].provider, moved.generations[0].wrapped) = (to.provider, to.wrapped);
    fixture.put(&moved);
    assert_eq!(keys.older(fixture.memory.model(), 1).count(), 1, "the one that nobody can open");
    assert!(keys.follow(fixture.memory.model()).await.unwrap()[&one.id].is_ok());
}

#[tokio::test]
async fn a_clones_key_opens_what_its_sources_opens_and_one_more() {
    let mut fixture = Fixture::new("1");
    let source = with_two(&fixture).await;
    fixture.put(&source);
    let model = fixture.memory.model().clone();
    let made = fixture.keys.draw_for_clone(&model, &model.data_keys[&source.id]).await.unwrap();
    assert_eq!(made.since, model.data_keys[&source.id].mod_revision);
    assert_ne!(made.record.id, source.id);
    fixture.put(&made.record);
    // Another node has read the configuration and has the same key file.
    let ring = Fixture::new("1").keys.follow(fixture.memory.model()).await.unwrap();
    let (of_source, of_clone) = (ring[&source.id].as_ref().unwrap(), ring[&made.record.id].as_ref().unwrap());
    let cipher = |keys: &azekura_cipher::VolumeKeys, number: KeyGeneration| {
        let mut text = vec![0; 512];
        keys.of(number).map(|key| key.encrypt(3, &[1; 512], &mut text)).map(|()| text)
    };
    for generation in &source.generations {
        let same = cipher(of_source, generation.number);
        assert!(same.is_some() && same == cipher(of_clone, generation.number), "{}", generation.number);
    }
    let newest = made.record.generations.last().unwrap().number;
    assert_eq!(of_clone.writing().0, newest);
    assert!(source.generations.iter().all(|of| cipher(of_source, of.number) != cipher(of_clone, newest)));
    // What can't be opened is not copied.
    fixture.write("2");
    let refused = fixture.keys.draw_for_clone(&model, &model.data_keys[&source.id]).await.unwrap_err();
    assert!(matches!(refused, MetaError::NotEncrypted { .. }), "{refused}");
}

/// What each generation of a data key makes of the same text, by number.
fn texts(ring: &Keyring, id: KeyId) -> BTreeMap<u8, Vec<u8>> {
    let keys = ring[&id].as_ref().unwrap();
    let text = |number: KeyGeneration| {
        let mut text = vec![0; 512];
        keys.of(number).unwrap().encrypt(3, &[1; 512], &mut text);
        (number.number(), text)
    };
    keys.generations().map(text).collect()
}

/// Numbers of generations are used again. A process that stood still, or was cut off, may read of the next one of a
/// number without having seen that the former one was forgotten.
#[tokio::test]
async fn a_generation_that_has_the_number_of_a_former_one_is_another_key() {
    let mut fixture = Fixture::new("1");
    let former = fixture.draw().await;
    fixture.put(&former);
    let before = fixture.keys.follow(fixture.memory.model()).await.unwrap();
    let mut later = former.clone();
    for (place, number) in [15, 0].into_iter().enumerate() {
        let drawn = fixture.keys.draw_next(fixture.memory.model(), former.id).await.unwrap();
        later.generations.truncate(place);
        later.generations.push(WrappedKey { number: KeyGeneration::new(number).unwrap(), ..drawn });
    }
    let why = fixture.keys.why_not_opened(former.id, &later.generations[1]);
    assert_eq!(why.as_deref(), Some(FORMER), "it would count as opened here");
    assert_eq!(fixture.keys.why_not_opened(former.id, &former.generations[0]), None);
    fixture.put(&later);
    let ring = fixture.keys.follow(fixture.memory.model()).await.expect("they are other keys");
    let fresh = fixture.seen_by("1").await;
    assert_eq!(texts(&ring, former.id).keys().collect::<Vec<_>>(), [&0, &15]);
    assert!(texts(&ring, former.id) == texts(&fresh, former.id), "whoever starts now has other keys");
    assert!(texts(&ring, former.id)[&0] != texts(&before, former.id)[&0]);
    // What is wrapped anew is the same key, and nobody is asked for it.
    for generation in &mut later.generations {
        generation.wrapped = "1:something else".into();
    }
    fixture.put(&later);
    assert!(fixture.keys.follow(fixture.memory.model()).await.is_none());
    assert!(!fixture.keys.any_missing());
}

#[tokio::test]
async fn an_answer_about_a_former_key_is_not_taken_for_one_about_the_next_of_its_number() {
    let mut fixture = Fixture::new("1");
    let (other, let_through, _) = Other::new(&fixture);
    let keys = DataKeys::wrapped_by(None, vec![other as Arc<dyn KeyProvider>]);
    let mut record = fixture.draw().await;
    let next = fixture.keys.draw_next(fixture.memory.model(), record.id).await.unwrap();
    record.generations[0].provider = "kmip".into();
    fixture.put(&record);
    assert!(keys.follow(fixture.memory.model()).await.unwrap()[&record.id].is_err());
    // While it is asked for, another key gets its number.
    record.generations = vec![WrappedKey { provider: "kmip".into(), ..next.clone() }];
    fixture.put(&record);
    assert!(keys.follow(fixture.memory.model()).await.is_none(), "it is still asked for");
    let_through.send(()).unwrap();
    let_through.send(()).unwrap();
    while keys.any_missing() {
        timeout(Duration::from_secs(60), keys.arrived()).await.unwrap();
        keys.follow(fixture.memory.model()).await;
    }
    record.generations = vec![next];
    fixture.put(&record);
    let fresh = fixture.seen_by("1").await;
    assert!(texts(&keys.state().ring, record.id) == texts(&fresh, record.id));
}

#[tokio::test]
async fn a_node_tells_of_wrapping_keys_that_it_lacks() {
    let mut fixture = Fixture::new("1");
    assert!(fixture.keys.lacking(fixture.memory.model()).await.is_empty());
    fixture.put(&fixture.draw().await);
    assert!(fixture.keys.lacking(fixture.memory.model()).await.is_empty());
    fixture.write_lines(&format!("2 {}\n", "2".repeat(64)));
    let told = "version 1 of 'file', which wraps 1 data key";
    assert_eq!(fixture.keys.lacking(fixture.memory.model()).await, [told]);
    let path = fixture.folder.path().join("kek");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let [refused] = &fixture.keys.lacking(fixture.memory.model()).await[..] else { panic!() };
    assert!(refused.starts_with(told) && refused.contains("chmod 600"), "{refused}");
    // Who has none has chosen that.
    assert!(DataKeys::new(None).lacking(fixture.memory.model()).await.is_empty());
}
