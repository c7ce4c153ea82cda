//! Tests of the pure side.
