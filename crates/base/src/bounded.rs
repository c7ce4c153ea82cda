//! Lists and maps that hold so much and no more: for what is new there goes what is oldest, or counts least.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

/// Puts `item` behind the others; of more than `most` the first ones go.
pub fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    list.push_back(item);
    while list.len() > most {
        list.pop_front();
    }
}

/// Makes room for an entry of `key`: from a map of `most` that does not have it, the one of the least `rank`
/// goes, the first of several.
pub fn make_room<K, Q, V, R>(map: &mut BTreeMap<K, V>, key: &Q, most: usize, rank: impl Fn(&V) -> R)
where
    K: Ord + Clone + Borrow<Q>,
    Q: Ord + ?Sized,
    R: Ord,
{
    if map.len() < most || map.contains_key(key) {
        return;
    }
    let least = map.iter().min_by_key(|(_, value)| rank(value)).map(|(key, _)| key.clone());
    if let Some(least) = least {
        map.remove(least.borrow());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_full_list_the_first_one_goes() {
        let mut list = VecDeque::new();
        for item in 1..=4 {
            push(&mut list, item, 3);
        }
        assert_eq!(list, [2, 3, 4]);
    }

    #[test]
    fn of_a_full_map_the_least_one_goes_unless_the_key_is_known() {
        let full = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1), ("c".to_owned(), 1)]);
        for (key, most, left) in [("a", 3, "abc"), ("d", 4, "abc"), ("d", 3, "ac")] {
            let mut map = full.clone();
            make_room(&mut map, key, most, |value| *value);
            assert_eq!(map.into_keys().collect::<String>(), left, "{key} {most}");
        }
    }
}
