//! What every store must do, as tests that take any store.
