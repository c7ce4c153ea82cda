//! What is served: all skills in memory, one generation at a time.
//!
//! **Invariant:** a snapshot is whole and never changes; after [`Catalogue::reach`] of a write's generation
//! every request sees that write.

pub mod entry;
mod index;
pub mod query;
mod shelf;
pub mod snapshot;
#[cfg(test)]
mod tests;

use crate::store::{Store, StoreError};
use snapshot::Snapshot;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Bytes of contents kept in memory; when they are reached, all are dropped.
const CONTENTS_BYTES: usize = 8 << 20;

/// The catalogue of one store.
pub struct Catalogue {
    store: Arc<dyn Store>,
    base_url: String,
    current: RwLock<Arc<Snapshot>>,
    refreshing: Mutex<()>,
    contents: Mutex<(HashMap<String, Arc<str>>, usize)>,
}

impl Catalogue {
    /// Loads everything. `base_url` goes into `contentUrl`.
    pub fn load(store: Arc<dyn Store>, base_url: String) -> Result<Self, StoreError> {
        let snapshot = Snapshot::default().with(store.changes_since(0)?, &base_url);
        Ok(Self {
            store,
            base_url,
            current: RwLock::new(Arc::new(snapshot)),
            refreshing: Mutex::default(),
            contents: Mutex::default(),
        })
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The store behind it.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Where the service is found from outside, without a slash at the end.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Brings the catalogue to a generation at least. Of many callers one works, the others wait for it.
    pub fn reach(&self, generation: u64) -> Result<Arc<Snapshot>, StoreError> {
        let now = self.snapshot();
        if now.generation >= generation {
            return Ok(now);
        }
        // One reads the changes for all; who waited here most often finds them there.
        let _turn = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        if now.generation >= generation {
            return Ok(now);
        }
        let next = Arc::new(now.with(self.store.changes_since(now.generation)?, &self.base_url));
        // Readers hold the old one as long as they like: it is whole, only older.
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        Ok(next)
    }

    /// Follows writes of other processes.
    pub fn follow(&self) -> Result<(), StoreError> {
        self.reach(self.store.generation()?).map(drop)
    }

    /// A content by its digest, from memory where it is there. It never changes under one digest.
    pub fn content(&self, digest: &str) -> Result<Arc<str>, StoreError> {
        let known = self.contents.lock().unwrap_or_else(PoisonError::into_inner).0.get(digest).cloned();
        if let Some(content) = known {
            return Ok(content);
        }
        let found = self.store.content(digest)?;
        let content: Arc<str> = found
            .ok_or_else(|| StoreError::Unavailable(format!("content {digest} is missing in the store")))?
            .into();
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if contents.1 + content.len() > CONTENTS_BYTES {
            *contents = (HashMap::new(), 0);
        }
        contents.1 += content.len();
        contents.0.insert(digest.to_owned(), Arc::clone(&content));
        Ok(content)
    }
}
