//! `matrix` builds every kernel of a matrix of configurations, boots each
//! under QEMU, measures it and prints the tables for the commit message.
//!
//! Data flows one way: a matrix file becomes a validated [`model::Matrix`]
//! ([`matrix`]), its cells become builds ([`kernel`]) and boots ([`boot`])
//! which [`sched`] runs, what they yield is written down at once ([`store`]),
//! and [`report`] turns what was written into tables.

pub mod diag;
pub mod event;
pub mod model;
