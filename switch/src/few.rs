//! A list that lies with its owner as long as it is short, so that a look at both is a look at one piece of memory.

use std::ops::{Deref, DerefMut};

/// A list of any length; up to `N` in place.
#[derive(Debug, Clone)]
pub(crate) struct Few<T, const N: usize> {
    len: usize,
    near: [T; N],
    /// All of them, where they are more.
    far: Box<[T]>,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// These; `none` is what places without any hold.
    pub(crate) fn new(all: Vec<T>, none: T) -> Few<T, N> {
        let (len, mut near) = (all.len(), [none; N]);
        let far = match near.get_mut(..len) {
            Some(near) => {
                near.copy_from_slice(&all);
                Box::default()
            }
            None => all.into(),
        };
        Few { len, near, far }
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.near.get(..self.len).unwrap_or(&self.far)
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.near.get_mut(..self.len).unwrap_or(&mut self.far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_what_it_was_made_of_near_or_far() {
        for len in 0..10 {
            let all: Vec<usize> = (1..=len).collect();
            let mut few = Few::<usize, 4>::new(all.clone(), 0);
            assert_eq!((&*few, few.far.is_empty()), (&*all, len <= 4));
            if let Some(last) = few.last_mut() {
                *last += 1;
                assert_eq!(few.last(), Some(&(len + 1)));
            }
        }
    }
}
