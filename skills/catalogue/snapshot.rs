//! All skills at one generation: immutable, shared by all readers.
//!
//! **Invariant:** every order holds every entry exactly once, sorted; ties end in the id.

use super::entry::Entry;
use super::haystack::Haystack;
use super::query::{ListQuery, Sort};
use crate::hex;
use crate::model::{Author, Category, Status};
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
    /// Which.
    pub generation: u64,
    entries: Vec<Arc<Entry>>,
    /// Of each entry, side by side: what every search looks at.
    facets: Vec<(Category, Status)>,
    /// The texts of all entries, made by the first search that needs them, kept while no text changes.
    haystack: OnceLock<Arc<Haystack>>,
    by_id: Arc<HashMap<String, u32>>,
    authors: Arc<HashMap<String, Arc<Author>>>,
    orders: [Vec<u32>; 4],
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
            facets: self.facets.clone(),
            haystack: self.haystack.clone(),
            by_id: Arc::clone(&self.by_id),
            authors: Arc::clone(&self.authors),
            orders: self.orders.clone(),
            listed: self.listed,
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
                next.orders[sort as usize].sort_by(|a, b| compare(sort, at(entries, *a), at(entries, *b)));
            }
        }
        next
    }

    fn put(&mut self, entry: Arc<Entry>, sort_later: bool) {
        let known = self.by_id.get(&entry.skill.id).copied();
        let category = entry.skill.category as usize;
        self.listed[category] += usize::from(entry.is_listed());
        let facet = (entry.skill.category, entry.skill.status);
        let Some(index) = known else {
            // More skills than 2^32 do not fit into memory long before.
            let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
            Arc::make_mut(&mut self.by_id).insert(entry.skill.id.clone(), index);
            self.entries.push(entry);
            self.facets.push(facet);
            self.haystack = OnceLock::new();
            for sort in Sort::ALL {
                let place =
                    if sort_later { Err(self.orders[sort as usize].len()) } else { self.place(sort, index) };
                self.orders[sort as usize].insert(place.unwrap_or_else(|place| place), index);
            }
            return;
        };
        let before = Arc::clone(&self.entries[index as usize]);
        self.listed[before.skill.category as usize] -= usize::from(before.is_listed());
        self.facets[index as usize] = facet;
        if before.text != entry.text {
            self.haystack = OnceLock::new();
        }
        if sort_later {
            self.entries[index as usize] = entry;
            return;
        }
        for sort in Sort::ALL {
            if compare(sort, &before, &entry) == Ordering::Equal {
                continue;
            }
            // Found by the old key, inserted by the new one.
            if let Ok(place) = self.place(sort, index) {
                self.orders[sort as usize].remove(place);
            }
            self.entries[index as usize] = Arc::clone(&entry);
            let place = self.place(sort, index).unwrap_or_else(|place| place);
            self.orders[sort as usize].insert(place, index);
            self.entries[index as usize] = Arc::clone(&before);
        }
        self.entries[index as usize] = entry;
    }

    fn place(&self, sort: Sort, index: u32) -> Result<usize, usize> {
        let entry = at(&self.entries, index);
        self.orders[sort as usize].binary_search_by(|other| compare(sort, at(&self.entries, *other), entry))
    }

    /// One skill.
    pub fn get(&self, id: &str) -> Option<&Arc<Entry>> {
        self.by_id.get(id).map(|index| &self.entries[*index as usize])
    }

    /// One author.
    pub fn author(&self, id: &str) -> Option<&Author> {
        self.authors.get(id).map(AsRef::as_ref)
    }

    /// All skills, in the order in which they came.
    pub fn entries(&self) -> &[Arc<Entry>] {
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
        let matching = self.matching(query);
        let mut counts = [0; 6];
        let mut total = 0;
        let mut page = Vec::with_capacity(query.limit);
        for index in &self.orders[query.sort as usize] {
            if !matching[*index as usize] {
                continue;
            }
            let (category, _) = self.facets[*index as usize];
            counts[category as usize] += 1;
            if query.category.is_some_and(|wanted| wanted != category) {
                continue;
            }
            if total >= query.offset && page.len() < query.limit {
                page.push(at(&self.entries, *index));
            }
            total += 1;
        }
        (page, total, counts)
    }

    /// For each entry whether it fits everything but the category.
    fn matching(&self, query: &ListQuery) -> Vec<bool> {
        let mut matching = if query.words.is_empty() {
            vec![true; self.entries.len()]
        } else {
            let texts = || Arc::new(Haystack::of(self.entries.iter().map(|entry| &*entry.text)));
            self.haystack.get_or_init(texts).holding(&query.words)
        };
        for (matches, (_, status)) in matching.iter_mut().zip(&self.facets) {
            *matches &= query.status.is_none_or(|wanted| wanted == *status);
        }
        if let Some(author) = &query.author {
            for (matches, entry) in matching.iter_mut().zip(&self.entries) {
                *matches = *matches && entry.skill.author_id == *author;
            }
        }
        matching
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
            "{category}/{status}/{}/{}/{}/{}/{}",
            query.sort.word(),
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
        let facets = self.entries.iter().map(|e| (e.skill.category, e.skill.status));
        assert!(facets.eq(self.facets.iter().copied()));
        for category in Category::ALL {
            let listed =
                self.entries.iter().filter(|e| e.is_listed() && e.skill.category == *category).count();
            assert_eq!(self.listed[*category as usize], listed);
        }
    }
}

fn at(entries: &[Arc<Entry>], index: u32) -> &Entry {
    &entries[index as usize]
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
