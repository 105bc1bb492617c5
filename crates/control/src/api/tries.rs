//! Failed tries are slowed for each address: ten at once, then one a second. Only failures wait, so nobody locks out
//! who shares his address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures of an address that are answered at once.
const AT_ONCE: u32 = 10;
/// What each further one waits for.
const STEP: Duration = Duration::from_secs(1);
/// The longest wait: whoever asks side by side waits side by side.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;

/// The failures of late.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// When all failures of an address are paid for, a step each.
    paid: Mutex<HashMap<IpAddr, Instant>>,
}

/// Who has one address of IPv6 has the /64 around it.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl Tries {
    /// Counts a failure, and says how long its answer is to wait.
    pub(super) fn failed(&self, address: IpAddr, now: Instant) -> Duration {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let address = neighbourhood(address);
        if paid.len() >= ADDRESSES_MAX && !paid.contains_key(&address) {
            paid.retain(|_, paid| *paid > now);
            // Nobody is forgotten sooner by the failures of others than who has the fewest of his own.
            if paid.len() >= ADDRESSES_MAX
                && let Some(first) = paid.iter().min_by_key(|(_, paid)| **paid).map(|(address, _)| *address)
            {
                paid.remove(&first);
            }
        }
        let paid = paid.entry(address).or_insert(now);
        *paid = (*paid).max(now) + STEP;
        let wait = (*paid - now).saturating_sub(STEP * AT_ONCE);
        if wait > WAIT_MAX {
            *paid = now + STEP * AT_ONCE + WAIT_MAX;
        }
        wait.min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ten_are_answered_at_once_and_then_one_a_second() {
        let (tries, now) = (Tries::default(), Instant::now());
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(address);
        let waits: Vec<u64> = (0..13).map(|_| tries.failed(one, now).as_secs()).collect();
        assert_eq!(waits, [[0; 10].as_slice(), &[1, 2, 3]].concat());
        assert_eq!(tries.failed(other, now), Duration::ZERO, "nobody waits for others");
        assert_eq!(tries.failed(one, now + Duration::from_secs(2)), Duration::from_secs(2));
        assert_eq!(tries.failed(one, now + Duration::from_secs(100)), Duration::ZERO);
        let longest = (0..1_000).map(|_| tries.failed(one, now).as_secs()).max();
        assert_eq!(longest, Some(60));
    }

    #[test]
    fn addresses_that_one_machine_can_have_count_as_one() {
        let (tries, now) = (Tries::default(), Instant::now());
        for host in 0..12 {
            tries.failed(address(&format!("2001:db8::{host}")), now);
        }
        assert_eq!(tries.failed(address("2001:db8::ffff:1"), now), Duration::from_secs(3));
        assert_eq!(tries.failed(address("2001:db8:0:1::1"), now), Duration::ZERO);
        assert_eq!(neighbourhood(address("::ffff:10.0.0.1")), address("10.0.0.1"));
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let (tries, now) = (Tries::default(), Instant::now());
        let hard = address("192.0.2.1");
        for _ in 0..20 {
            tries.failed(hard, now);
        }
        for host in 0..10_000_u32 {
            tries.failed(IpAddr::V4(host.into()), now);
        }
        assert!(tries.paid.lock().unwrap().len() <= ADDRESSES_MAX);
        assert!(tries.failed(hard, now) > STEP, "who has failed often is remembered longest");
    }
}
