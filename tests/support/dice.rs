//! Random choices that come again: one seed, one sequence, on every machine.

/// Xorshift with 64 bits.
pub struct Dice(u64);

impl Dice {
    /// The sequence of a seed; any number will do.
    pub fn seeded(seed: u64) -> Self {
        Self::at(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// From here on; odd, for 0 would stay 0.
    pub fn at(state: u64) -> Self {
        Self(state | 1)
    }

    /// The next number.
    pub fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The number before the next.
    pub fn last(&self) -> u64 {
        self.0
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.throw() % n
    }

    /// One of `0..sides`, and 0 where there are none.
    pub fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.below(u64::try_from(sides.max(1)).unwrap())).unwrap()
    }

    /// One of these, if there are any.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        if items.is_empty() { None } else { items.get(self.roll(items.len())).cloned() }
    }
}
