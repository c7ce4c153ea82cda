//! A list that is cheap to copy: its parts are shared until one of them changes.

use std::sync::Arc;

/// Items in one part; a power of two.
const PART: usize = 512;

/// The list.
#[derive(Debug)]
pub struct Shelf<T> {
    parts: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), len: self.len }
    }
}

impl<T: Clone> Shelf<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The item at `index`, which has to be there.
    pub fn at(&self, index: usize) -> &T {
        &self.parts[index / PART][index % PART]
    }

    /// Puts another item in the place of one that is there.
    pub fn set(&mut self, index: usize, item: T) {
        Arc::make_mut(&mut self.parts[index / PART])[index % PART] = item;
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) {
        if self.len.is_multiple_of(PART) {
            self.parts.push(Arc::new(Vec::with_capacity(PART)));
        }
        if let Some(part) = self.parts.last_mut() {
            Arc::make_mut(part).push(item);
            self.len += 1;
        }
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shares_all_parts_but_the_changed_one() {
        let mut shelf = Shelf::default();
        for n in 0..3 * PART + 7 {
            shelf.push(n);
        }
        let before = shelf.clone();
        shelf.set(PART + 1, 0);
        shelf.push(1);
        assert_eq!((before.len(), shelf.len(), *before.at(PART + 1)), (3 * PART + 7, 3 * PART + 8, PART + 1));
        assert_eq!((*shelf.at(PART + 1), *shelf.at(3 * PART + 7)), (0, 1));
        let shared = before.parts.iter().zip(&shelf.parts).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, 2);
        assert!(before.iter().copied().eq(0..3 * PART + 7));
    }
}
