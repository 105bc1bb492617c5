//! Slab for what is under way: small numbers, used again when free.

/// Values by token.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u64>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps a value; answers its token.
    pub fn insert(&mut self, value: T) -> u64 {
        match self.free.pop() {
            Some(token) => {
                self.slots[token as usize] = Some(value);
                token
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u64 - 1
            }
        }
    }

    /// All values, in the order of their tokens.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().flatten()
    }

    /// All values, in the order of their tokens.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// Takes a value out; its token may be used again.
    pub fn remove(&mut self, token: u64) -> Option<T> {
        let value = self.slots.get_mut(token as usize)?.take()?;
        self.free.push(token);
        Some(value)
    }
}
