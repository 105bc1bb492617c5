//! Clients that have shown something wrong are answered the later, the more often that was so from their address.
//!
//! The first ten failures are answered at once, each further one a second later than the one before. Only failures
//! wait, so nobody locks out who shares his address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Failures of an address that are answered at once.
const AT_ONCE: u32 = 10;
/// What each further one waits for.
const STEP: Duration = Duration::from_secs(1);
/// The longest wait: less than a handshake may take (0017).
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;

/// The failures of late, and the connections whose answers wait.
#[derive(Debug)]
pub(crate) struct Tries<K> {
    /// When all failures of an address are paid for, a step each.
    paid: BTreeMap<IpAddr, Duration>,
    /// Until when.
    waiting: BTreeMap<K, Duration>,
}

impl<K> Default for Tries<K> {
    fn default() -> Tries<K> {
        Tries { paid: BTreeMap::new(), waiting: BTreeMap::new() }
    }
}

/// Who has one address of IPv6 has the /64 around it. Those of unix sockets and of nobody are one.
fn neighbourhood(address: Option<IpAddr>) -> IpAddr {
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        Some(address) => address,
        None => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

impl<K: Copy + Ord> Tries<K> {
    /// A connection from this address has shown something wrong. True when it may be told so at once.
    pub fn failed(&mut self, conn: K, address: Option<IpAddr>, now: Duration) -> bool {
        let address = neighbourhood(address);
        if self.paid.len() >= ADDRESSES_MAX && !self.paid.contains_key(&address) {
            self.paid.retain(|_, paid| *paid > now);
            // Nobody is forgotten sooner by the failures of others than who has the fewest of his own.
            if self.paid.len() >= ADDRESSES_MAX
                && let Some(first) = self.paid.iter().min_by_key(|(_, paid)| **paid).map(|(address, _)| *address)
            {
                self.paid.remove(&first);
            }
        }
        let paid = self.paid.entry(address).or_insert(now);
        *paid = (*paid).max(now) + STEP;
        let wait = (*paid - now).saturating_sub(STEP * AT_ONCE).min(WAIT_MAX);
        // What is never told of is not paid for either.
        *paid = (*paid).min(now + STEP * AT_ONCE + WAIT_MAX);
        if !wait.is_zero() {
            self.waiting.insert(conn, now + wait);
        }
        wait.is_zero()
    }

    /// True while the connection's answer waits.
    pub fn is_waiting(&self, conn: K) -> bool {
        self.waiting.contains_key(&conn)
    }

    /// A connection that has waited long enough; each is named once.
    pub fn due(&mut self, now: Duration) -> Option<K> {
        let conn = self.waiting.iter().find(|(_, until)| **until <= now).map(|(conn, _)| *conn)?;
        self.waiting.remove(&conn);
        Some(conn)
    }

    /// When [`Tries::due`] is to be asked.
    pub fn next_look(&self) -> Option<Duration> {
        self.waiting.values().min().copied()
    }

    /// The connection is gone.
    pub fn gone(&mut self, conn: K) {
        self.waiting.remove(&conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn ten_are_answered_at_once_and_then_one_a_second() {
        let mut tries = Tries::default();
        let here = address("192.0.2.1");
        let told: Vec<bool> = (0..12).map(|conn| tries.failed(conn, here, NOW)).collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 10);
        assert_eq!(tries.next_look(), Some(NOW + STEP));
        assert_eq!((tries.due(NOW), tries.due(NOW + STEP), tries.due(NOW + STEP)), (None, Some(10), None));
        assert!(!tries.is_waiting(10) && tries.is_waiting(11));
        assert!(tries.failed(12, address("192.0.2.2"), NOW), "another address has failed for the first time");
        tries.gone(11);
        assert_eq!(tries.next_look(), None);
        // A connection that nobody waits with is one that is answered soon all the same.
        for conn in 20..200 {
            tries.failed(conn, here, NOW);
        }
        assert!(tries.waiting.values().all(|until| *until <= NOW + WAIT_MAX));
        assert!(tries.failed(300, here, NOW + WAIT_MAX + 10 * STEP), "that was long ago");
    }

    #[test]
    fn a_network_of_one_customer_is_one() {
        let mut tries = Tries::default();
        for host in 0..10 {
            assert!(tries.failed(host, address(&format!("2001:db8::{host}")), NOW));
        }
        assert!(!tries.failed(10, address("2001:db8::ffff"), NOW));
        assert!(tries.failed(11, address("2001:db8:1::1"), NOW) && tries.failed(12, None, NOW));
        for host in 0..10_000_u32 {
            tries.failed(20 + host, Some(IpAddr::V4(host.into())), NOW);
        }
        assert!(tries.paid.len() <= ADDRESSES_MAX);
        assert!(!tries.failed(20_000, address("2001:db8::1"), NOW), "who has failed often is remembered longest");
    }
}
