//! An ordered map whose copies share what they have in common: a change after a copy copies one chunk and the
//! list of chunks, not all that the map holds. For state that is published after every event, so that it is
//! never alone when it is changed.

use crate::recorded::{self, Reader, Recorded};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Entries of a chunk at most; a full one is cut in two.
const CHUNK: usize = 64;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// The map. A copy costs the same however much it holds; `K` and `V` are copied with their chunk, so both
/// should be small (an `Arc` of what is large).
pub struct ChunkedMap<K, V> {
    /// In order, none of them empty.
    chunks: Arc<Vec<Chunk<K, V>>>,
    len: usize,
}

impl<K, V> Clone for ChunkedMap<K, V> {
    fn clone(&self) -> Self {
        Self { chunks: Arc::clone(&self.chunks), len: self.len }
    }
}

impl<K, V> Default for ChunkedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Arc::default(), len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for ChunkedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(k, v)| (k, v))).finish()
    }
}

impl<K, V> ChunkedMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    /// The values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> ChunkedMap<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (chunk, at) = self.find(key).ok()?;
        Some(&self.chunks[chunk][at].1)
    }

    /// Whether the key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// The chunk and the place in it where a key stands, or where it would have to.
    fn find(&self, key: &K) -> Result<(usize, usize), (usize, usize)> {
        let after = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first <= key));
        let chunk = after.saturating_sub(1);
        let Some(entries) = self.chunks.get(chunk) else { return Err((0, 0)) };
        match entries.binary_search_by(|(known, _)| known.cmp(key)) {
            Ok(at) => Ok((chunk, at)),
            Err(at) => Err((chunk, at)),
        }
    }
}

impl<K: Ord + Clone, V: Clone> ChunkedMap<K, V> {
    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (chunk, at) = self.find(key).ok()?;
        Some(&mut self.chunk_mut(chunk)[at].1)
    }

    /// The value of a key, to be changed; `make` gives the first one.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (chunk, at) = match self.find(&key) {
            Ok(place) => place,
            Err(place) => self.insert_at(place, key, make()),
        };
        &mut self.chunk_mut(chunk)[at].1
    }

    /// Gives a key its value; the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok((chunk, at)) => Some(std::mem::replace(&mut self.chunk_mut(chunk)[at].1, value)),
            Err(place) => {
                self.insert_at(place, key, value);
                None
            }
        }
    }

    /// Takes a key out; its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (chunk, at) = self.find(key).ok()?;
        self.len -= 1;
        let entries = self.chunk_mut(chunk);
        let (_, value) = entries.remove(at);
        if entries.is_empty() {
            Arc::make_mut(&mut self.chunks).remove(chunk);
        }
        Some(value)
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut Vec<(K, V)> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[chunk])
    }

    /// Puts an entry where [`Self::find`] says that it belongs; where it then stands.
    fn insert_at(&mut self, (chunk, at): (usize, usize), key: K, value: V) -> (usize, usize) {
        self.len += 1;
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(entries) = chunks.get_mut(chunk) else {
            chunks.push(Arc::new(vec![(key, value)]));
            return (0, 0);
        };
        let entries = Arc::make_mut(entries);
        entries.insert(at, (key, value));
        if entries.len() <= CHUNK {
            return (chunk, at);
        }
        // At its end, as growing keys come, the full one stays full.
        let cut = if at + 1 == entries.len() { at } else { CHUNK / 2 };
        let rest = entries.split_off(cut);
        chunks.insert(chunk + 1, Arc::new(rest));
        if at < cut { (chunk, at) } else { (chunk + 1, at - cut) }
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for ChunkedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K: Recorded + Ord + Clone, V: Recorded + Clone> Recorded for ChunkedMap<K, V> {
    const SHAPE: u64 = BTreeMap::<K, V>::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        recorded::number(self.len as u64, to);
        for (key, value) in self.iter() {
            key.write(to);
            value.write(to);
        }
    }

    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    extern "C" fn read(from: &mut Reader) -> Self {
        let (count, mut all) = (from.number(), Self::default());
        for _ in 0..count {
            if from.is_broken() {
                break;
            }
            let key = K::read(from);
            all.insert(key, V::read(from));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A generator of numbers for tests (splitmix64).
    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 27)
    }

    #[test]
    fn it_does_what_an_ordered_map_does_and_copies_stay_as_they_were() {
        for seed in 0..20 {
            let mut random_state = seed;
            let (mut map, mut model) = (ChunkedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in 0..2_000 {
                let key = random(&mut random_state) % 700;
                match random(&mut random_state) % 5 {
                    0 | 1 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                    2 => assert_eq!(map.remove(&key), model.remove(&key)),
                    3 => {
                        *map.get_or_insert_with(key, || step) += 1;
                        *model.entry(key).or_insert(step) += 1;
                    }
                    _ => {
                        if let Some(value) = map.get_mut(&key) {
                            *value += 7;
                        }
                        model.entry(key).and_modify(|value| *value += 7);
                    }
                }
                assert_eq!(map.get(&key), model.get(&key));
                if step % 400 == 0 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map, model));
            for (map, model) in copies {
                assert!(map.iter().eq(model.iter()), "seed {seed}");
                assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_change_after_a_copy_copies_one_chunk() {
        let mut map: ChunkedMap<u32, Arc<()>> = (0..10_000).map(|n| (n, Arc::new(()))).collect();
        let copy = map.clone();
        map.insert(5_000, Arc::new(()));
        let twice = map.values().filter(|value| Arc::strong_count(value) > 1).count();
        assert!(twice < CHUNK, "{twice} entries were copied");
        let shared = map.chunks.iter().filter(|chunk| Arc::strong_count(chunk) > 1).count();
        assert_eq!(shared, map.chunks.len() - 1);
        assert!(map.chunks.len() <= 10_000 / CHUNK + 1, "growing keys fill the chunks");
        drop(copy);
    }
}
