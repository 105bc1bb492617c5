//! A guest's memory: regions that the client has handed over, and what addresses mean in them.

use crate::log::Log;
use crate::message::RegionAt;
use azekura_base::SharedMemory;

/// Regions begin at, and are as long as, multiples of this many bytes, in every way in which they are counted.
const PAGE: u64 = 4096;

/// One region.
struct Region {
    at: RegionAt,
    memory: Box<dyn SharedMemory>,
}

/// The regions of a guest. Two sorts of addresses lead there: those of the guest, which are in descriptors, and those
/// of the client's process, which name the rings.
///
/// What is written by the guest's addresses is logged, while there is a log and it is asked for. Who writes to a
/// [`Place`] logs that by itself ([`Regions::mark`]).
#[derive(Default)]
pub struct Regions {
    all: Vec<Region>,
    log: Option<Log>,
    logs: bool,
}

/// A place in a region, of which so many bytes are known to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    region: usize,
    at: usize,
}

impl Place {
    /// A place so many bytes behind.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Place {
        Place { at: self.at + bytes, ..self }
    }
}

/// Why a region can't be one, if so: it is to begin and end at pages, and its addresses are not to end at the last
/// one.
#[must_use]
pub fn why_no_region(at: &RegionAt) -> Option<String> {
    let RegionAt { guest, size, user, offset } = *at;
    let numbers = [guest, size, user, offset];
    if numbers.iter().any(|number| !number.is_multiple_of(PAGE)) {
        return Some(format!("a region of {size} bytes at {guest:#x} ({user:#x}, {offset:#x}) is no whole pages"));
    }
    let ends = [guest, user, offset].map(|start| start.checked_add(size));
    let fits = ends.iter().all(Option::is_some) && usize::try_from(size).is_ok();
    (size == 0 || !fits).then(|| format!("a region of {size} bytes at {guest:#x} ({user:#x}, {offset:#x})"))
}

impl Regions {
    /// Regions that [`why_no_region`] has nothing against, with their memory.
    #[must_use]
    pub fn new(regions: Vec<(RegionAt, Box<dyn SharedMemory>)>) -> Regions {
        Regions { all: regions.into_iter().map(|(at, memory)| Region { at, memory }).collect(), ..Regions::default() }
    }

    /// The same memory from now on as in these; the log stays what it is.
    pub fn become_like(&mut self, regions: Regions) {
        self.all = regions.all;
    }

    /// What is written is logged here from now on, if it is asked for.
    pub fn set_log(&mut self, log: Log) {
        self.log = Some(log);
    }

    /// What is written is to be logged from now on, or is not.
    pub fn set_logs(&mut self, logs: bool) {
        self.logs = logs;
    }

    /// What is written is to be logged.
    #[must_use]
    pub fn logs(&self) -> bool {
        self.logs
    }

    /// What is written is to be logged, and there is no log yet.
    #[must_use]
    pub fn wants_log(&self) -> bool {
        self.logs && self.log.is_none()
    }

    /// Bytes from a guest's address on were written.
    pub fn mark(&self, address: u64, len: usize) {
        if let Some(log) = self.log.as_ref().filter(|_| self.logs) {
            log.mark(address, len);
        }
    }

    /// A guest's address that was written and could not be logged.
    #[must_use]
    pub fn missed(&self) -> Option<u64> {
        self.log.as_ref()?.missed()
    }

    /// The place of an address of the client's process, if `len` bytes from there on are in one region.
    #[must_use]
    pub fn of_user(&self, address: u64, len: usize) -> Option<Place> {
        self.all.iter().enumerate().find_map(|(region, Region { at, .. })| {
            let inside = address.checked_sub(at.user)?;
            (inside.checked_add(len as u64)? <= at.size).then_some(Place { region, at: inside as usize })
        })
    }

    /// The place of an address of the guest, and how many bytes there are from there on in its region.
    fn of_guest(&self, address: u64) -> Option<(Place, u64)> {
        self.all.iter().enumerate().find_map(|(region, Region { at, .. })| {
            let inside = address.checked_sub(at.guest).filter(|inside| *inside < at.size)?;
            Some((Place { region, at: inside as usize }, at.size - inside))
        })
    }

    /// Calls `each` with the places of `len` bytes from a guest's address on, which may be in regions that follow one
    /// another, and with the part of them that is there. `None` as soon as one is nowhere.
    fn walk(&self, mut address: u64, len: usize, mut each: impl FnMut(&Region, usize, usize, usize)) -> Option<()> {
        let mut done = 0;
        while done < len {
            let (place, there) = self.of_guest(address)?;
            let part = usize::try_from(there).unwrap_or(usize::MAX).min(len - done);
            each(&self.all[place.region], place.at, done, part);
            done += part;
            address = address.checked_add(part as u64)?;
        }
        Some(())
    }

    /// Whether all bytes of a guest's addresses are there.
    #[must_use]
    pub fn has(&self, address: u64, len: usize) -> bool {
        self.walk(address, len, |_, _, _, _| {}).is_some()
    }

    /// Copies from a guest's address on.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let mut all = true;
        self.walk(address, into.len(), |region, at, done, part| {
            all &= region.memory.read(at, &mut into[done..done + part]).is_some();
        })?;
        all.then_some(())
    }

    /// Copies to a guest's address and on.
    pub fn write(&self, address: u64, from: &[u8]) -> Option<()> {
        let mut all = true;
        self.walk(address, from.len(), |region, at, done, part| {
            all &= region.memory.write(at, &from[done..done + part]).is_some();
            self.mark(region.at.guest + at as u64, part);
        })?;
        all.then_some(())
    }

    /// Copies from a place.
    pub fn read_at(&self, place: Place, into: &mut [u8]) -> Option<()> {
        self.all.get(place.region)?.memory.read(place.at, into)
    }

    /// Copies to a place.
    pub fn write_at(&self, place: Place, from: &[u8]) -> Option<()> {
        self.all.get(place.region)?.memory.write(place.at, from)
    }

    /// A number of 16 bits at a place that is a multiple of two: what was written before it is seen from now on.
    #[must_use]
    pub fn load(&self, place: Place) -> Option<u16> {
        // Memory has words of 32 bits, of which it is the first or the second half.
        let word = self.all.get(place.region)?.memory.load(place.at & !3)?.to_ne_bytes();
        let half = place.at & 2;
        Some(u16::from_le_bytes([word[half], word[half + 1]]))
    }

    /// Writes two numbers of 16 bits to a place that is a multiple of four: what was written before is seen by whoever
    /// sees these.
    pub fn store(&self, place: Place, first: u16, second: u16) -> Option<()> {
        let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
        self.all.get(place.region)?.memory.store(place.at, u32::from_ne_bytes([a, b, c, d]))
    }
}
