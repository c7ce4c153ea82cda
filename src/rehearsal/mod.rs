//! The rehearsal agent: the child process behind the provider `script`. It plays a scenario file with real
//! effects, real signals and real descendants, so that everything around an agent can be tried without a
//! network and without tokens.

mod node;
pub mod scenario;
