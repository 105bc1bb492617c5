//! The client as a user of a real etcd, whose tokens are JSON Web Tokens: they end by time, and with each change of
//! users and roles.
#![allow(clippy::unwrap_used)]

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Folder, Server};
use azekura_base::NodeId;
use azekura_meta::MetaClient;
use azekura_meta::client::{EtcdClient, Servers, Txn, User};
use azekura_model::EtcdError;

/// How long a token counts.
const TTL: Duration = Duration::from_secs(3);

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
    said
}

/// An etcd with the user `azekura`, and its operator.
struct Etcd {
    server: Server,
    keys: Folder,
    has_users: bool,
}

impl Etcd {
    async fn start() -> Option<Etcd> {
        let keys = Folder::new("jwt");
        let (private, public) = (keys.0.join("private.pem"), keys.0.join("public.pem"));
        run(Command::new("openssl").args(["genrsa", "-out"]).arg(&private).arg("2048"));
        run(Command::new("openssl").args(["rsa", "-pubout", "-in"]).arg(&private).arg("-out").arg(&public));
        let (private, public) = (private.display(), public.display());
        let token = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl={}s", TTL.as_secs());
        let server = Server::etcd_with(&["--auth-token", &token]).await?;
        let mut etcd = Etcd { server, keys, has_users: false };
        for words in [
            "role add azekura",
            "role grant-permission azekura --prefix=true readwrite /azekura/",
            "user add azekura:first",
            "user grant-role azekura azekura",
            "user add root:root",
            "user grant-role root root",
            "auth enable",
        ] {
            etcd.operator(words);
        }
        etcd.has_users = true;
        Some(etcd)
    }

    fn operator(&self, words: &str) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.server.endpoint()]);
        if self.has_users {
            command.args(["--user", "root:root"]);
        }
        run(command.args(words.split(' ')))
    }

    /// How the user with this password comes.
    fn servers(&self, password: &str) -> Servers {
        let password_file = self.keys.0.join("password");
        write(&password_file, password).unwrap();
        set_permissions(&password_file, Permissions::from_mode(0o600)).unwrap();
        let user = Some(User { name: "azekura".to_owned(), password_file });
        Servers { user, ..vec![self.server.endpoint()].into() }
    }
}

fn put(key: &str) -> Txn {
    Txn::new().put(key, b"{}".to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_and_nobody_notices() {
    let Some(etcd) = Etcd::start().await else { return };
    let wrong = EtcdClient::new(etcd.servers("wrong")).unwrap();
    let denied = wrong.txn(put("/azekura/v1/x")).await.unwrap_err();
    assert!(
        matches!(&denied, EtcdError::Denied { reason, .. } if reason.contains("authentication failed")),
        "{denied}"
    );

    let client = EtcdClient::new(etcd.servers("first")).unwrap();
    let meta = MetaClient::connect(etcd.servers("first")).await.unwrap();
    let hold = meta.keep_alive(NodeId(7));
    let mut held = hold.watch();
    held.wait_for(|held| *held).await.unwrap();
    let mut models = meta.watch_model();
    models.wait_for(|model| model.alive.contains_key(&NodeId(7))).await.unwrap();

    // By time: the lease and the watch go on, and writes and reads that come late are none the worse for it.
    let mut watch = client.watch_prefix("/azekura/v1/", 1).await.unwrap();
    let begun = Instant::now();
    let mut number = 0;
    while begun.elapsed() < 3 * TTL {
        number += 1;
        client.txn(put(&format!("/azekura/v1/x/{number}"))).await.unwrap();
        client.range_page("/azekura/v1/", "/azekura/v10", 1, tokio::time::Instant::now() + 5 * TTL).await.unwrap();
        tokio::time::sleep(TTL / 3).await;
    }
    let last = format!("/azekura/v1/x/{number}").into_bytes();
    while !watch
        .next()
        .await
        .unwrap()
        .0
        .iter()
        .any(|change| matches!(change, azekura_model::Change::Put(kv) if kv.key == last))
    {}
    // A token may end at this very moment; whoever watches again then has another.
    if client.watch_prefix("/azekura/v1/", 1).await.is_err() {
        client.watch_prefix("/azekura/v1/", 1).await.unwrap();
    }
    assert!(hold.is_held(), "the lease went on");

    // By a change of roles, with which every token is an old one.
    for role in ["one", "two"] {
        etcd.operator(&format!("role add {role}"));
        client.txn(put("/azekura/v1/y")).await.unwrap();
    }
    for key in ["/azekura/audit/v1/x", "/azekura/v1/counters/x"] {
        client.txn(put(key)).await.unwrap();
    }
    let outside = client.txn(put("/other")).await.unwrap_err();
    assert!(matches!(&outside, EtcdError::Denied { reason, .. } if reason.contains("/azekura/")), "{outside}");
    hold.release().await;
    models.wait_for(|model| !model.alive.contains_key(&NodeId(7))).await.unwrap();
}
