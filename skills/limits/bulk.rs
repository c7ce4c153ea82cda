//! What a client may fetch beside the limit: the files of an index that it has fetched within it.
//!
//! **Invariant:** only an index, which counts, opens it, for as many files as it names; and what is open to
//! one client is bounded per window, however many indexes it fetches.

use super::WINDOW_MS;

/// Files of one client in a window, counted from its first one: ten installs of the largest index.
pub const FILES: u32 = 5_000;

/// One client's files. Times are those of its window.
#[derive(Debug, Default)]
pub struct Bulk {
    open: u32,
    taken: u32,
    since: u32,
}

impl Bulk {
    /// Opens the files of an index.
    pub fn grant(&mut self, now: u32, files: u32) {
        self.turn(now);
        self.open = self.open.saturating_add(files).min(FILES.saturating_sub(self.taken));
    }

    /// Takes one file; whether it was open.
    pub fn take(&mut self, now: u32) -> bool {
        self.turn(now);
        let is_open = self.open > 0;
        if is_open {
            self.open -= 1;
            self.taken += 1;
        }
        is_open
    }

    /// What is open outlasts one turn, for clients that are in the middle of it, but not two.
    fn turn(&mut self, now: u32) {
        let passed = now.wrapping_sub(self.since);
        if passed >= 2 * WINDOW_MS || (self.open == 0 && self.taken == 0) {
            *self = Self { since: now, ..Self::default() };
        } else if passed >= WINDOW_MS {
            *self = Self { open: self.open, taken: 0, since: self.since.wrapping_add(WINDOW_MS) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bulk: &mut Bulk, now: u32) -> u32 {
        (0..=2 * FILES).take_while(|_| bulk.take(now)).count().try_into().unwrap()
    }

    #[test]
    fn only_the_files_of_an_index_are_open_and_only_so_many() {
        let mut bulk = Bulk::default();
        assert!(!bulk.take(5), "without an index none");
        bulk.grant(10, 3);
        assert_eq!(taken(&mut bulk, 20), 3);
        for _ in 0..100 {
            bulk.grant(30, 500);
        }
        assert_eq!(taken(&mut bulk, 40), FILES - 3, "however many indexes");
        bulk.grant(50, 500);
        assert!(!bulk.take(50));
        bulk.grant(20 + WINDOW_MS, 500);
        assert_eq!(taken(&mut bulk, 20 + WINDOW_MS), 500, "the next window");
    }

    #[test]
    fn what_is_open_outlasts_one_turn_but_not_two() {
        let mut bulk = Bulk::default();
        bulk.grant(0, 5);
        assert!(bulk.take(1));
        assert!(bulk.take(WINDOW_MS + 1), "in the middle of an install");
        assert!(!bulk.take(3 * WINDOW_MS), "long gone");
        let near_the_wrap = u32::MAX - 10;
        bulk.grant(near_the_wrap, 2);
        assert!(bulk.take(5), "where the clock wraps, too");
    }
}
