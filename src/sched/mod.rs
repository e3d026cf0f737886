//! From a matrix to records: which kernels are built and booted, and when.
//!
//! [`plan`] says what is to be done, `order` in which order, [`run`] does it by
//! `builds`, `evidence`, `stacks` and `boots`, [`host`] says on what.

mod boots;
mod builds;
mod evidence;
pub mod host;
mod order;
pub mod plan;
pub mod run;
mod seeds;
mod stacks;
mod until;
