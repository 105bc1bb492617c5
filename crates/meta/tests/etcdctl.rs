//! The embedded server as etcd's own command line client sees it.

#![allow(clippy::unwrap_used)]

use std::process::Stdio;
use std::time::Duration;

use crate::support::Server;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

fn etcdctl(server: &Server) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg("--endpoints").arg(server.endpoint().trim_start_matches("http://"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs etcdctl; returns its output, or its error text.
async fn run_with(server: &Server, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut child = etcdctl(server).args(arguments).spawn().expect("etcdctl is installed");
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

async fn run(server: &Server, arguments: &[&str]) -> String {
    run_with(server, arguments, "").await.unwrap()
}

/// Whether etcdctl can be run; the tests of this file say so and pass where it is not installed.
fn installed() -> bool {
    let found = std::process::Command::new("etcdctl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("etcdctl is not installed: skipped");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_put_delete() {
    if !installed() {
        return;
    }
    let server = Server::embedded().await;
    assert_eq!(run(&server, &["put", "/azekura/a", "1"]).await, "OK\n");
    assert_eq!(run(&server, &["put", "/azekura/b", "2"]).await, "OK\n");
    assert_eq!(run(&server, &["put", "/other", "3"]).await, "OK\n");
    assert_eq!(run(&server, &["get", "/azekura/a"]).await, "/azekura/a\n1\n");
    assert_eq!(run(&server, &["get", "--prefix", "/azekura/"]).await, "/azekura/a\n1\n/azekura/b\n2\n");
    assert_eq!(
        run(&server, &["get", "--prefix", "", "--keys-only", "--limit", "2"]).await,
        "/azekura/a\n\n/azekura/b\n\n"
    );
    let descending = ["get", "--prefix", "/azekura/", "--sort-by=MODIFY", "--order=DESCEND", "--print-value-only"];
    assert_eq!(run(&server, &descending).await, "2\n1\n");
    assert_eq!(run(&server, &["put", "--prev-kv", "/azekura/a", "1b"]).await, "OK\n/azekura/a\n1\n");
    assert_eq!(run(&server, &["get", "--rev=2", "--prefix", "/azekura/"]).await, "/azekura/a\n1\n");
    assert_eq!(run(&server, &["put", "--ignore-lease", "/azekura/a", "1c"]).await, "OK\n");
    assert_eq!(
        run(&server, &["del", "--prefix", "--prev-kv", "/azekura/"]).await,
        "2\n/azekura/a\n1c\n/azekura/b\n2\n"
    );
    assert_eq!(run(&server, &["get", "--prefix", "/azekura/"]).await, "");
    let json = run(&server, &["get", "/other", "-w", "json"]).await;
    assert!(json.contains("\"create_revision\":4,\"mod_revision\":4,\"version\":1"), "{json}");
    assert!(run_with(&server, &["get", "--rev=99", "/other"], "").await.unwrap_err().contains("future revision"));
    assert!(run_with(&server, &["put", "", "x"], "").await.unwrap_err().contains("key is not provided"));
    assert!(run(&server, &["endpoint", "status"]).await.contains("azekura-"));
    assert!(run_with(&server, &["endpoint", "health"], "").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions() {
    if !installed() {
        return;
    }
    let server = Server::embedded().await;
    let input = "mod(\"k\") = \"0\"\n\nput k new\nput other 1\nget k\n\nget k\n\n";
    assert_eq!(run_with(&server, &["txn"], input).await.unwrap(), "SUCCESS\n\nOK\n\nOK\n\nk\nnew\n");
    let again = run_with(&server, &["txn"], input).await.unwrap();
    assert_eq!(again, "FAILURE\n\nk\nnew\n");
    let input = "value(\"k\") = \"new\"\nversion(\"k\") > \"0\"\ncreate(\"k\") < \"9\"\n\ndel k\n\n\n\n";
    assert_eq!(run_with(&server, &["txn"], input).await.unwrap(), "SUCCESS\n\n1\n");
    let twice = run_with(&server, &["txn"], "\nput k 1\nput k 2\n\n\n").await.unwrap_err();
    assert!(twice.contains("duplicate key"), "{twice}");
    assert_eq!(run(&server, &["get", "k"]).await, "", "a refused transaction changes nothing");
}

async fn lines(child: &mut Child) -> tokio::io::Lines<BufReader<tokio::process::ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

async fn next(lines: &mut tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) -> String {
    tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await.expect("an event").unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches() {
    if !installed() {
        return;
    }
    let server = Server::embedded().await;
    run(&server, &["put", "/a/1", "old"]).await;
    // From a past revision: what happened, then what happens.
    let mut child = etcdctl(&server).args(["watch", "--prefix", "--rev=1", "--prev-kv", "/a/"]).spawn().unwrap();
    let mut out = lines(&mut child).await;
    for expected in ["PUT", "/a/1", "old"] {
        assert_eq!(next(&mut out).await, expected);
    }
    run(&server, &["put", "/b/1", "elsewhere"]).await;
    run(&server, &["put", "/a/1", "newer"]).await;
    run(&server, &["del", "/a/1"]).await;
    for expected in ["PUT", "/a/1", "old", "/a/1", "newer", "DELETE", "/a/1", "newer", "/a/1", ""] {
        assert_eq!(next(&mut out).await, expected);
    }
    child.kill().await.unwrap();
    // Behind the history: told so.
    assert!(run(&server, &["compaction", "4"]).await.contains("compacted revision 4"));
    let mut child = etcdctl(&server).args(["watch", "--prefix", "--rev=2", "/a/"]).spawn().unwrap();
    let mut text = String::new();
    let mut stderr = child.stderr.take().unwrap();
    tokio::time::timeout(Duration::from_secs(10), stderr.read_to_string(&mut text)).await.unwrap().unwrap();
    assert!(text.contains("compacted"), "{text}");
    assert!(run_with(&server, &["get", "--rev=3", "/a/1"], "").await.unwrap_err().contains("compacted"));
    assert_eq!(run(&server, &["get", "--rev=4", "/a/1"]).await, "/a/1\nnewer\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases() {
    if !installed() {
        return;
    }
    let server = Server::embedded().await;
    let granted = run(&server, &["lease", "grant", "2"]).await;
    let id = granted.split(' ').nth(1).unwrap().to_owned();
    assert!(granted.contains("TTL(2s)"), "{granted}");
    run(&server, &["put", "--lease", &id, "/alive", "yes"]).await;
    let info = run(&server, &["lease", "timetolive", "--keys", &id]).await;
    assert!(info.contains("granted with TTL(2s)") && info.contains("/alive"), "{info}");
    assert!(run(&server, &["lease", "list"]).await.contains(&id));
    // Kept alive beyond its time.
    let mut child = etcdctl(&server).args(["lease", "keep-alive", &id]).spawn().unwrap();
    let mut out = lines(&mut child).await;
    for _ in 0..4 {
        assert!(next(&mut out).await.contains("keepalived"));
    }
    assert_eq!(run(&server, &["get", "/alive"]).await, "/alive\nyes\n");
    child.kill().await.unwrap();
    // Then it ends by itself.
    let mut left = String::from("?");
    for _ in 0..100 {
        left = run(&server, &["get", "/alive"]).await;
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(left, "");
    assert!(run(&server, &["lease", "timetolive", &id]).await.contains("already expired"));
    // Revoked: its keys go at once.
    let granted = run(&server, &["lease", "grant", "600"]).await;
    let id = granted.split(' ').nth(1).unwrap().to_owned();
    run(&server, &["put", "--lease", &id, "/alive", "yes"]).await;
    run(&server, &["lease", "revoke", &id]).await;
    assert_eq!(run(&server, &["get", "/alive"]).await, "");
    let missing = run_with(&server, &["put", "--lease", &id, "/alive", "yes"], "").await.unwrap_err();
    assert!(missing.contains("lease not found"), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_and_leases_survive_a_restart() {
    if !installed() {
        return;
    }
    let mut server = Server::embedded().await;
    run(&server, &["put", "/a", "1"]).await;
    run(&server, &["put", "/a", "2"]).await;
    let granted = run(&server, &["lease", "grant", "60"]).await;
    let id = granted.split(' ').nth(1).unwrap().to_owned();
    run(&server, &["put", "--lease", &id, "/alive", "yes"]).await;
    server.stop().await;
    server.start().await;
    assert_eq!(run(&server, &["get", "--prefix", "/a"]).await, "/a\n2\n/alive\nyes\n");
    assert_eq!(run(&server, &["get", "--rev=2", "/a"]).await, "/a\n1\n");
    assert!(run(&server, &["lease", "timetolive", "--keys", &id]).await.contains("/alive"));
    run(&server, &["lease", "revoke", &id]).await;
    assert_eq!(run(&server, &["get", "/alive"]).await, "");
    let json = run(&server, &["get", "/a", "-w", "json"]).await;
    assert!(json.contains("\"create_revision\":2,\"mod_revision\":3,\"version\":2"), "{json}");
}
