//! The catalogue.
