//! Order without a copy of the sort for each type: the standard library's sorts take five thousand bytes of
//! the program for each element type and comparison, and so does collecting into a `BTreeMap` or a
//! `BTreeSet`, which sorts what it is given. Here one function sorts places, whatever lies there, and what
//! lies there is moved afterwards; maps and sets take their entries one by one.
//!
//! This is for lists that are shown, written or looked at now and then: each comparison is a call by a
//! pointer. Where many small numbers are sorted often, the standard library's `sort_unstable` stays right.

use std::cmp::Ordering;

/// Sorts by a comparison; equal elements keep their order. A panic of the comparison leaves the list as it
/// was.
pub fn by<T>(list: &mut [T], mut order: impl FnMut(&T, &T) -> Ordering) {
    let places = places(list.len(), &mut |a, b| order(&list[a], &list[b]));
    put(list, places);
}

/// Sorts by a key, which is asked for at each comparison; equal elements keep their order.
pub fn by_key<T, K: Ord>(list: &mut [T], mut key: impl FnMut(&T) -> K) {
    by(list, |a, b| key(a).cmp(&key(b)));
}

/// Sorts by the elements' own order, the least first.
pub fn up<T: Ord>(list: &mut [T]) {
    by(list, T::cmp);
}

/// Collecting one by one, for what sorts otherwise: `BTreeMap`, `BTreeSet` and `serde_json::Map`.
pub trait Gather: Iterator + Sized {
    /// What collecting makes of the same; of two entries with the same key the later counts.
    fn gather<C: Default + Extend<Self::Item>>(self) -> C {
        let mut all = C::default();
        all.extend(self);
        all
    }
}

impl<I: Iterator> Gather for I {}

/// For each place of the sorted list the place where its element lies now.
fn places(count: usize, order: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    if count > 1 {
        places.sort_by(|a, b| order(*a, *b));
    }
    places
}

/// Moves each element to its place: along each circle of places, one exchange an element.
fn put<T>(list: &mut [T], mut places: Vec<usize>) {
    for start in 0..places.len() {
        let mut to = start;
        loop {
            let from = std::mem::replace(&mut places[to], to);
            if from == start {
                break;
            }
            list.swap(to, from);
            to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Numbers that repeat, the same for the same seed.
    fn numbers(seed: u64, count: usize, most: u64) -> Vec<u64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn any_list_is_sorted_as_the_standard_library_does_and_equals_keep_their_order() {
        for seed in 0..60 {
            for count in [0, 1, 2, 3, 19, 20, 21, 64, 257, 1000] {
                for most in [1, 2, 7, u64::MAX] {
                    let keys = numbers(seed, count, most);
                    let mut list: Vec<(u64, String)> =
                        keys.iter().enumerate().map(|(at, key)| (*key, at.to_string())).collect();
                    let mut wanted = list.clone();
                    wanted.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
                    by_key(&mut list, |(key, _)| std::cmp::Reverse(*key));
                    assert_eq!(list, wanted, "seed {seed}, {count} elements below {most}");
                    wanted.sort();
                    up(&mut list);
                    assert_eq!(list, wanted);
                    wanted.sort_by(|a, b| b.1.cmp(&a.1));
                    by(&mut list, |a, b| b.1.cmp(&a.1));
                    assert_eq!(list, wanted);
                }
            }
        }
    }

    #[test]
    fn a_map_and_a_set_are_what_collecting_makes() {
        for most in [1, 5, 1000] {
            let pairs: Vec<(u64, usize)> = numbers(7, 300, most).into_iter().zip(0..).collect();
            let pairs = || pairs.iter().copied();
            assert_eq!(pairs().gather::<BTreeMap<_, _>>(), pairs().collect::<BTreeMap<_, _>>());
            let keys = || pairs().map(|(key, _)| key);
            assert_eq!(keys().gather::<BTreeSet<_>>(), keys().collect::<BTreeSet<_>>());
        }
        assert!(std::iter::empty::<(u8, u8)>().gather::<BTreeMap<_, _>>().is_empty());
    }

    #[test]
    fn a_comparison_that_panics_leaves_the_list_whole() {
        let mut list: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let before = list.clone();
        let mut left = 30;
        let sorting = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            by(&mut list, |a, b| {
                left -= 1;
                assert!(left > 0, "enough");
                b.cmp(a)
            });
        }));
        assert!(sorting.is_err());
        assert_eq!(list, before);
    }
}
