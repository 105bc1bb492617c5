//! Slab for what is under way or open: values at places that are used again when free.

/// Values by token. A token names one occupant of a place: that of a former occupant finds nothing.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Counts the place's occupants.
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps a value; answers its token.
    ///
    /// # Panics
    /// When there are 2^32 values.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("slabs are bounded far below 2^32 values")
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.value.is_none(), "a free place is empty");
        slot.value = Some(value);
        self.token(index)
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True when there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a token.
    #[must_use]
    pub fn get(&self, token: u64) -> Option<&T> {
        let slot = self.slots.get(token as u32 as usize)?;
        if u64::from(slot.generation) == token >> 32 { slot.value.as_ref() } else { None }
    }

    /// The value of a token, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        if u64::from(slot.generation) == token >> 32 { slot.value.as_mut() } else { None }
    }

    /// Takes a token's value out; the token finds nothing from here on.
    pub fn remove(&mut self, token: u64) -> Option<T> {
        let index = self.index(token)?;
        Some(self.take(index))
    }

    /// All values, in the order of their places.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().filter_map(|slot| slot.value)
    }

    /// All values with their tokens, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let slots = (0u64..).zip(&self.slots);
        slots.filter_map(|(index, slot)| Some((u64::from(slot.generation) << 32 | index, slot.value.as_ref()?)))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let slots = (0u64..).zip(&mut self.slots);
        slots.filter_map(|(index, slot)| Some((u64::from(slot.generation) << 32 | index, slot.value.as_mut()?)))
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// All values, in the order of their places.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// The place of a token's value.
    #[must_use]
    pub fn index(&self, token: u64) -> Option<u32> {
        self.get(token).map(|_| token as u32)
    }

    /// The places of all values.
    pub fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.value.is_some()).map(|(index, _)| index)
    }

    /// The value at a place.
    ///
    /// # Panics
    /// When the place is empty.
    pub fn at(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].value.as_mut().expect("the place has a value")
    }

    /// The token of the present occupant of a place.
    ///
    /// # Panics
    /// When there is no such place.
    #[must_use]
    pub fn token(&self, index: u32) -> u64 {
        u64::from(self.slots[index as usize].generation) << 32 | u64::from(index)
    }

    /// Voids the tokens of the present occupant of a place, which stays.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn void(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// Takes the value at a place out, and voids its tokens.
    ///
    /// # Panics
    /// When the place is empty.
    pub fn take(&mut self, index: u32) -> T {
        self.void(index);
        let value = self.slots[index as usize].value.take().expect("a place is emptied once");
        self.free.push(index);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_occupant_is_not_the_present_one() {
        let mut slab = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.get(first), Some(&"first"));
        let index = slab.index(first).unwrap();
        slab.void(index);
        assert_eq!(slab.get(first), None);
        assert_eq!(*slab.at(index), "first");
        assert_eq!(slab.take(index), "first");
        let second = slab.insert("second");
        assert_eq!(slab.index(second), Some(index), "a free place was not used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(second, &"second")]);
        assert!(slab.iter_mut().eq([(second, &mut "second")]));
        assert_eq!(slab.len(), 1);
        assert_eq!((slab.remove(second), slab.remove(second)), (Some("second"), None));
        assert!(slab.is_empty());
    }
}
