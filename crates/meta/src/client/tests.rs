use super::*;

fn client_of(count: usize) -> EtcdClient {
    let endpoints: Vec<String> = (0..count).map(|number| format!("127.0.0.1:{}", 1 + number)).collect();
    EtcdClient::new(endpoints).unwrap()
}

fn endpoint(client: &EtcdClient) -> usize {
    client.current().0 % client.connections.len()
}

#[tokio::test]
async fn an_endpoint_of_which_nothing_was_heard_comes_last() {
    let client = client_of(3);
    assert_eq!(endpoint(&client), 0, "the first of this machine's");
    client.give_up(0, Trouble::Silent);
    assert_eq!(endpoint(&client), 1);
    for (trouble, next) in [(Trouble::Unable, 2), (Trouble::Unable, 1), (Trouble::Silent, 2)] {
        client.give_up(client.current().0, trouble);
        assert_eq!(endpoint(&client), next);
    }
    // None is better than another: all have their turn.
    for next in [0, 1, 2] {
        client.give_up(client.current().0, Trouble::Silent);
        assert_eq!(endpoint(&client), next);
    }
    let one = client_of(1);
    one.give_up(0, Trouble::Silent);
    assert_eq!(endpoint(&one), 0);
}

#[tokio::test]
async fn an_endpoint_is_given_up_once_for_what_many_have_noticed() {
    let client = client_of(3);
    let (turn, _) = client.current();
    for _ in 0..3 {
        client.give_up(turn, Trouble::Unable);
    }
    assert_eq!(endpoint(&client), 1);
}

/// Accepts connections, and says nothing.
async fn silent_server() -> (tokio::net::TcpListener, EtcdClient) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap().to_string();
    let client = EtcdClient::new(vec![here, "127.0.0.1:1".to_owned()]).unwrap();
    (listener, client)
}

#[tokio::test]
async fn a_server_that_may_be_slow_is_kept() {
    let (_listener, client) = silent_server().await;
    let outcome = client.txn_within(Duration::from_millis(100), Txn::new()).await;
    assert!(matches!(outcome, Err(EtcdError::Uncertain { .. })), "{outcome:?}");
    assert_eq!(endpoint(&client), 0);
    let outcome = client.txn(Txn::new()).await;
    assert!(matches!(outcome, Err(EtcdError::Uncertain { .. })), "{outcome:?}");
    assert_eq!(endpoint(&client), 1);
}

#[tokio::test]
async fn a_read_leaves_a_server_that_others_have_found_silent() {
    let (_listener, client) = silent_server().await;
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.count("/", Instant::now() + Duration::from_millis(1_500)).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    client.give_up(0, Trouble::Silent);
    let reason = asking.await.unwrap().unwrap_err().to_string();
    assert!(reason.contains("refused"), "the other endpoint was asked: {reason}");
}
