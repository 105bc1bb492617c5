//! Where clients connect, as people read it.

use azekura_api::EndpointView;

/// A node's endpoints in one cell: each protocol once, its addresses behind it.
pub fn by_protocol(endpoints: &[EndpointView]) -> String {
    let mut protocols: Vec<(&str, Vec<&str>)> = Vec::new();
    for endpoint in endpoints {
        match protocols.iter_mut().find(|(protocol, _)| *protocol == endpoint.protocol) {
            Some((_, addresses)) => addresses.push(&endpoint.address),
            None => protocols.push((&endpoint.protocol, vec![&endpoint.address])),
        }
    }
    let texts = protocols.iter().map(|(protocol, addresses)| format!("{protocol} {}", addresses.join(", ")));
    texts.collect::<Vec<_>>().join("; ")
}

/// Where an export is opened, a line each: the protocol, and the URI where one is known.
pub fn lines(endpoints: &[EndpointView]) -> String {
    let mut text = String::new();
    for (index, EndpointView { protocol, address, uri }) in endpoints.iter().enumerate() {
        let title = if index == 0 { "clients" } else { "" };
        text += &format!("  {title:<8} {protocol:<4} {}\n", uri.as_ref().unwrap_or(address));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(protocol: &str, address: &str, uri: Option<&str>) -> EndpointView {
        EndpointView { protocol: protocol.to_owned(), address: address.to_owned(), uri: uri.map(str::to_owned) }
    }

    #[test]
    fn each_protocol_is_named_once_in_a_table() {
        let of_node = [endpoint("nbd", "a:1", None), endpoint("iscsi", "a:2", None), endpoint("nbd", "unix:/s", None)];
        assert_eq!(by_protocol(&of_node), "nbd a:1, unix:/s; iscsi a:2");
        assert_eq!(by_protocol(&[]), "");
    }

    #[test]
    fn an_endpoint_without_uri_has_its_address() {
        let of_volume = [endpoint("nbd", "a:1", Some("nbd://a:1/v")), endpoint("new", "a:2", None)];
        assert_eq!(lines(&of_volume), "  clients  nbd  nbd://a:1/v\n           new  a:2\n");
    }
}
