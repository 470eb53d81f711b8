//! A table with random keys: memory keys and queue pair numbers, which must be unguessable.

use std::collections::BTreeMap;

/// A source of random numbers: a cryptographic generator on a real wire, seeded in a simulation.
pub trait Generator: Send {
    /// The next number.
    fn next_u32(&mut self) -> u32;
}

impl<F: FnMut() -> u32 + Send> Generator for F {
    fn next_u32(&mut self) -> u32 {
        self()
    }
}

/// Values under random keys of up to 32 bits, each found with one lookup.
///
/// The low bits of a key are its slot. A key is drawn again if its slot is occupied, so there is no probing. When half of the slots are
/// occupied, the table doubles. Keys that were drawn elsewhere cannot be drawn again; if their slot is occupied, they are kept in a
/// separate map.
#[derive(Debug)]
pub(crate) struct RandomTable<T> {
    slots: Vec<Option<(u32, T)>>,
    strays: BTreeMap<u32, T>,
    /// Number of values, including those in the separate map.
    len: usize,
    key_mask: u32,
}

impl<T> RandomTable<T> {
    /// An empty table, with keys of `key_bits` bits.
    pub(crate) fn new(key_bits: u32) -> RandomTable<T> {
        let slots = std::iter::repeat_with(|| None).take(16).collect();
        RandomTable { slots, strays: BTreeMap::new(), len: 0, key_mask: u32::MAX >> (32 - key_bits.clamp(8, 32)) }
    }

    #[inline]
    fn place(&self, key: u32) -> usize {
        key as usize & (self.slots.len() - 1)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Draws keys until one is free and not `reserved`, and stores `value(key)` there. Returns `None` if no key is left.
    pub(crate) fn insert(
        &mut self,
        random: &mut dyn Generator,
        reserved: impl Fn(u32) -> bool,
        value: impl FnOnce(u32) -> T,
    ) -> Option<u32> {
        if (self.len + 1) * 2 > self.slots.len() {
            if self.slots.len() > self.key_mask as usize / 2 {
                return None;
            }
            self.grow();
        }
        loop {
            let key = random.next_u32() & self.key_mask;
            let at = self.place(key);
            if self.slots[at].is_none() && !reserved(key) && !self.strays.contains_key(&key) {
                self.slots[at] = Some((key, value(key)));
                self.len += 1;
                return Some(key);
            }
        }
    }

    /// Stores a value under a key that was drawn elsewhere; returns `false` if the key is in use, or no key is left.
    pub(crate) fn insert_as(&mut self, key: u32, value: T) -> bool {
        let key = key & self.key_mask;
        if self.get(key).is_some() {
            return false;
        }
        if (self.len + 1) * 2 > self.slots.len() {
            if self.slots.len() > self.key_mask as usize / 2 {
                return false;
            }
            self.grow();
        }
        self.put(key, value);
        self.len += 1;
        true
    }

    fn put(&mut self, key: u32, value: T) {
        let at = self.place(key);
        match &mut self.slots[at] {
            slot @ None => *slot = Some((key, value)),
            Some(_) => _ = self.strays.insert(key, value),
        }
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, std::iter::repeat_with(|| None).take(size).collect());
        for (key, value) in old.into_iter().flatten().chain(std::mem::take(&mut self.strays)) {
            self.put(key, value);
        }
    }

    /// The value under `key`.
    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        match &self.slots[self.place(key)] {
            Some((k, value)) if *k == key => Some(value),
            _ => self.strays.get(&key),
        }
    }

    /// The value under `key`, as a mutable reference.
    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        let at = self.place(key);
        match &mut self.slots[at] {
            Some((k, value)) if *k == key => Some(value),
            _ => self.strays.get_mut(&key),
        }
    }

    /// Removes the value under `key`.
    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let at = self.place(key);
        match self.slots[at].take() {
            Some((k, value)) if k == key => {
                self.len -= 1;
                Some(value)
            }
            other => {
                self.slots[at] = other;
                let stray = self.strays.remove(&key);
                self.len -= usize::from(stray.is_some());
                stray
            }
        }
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value).chain(self.strays.values())
    }

    /// All values, as mutable references.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|(_, value)| value).chain(self.strays.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_from(mut state: u32) -> impl FnMut() -> u32 + Send {
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state ^ state >> 13
        }
    }

    #[test]
    fn keys_survive_growth_and_removal() {
        let mut random = random_from(7);
        let mut table = RandomTable::new(24);
        let keys: Vec<u32> = (0..5000).map(|i| table.insert(&mut random, |k| k < 2, |_| i).unwrap()).collect();
        assert!(keys.iter().all(|&k| (2..1 << 24).contains(&k)));
        for (i, &k) in keys.iter().enumerate() {
            assert_eq!(table.get(k), Some(&i));
        }
        assert_eq!(table.get(keys[9] ^ 1 << 23), None, "a key that shares its place is another key");
        assert_eq!(table.remove(keys[9]), Some(9));
        assert_eq!((table.remove(keys[9]), table.get(keys[9]), table.len), (None, None, 4999));
    }

    /// A table that doubled until no two of these keys shared a slot would be as large as the square of their number.
    #[test]
    fn keys_that_were_drawn_elsewhere_make_a_table_no_larger_than_its_own() {
        let mut random = random_from(9);
        let mut table = RandomTable::new(24);
        let mut keys: Vec<u32> = (0..1000).map(|_| random() & 0xff_ffff).collect();
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.iter().all(|&key| table.insert_as(key, key)));
        assert!(!table.insert_as(keys[5], 0), "it is there");
        assert_eq!((table.slots.len(), table.values().count()), (2048, keys.len()));
        assert!(!table.strays.is_empty(), "some of a thousand share a place");
        let own = table.insert(&mut random, |_| false, |key| key).unwrap();
        assert!(keys.iter().chain([&own]).all(|&key| table.get(key) == Some(&key)));
        assert!(keys.iter().all(|&key| table.get_mut(key).is_some() && table.remove(key) == Some(key)));
        assert_eq!((table.len(), table.remove(keys[5])), (1, None));
    }
}
