//! The process sides of the two built-in agents, which the daemon starts as sub-commands of its own program:
//! [`rehearsal`] plays a scenario, [`ollama`] works with a model behind an OpenAI-compatible endpoint.

pub mod ollama;
pub mod rehearsal;
