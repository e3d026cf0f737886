//! From a matrix to records: which kernels are built and booted, and when.
//!
//! [`plan`] says what is to be done, [`run`] does it, [`host`] says on what.

pub mod host;
pub mod plan;
pub mod run;
