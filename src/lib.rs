//! `matrix` builds every kernel of a matrix of configurations, boots each
//! under QEMU, measures it and prints the tables for the commit message.
//!
//! Data flows one way: a matrix file becomes a validated [`model::Matrix`]
//! ([`matrix`]), its cells become builds ([`kernel`]) and boots ([`boot`])
//! which [`sched`] runs, what they yield is written down at once ([`store`]),
//! and [`report`] turns what was written into tables.

pub mod arch;
pub mod assets;
pub mod bench;
pub mod boot;
pub mod cache;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod diag;
pub mod distro;
pub mod event;
pub mod history;
pub mod kernel;
pub mod matrix;
pub mod model;
pub mod process;
pub mod report;
pub mod sched;
pub mod stats;
pub mod store;
pub mod ui;
