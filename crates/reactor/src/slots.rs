//! Tables whose ids tell a former occupant of a slot from the present one.

/// A place in a table, and which of its occupants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) Key);
    };
}

key!(/// A connection. Ids of ended connections are recognised and never refer to a newer one.
    ConnId);
key!(/// A listening socket.
    ListenerId);
key!(/// An open device.
    FileId);

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values at stable indexes.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    /// Values in the table.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts `value` into a free slot.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("tables are bounded far below 2^32 slots")
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.value.is_none());
        slot.value = Some(value);
        Key { index, generation: slot.generation }
    }

    /// The value that `key` was made for, if that is still there.
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    /// The index of `key`, if its value is still there.
    pub(crate) fn index(&self, key: Key) -> Option<u32> {
        self.get(key).map(|_| key.index)
    }

    /// The value at `index`, which must be occupied.
    pub(crate) fn at(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].value.as_mut().expect("an operation's owner stays in its slot until the completion")
    }

    /// The key of the present occupant of `index`.
    pub(crate) fn key(&self, index: u32) -> Key {
        Key { index, generation: self.slots[index as usize].generation }
    }

    /// Voids the keys of the present occupant, which stays.
    pub(crate) fn void(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// Takes the value out and voids its keys.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        self.void(index);
        self.free.push(index);
        self.slots[index as usize].value.take().expect("a slot is freed once")
    }

    /// The indexes of all values.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.value.is_some()).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_occupant_is_not_the_present_one() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(slots.get(first), Some(&"first"));
        let index = slots.index(first).unwrap();
        slots.void(index);
        assert_eq!(slots.get(first), None);
        assert_eq!(*slots.at(index), "first");
        assert_eq!(slots.remove(index), "first");
        let second = slots.insert("second");
        assert_eq!(slots.index(second), Some(index), "a free slot was not used again");
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get(second), Some(&"second"));
        assert_eq!(slots.len(), 1);
    }
}
