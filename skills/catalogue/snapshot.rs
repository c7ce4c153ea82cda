//! All skills at one generation: immutable, shared by all readers.
//!
//! **Invariant:** every order holds every entry exactly once, sorted; ties end in the id.

use super::entry::Entry;
use super::index::{self, Index, MAX_CHANGED};
use super::query::{ListQuery, Sort};
use super::shelf::Shelf;
use crate::hex;
use crate::model::{Author, Category, Skill, Status};
use crate::store::Changes;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// List bodies kept per snapshot.
const BODIES: usize = 256;
/// Bytes of list bodies kept per snapshot.
const BODIES_BYTES: usize = 8 << 20;
/// With more changes than this sorting anew is cheaper than moving one by one.
const MOVES: usize = 64;

/// What every search looks at in every entry. Following the pointers to the entries instead costs a miss of
/// the processor's caches each, which is most of what a search takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facet {
    category: Category,
    status: Status,
    /// Words of the name; the last number stands for more, too.
    name_words: u8,
}

impl Facet {
    fn of(entry: &Entry) -> Self {
        let words = entry.searched_name().split_whitespace().count();
        let Skill { category, status, .. } = entry.skill;
        Self { category, status, name_words: u8::try_from(words).unwrap_or(u8::MAX) }
    }
}

/// A body with its tag, shared by all who ask the same.
#[derive(Debug, Clone)]
pub struct Cached {
    /// The bytes.
    pub body: Arc<[u8]>,
    /// Entity tag, quotes included.
    pub etag: String,
    /// `Link` header.
    pub links: Option<String>,
}

/// The catalogue at one generation.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub generation: u64,
    entries: Shelf<Arc<Entry>>,
    /// Of each entry, side by side: what every search looks at.
    facets: Arc<Vec<Facet>>,
    /// The words of all entries, made by the first search that needs them.
    index: OnceLock<Arc<Index>>,
    /// Entries whose words the index does not know yet, at most [`MAX_CHANGED`].
    changed: Arc<Vec<u32>>,
    by_id: Arc<HashMap<String, u32>>,
    authors: Arc<HashMap<String, Arc<Author>>>,
    orders: [Arc<Vec<u32>>; 4],
    /// Listed skills per category, in the order of the categories.
    listed: [usize; 6],
    bodies: Mutex<(HashMap<String, Cached>, usize)>,
    registry: OnceLock<Cached>,
}

impl Snapshot {
    /// The next one.
    pub fn with(&self, changes: Changes, base_url: &str) -> Self {
        let mut next = Self {
            generation: changes.generation,
            entries: self.entries.clone(),
            facets: Arc::clone(&self.facets),
            index: self.index.clone(),
            changed: Arc::clone(&self.changed),
            by_id: Arc::clone(&self.by_id),
            authors: Arc::clone(&self.authors),
            orders: self.orders.clone(),
            listed: self.listed,
            // Encoded pages belong to one generation.
            bodies: Mutex::default(),
            registry: OnceLock::new(),
        };
        if !changes.authors.is_empty() {
            let authors = Arc::make_mut(&mut next.authors);
            authors.extend(changes.authors.into_iter().map(|a| (a.id.clone(), Arc::new(a))));
        }
        let sort_anew = changes.skills.len() > MOVES;
        for skill in changes.skills {
            next.put(Arc::new(Entry::new(skill, base_url)), sort_anew);
        }
        if sort_anew {
            let entries = &next.entries;
            for sort in Sort::ALL {
                Arc::make_mut(&mut next.orders[sort as usize])
                    .sort_by(|a, b| compare(sort, at(entries, *a), at(entries, *b)));
            }
        }
        next
    }

    fn put(&mut self, entry: Arc<Entry>, sort_later: bool) {
        let known = self.by_id.get(&entry.skill.id).copied();
        let category = entry.skill.category as usize;
        self.listed[category] += usize::from(entry.is_listed());
        let facet = Facet::of(&entry);
        let Some(index) = known else {
            // More skills than 2^32 do not fit into memory long before.
            let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
            Arc::make_mut(&mut self.by_id).insert(entry.skill.id.clone(), index);
            self.entries.push(entry);
            Arc::make_mut(&mut self.facets).push(facet);
            self.words_changed(index);
            for sort in Sort::ALL {
                let own = at(&self.entries, index);
                let place = if sort_later { Err(index as usize) } else { self.place(sort, own) };
                Arc::make_mut(&mut self.orders[sort as usize])
                    .insert(place.unwrap_or_else(|place| place), index);
            }
            return;
        };
        let before = Arc::clone(self.entries.at(index as usize));
        self.listed[before.skill.category as usize] -= usize::from(before.is_listed());
        if self.facets[index as usize] != facet {
            Arc::make_mut(&mut self.facets)[index as usize] = facet;
        }
        if !before.is_searched_like(&entry) {
            self.words_changed(index);
        }
        if !sort_later {
            for sort in Sort::ALL {
                self.move_in(sort, index, &before, &entry);
            }
        }
        self.entries.set(index as usize, entry);
    }

    /// Puts an entry whose key changes into its new place of an order; the order is copied only when that is
    /// another one.
    fn move_in(&mut self, sort: Sort, index: u32, before: &Entry, entry: &Entry) {
        if compare(sort, before, entry) == Ordering::Equal {
            return;
        }
        let (Ok(from), Err(to)) = (self.place(sort, before), self.place(sort, entry)) else { return };
        // Both are places in the order that still holds the entry by its old key.
        if to == from || to == from + 1 {
            return;
        }
        let order = Arc::make_mut(&mut self.orders[sort as usize]);
        order.remove(from);
        order.insert(if to > from { to - 1 } else { to }, index);
    }

    fn place(&self, sort: Sort, entry: &Entry) -> Result<usize, usize> {
        self.orders[sort as usize].binary_search_by(|other| compare(sort, at(&self.entries, *other), entry))
    }

    /// The index does not know the words of this entry; without an index that is no news.
    fn words_changed(&mut self, index: u32) {
        if self.index.get().is_none() || self.changed.contains(&index) {
            return;
        }
        if self.changed.len() < MAX_CHANGED {
            Arc::make_mut(&mut self.changed).push(index);
        } else {
            self.index = OnceLock::new();
            self.changed = Arc::default();
        }
    }

    /// One skill.
    pub fn get(&self, id: &str) -> Option<&Arc<Entry>> {
        self.by_id.get(id).map(|index| self.entries.at(*index as usize))
    }

    /// One author.
    pub fn author(&self, id: &str) -> Option<&Author> {
        self.authors.get(id).map(AsRef::as_ref)
    }

    /// All skills, in the order in which they came.
    pub fn entries(&self) -> &Shelf<Arc<Entry>> {
        &self.entries
    }

    /// Listed skills, most popular first.
    pub fn listed(&self) -> impl Iterator<Item = &Entry> {
        self.sorted(Sort::Popular).filter(|entry| entry.is_listed())
    }

    /// How many are listed.
    pub fn listed_count(&self) -> usize {
        self.listed.iter().sum()
    }

    fn sorted(&self, sort: Sort) -> impl Iterator<Item = &Entry> {
        self.orders[sort as usize].iter().map(|index| at(&self.entries, *index))
    }

    /// The entries of one page, the total, and the counts per category.
    pub fn find(&self, query: &ListQuery) -> (Vec<&Entry>, usize, [usize; 6]) {
        if query.words.is_empty() && query.author.is_none() && query.status == Some(Status::Published) {
            return self.find_listed(query);
        }
        // In the order of memory first, which is much quicker than in the order of the list.
        let weights = self.weights(query);
        let mut counts = [0; 6];
        let mut found = Vec::new();
        for index in self.orders[query.sort as usize].iter() {
            let weight = weights[*index as usize];
            if weight == 0 {
                continue;
            }
            let Facet { category, .. } = self.facets[*index as usize];
            counts[category as usize] += 1;
            if query.category.is_none_or(|wanted| wanted == category) {
                found.push((Reverse(weight), u32::try_from(found.len()).unwrap_or(u32::MAX), *index));
            }
        }
        let total = found.len();
        let end = query.offset.saturating_add(query.limit).min(total);
        if query.by_relevance {
            // Only what is shown has to be in order, and what comes before it.
            if end < total {
                found.select_nth_unstable(end);
            }
            found[..end].sort_unstable();
        }
        let page = found[query.offset.min(end)..end].iter();
        (page.map(|(.., index)| at(&self.entries, *index)).collect(), total, counts)
    }

    /// What each entry is worth for the search; 0 for those that do not fit everything but the category.
    fn weights(&self, query: &ListQuery) -> Vec<u16> {
        let mut weights: Vec<u16> = self
            .facets
            .iter()
            .map(|facet| u16::from(query.status.is_none_or(|wanted| wanted == facet.status)))
            .collect();
        if let Some(author) = &query.author {
            for (weight, entry) in weights.iter_mut().zip(self.entries.iter()) {
                *weight *= u16::from(entry.skill.author_id == *author);
            }
        }
        if query.words.is_empty() {
            return weights;
        }
        let mut worth = vec![0; weights.len()];
        for word in &query.words {
            let mut narrow = |repaired| self.narrow(word, repaired, &mut worth, &mut weights);
            // A word that stands somewhere is not misspelt: slips count only where nothing else fits.
            if !narrow(false) && !narrow(true) {
                // No entry fits all words, whatever the others are.
                weights.fill(0);
                return weights;
            }
        }
        if query.by_relevance {
            let words = u8::try_from(query.words.len()).unwrap_or(u8::MAX);
            for (at, weight) in weights.iter_mut().enumerate() {
                if *weight > 0 && self.facets[at].name_words == words {
                    let entry = self.entries.at(at);
                    *weight = weight.saturating_add(index::whole_name(entry, &query.words));
                }
            }
        }
        weights
    }

    /// Adds what each entry is worth for one word, and takes those away that do not fit it; `false`, with
    /// the weights as they were, when that would be all. `repaired`: the word is misspelt.
    fn narrow(&self, word: &str, repaired: bool, worth: &mut [u16], weights: &mut [u16]) -> bool {
        worth.fill(0);
        self.index.get_or_init(|| Arc::new(Index::of(&self.entries))).weigh(word, repaired, worth);
        // The index still has their old words: what it said of them is replaced.
        for changed in self.changed.iter() {
            let entry = self.entries.at(*changed as usize);
            worth[*changed as usize] = index::weigh_one(entry, word, repaired);
        }
        if !worth.iter().zip(&*weights).any(|(worth, weight)| *worth > 0 && *weight > 0) {
            return false;
        }
        for (weight, worth) in weights.iter_mut().zip(worth) {
            *weight = if *worth == 0 || *weight == 0 { 0 } else { weight.saturating_add(*worth) };
        }
        true
    }

    /// Without search, author and other status the counts are known already.
    fn find_listed(&self, query: &ListQuery) -> (Vec<&Entry>, usize, [usize; 6]) {
        let total =
            query.category.map_or_else(|| self.listed_count(), |category| self.listed[category as usize]);
        let wanted = |entry: &&Entry| {
            entry.is_listed() && query.category.is_none_or(|category| category == entry.skill.category)
        };
        let page = if query.offset >= total {
            Vec::new()
        } else {
            self.sorted(query.sort).filter(wanted).skip(query.offset).take(query.limit).collect()
        };
        (page, total, self.listed)
    }

    /// The body of a list, from the cache where it is there.
    pub fn list(&self, query: &ListQuery, path: &str) -> Cached {
        let status = query.status.map_or("all", Status::word);
        let category = query.category.map_or("", Category::word);
        let key = format!(
            "{category}/{status}/{}{}/{}/{}/{}/{}",
            query.sort.word(),
            if query.by_relevance { "*" } else { "" },
            query.limit,
            query.offset,
            query.author.as_deref().unwrap_or_default(),
            query.search
        );
        if let Some(cached) = self.bodies.lock().unwrap_or_else(PoisonError::into_inner).0.get(&key) {
            return cached.clone();
        }
        let (page, total, counts) = self.find(query);
        let mut body = Vec::with_capacity(page.iter().map(|entry| entry.json.len() + 1).sum::<usize>() + 300);
        body.extend_from_slice(b"{\"skills\":");
        join(&mut body, page.iter().copied());
        body.extend_from_slice(format!(",\"total\":{total},\"categories\":[").as_bytes());
        for (at, category) in Category::ALL.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let part = format!("{comma}{{\"id\":\"{category}\",\"count\":{}}}", counts[at]);
            body.extend_from_slice(part.as_bytes());
        }
        body.extend_from_slice(b"]}");
        // The tags of the parts stand for the parts: hashing them is quicker than hashing the body.
        let mut parts: String = page.iter().map(|entry| entry.etag.as_str()).collect();
        let _ = write!(parts, "{total}{counts:?}");
        let cached = Cached { etag: tag(&parts), body: body.into(), links: query.links(path, total) };
        self.keep(key, &cached);
        cached
    }

    fn keep(&self, key: String, cached: &Cached) {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        if bodies.0.len() < BODIES && bodies.1 + cached.body.len() <= BODIES_BYTES {
            bodies.1 += cached.body.len();
            bodies.0.insert(key, cached.clone());
        }
    }

    /// The legacy registry: a bare array of the listed skills.
    pub fn registry(&self) -> &Cached {
        self.registry.get_or_init(|| {
            let mut body = Vec::new();
            join(&mut body, self.listed());
            let parts: String = self.listed().map(|entry| entry.etag.as_str()).collect();
            Cached { etag: tag(&parts), body: body.into(), links: None }
        })
    }

    /// Checks the invariant; for tests.
    #[cfg(test)]
    pub fn assert_sound(&self) {
        for sort in Sort::ALL {
            let order = &self.orders[sort as usize];
            assert_eq!(order.len(), self.entries.len());
            assert!(
                order.is_sorted_by(|a, b| {
                    compare(sort, at(&self.entries, *a), at(&self.entries, *b)) == Ordering::Less
                }),
                "{sort:?}"
            );
        }
        let facets = self.entries.iter().map(|entry| Facet::of(entry));
        assert!(facets.eq(self.facets.iter().copied()));
        for category in Category::ALL {
            let listed =
                self.entries.iter().filter(|e| e.is_listed() && e.skill.category == *category).count();
            assert_eq!(self.listed[*category as usize], listed);
        }
    }
}

fn at(entries: &Shelf<Arc<Entry>>, index: u32) -> &Entry {
    entries.at(index as usize)
}

fn compare(sort: Sort, a: &Entry, b: &Entry) -> Ordering {
    let first = match sort {
        Sort::Popular => b.skill.downloads.cmp(&a.skill.downloads),
        Sort::Rating => (Reverse(a.rating), Reverse(a.raters)).cmp(&(Reverse(b.rating), Reverse(b.raters))),
        Sort::Newest => b.skill.created_at.cmp(&a.skill.created_at),
        Sort::Name => a.folded_name.cmp(&b.folded_name),
    };
    first.then_with(|| a.skill.id.cmp(&b.skill.id))
}

fn join<'a>(body: &mut Vec<u8>, entries: impl Iterator<Item = &'a Entry>) {
    body.push(b'[');
    for (at, entry) in entries.enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&entry.json);
    }
    body.push(b']');
}

fn tag(parts: &str) -> String {
    format!("\"{}\"", &hex::sha256(parts.as_bytes())[..20])
}
