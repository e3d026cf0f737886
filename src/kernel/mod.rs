//! From a source tree and a configuration to a kernel and its sizes.
//!
//! [`source`] provides the tree, [`config`] brings it to a verified
//! configuration, [`build`] compiles it, from a [`seed`] where there is one, [`elf`] measures the result and
//! [`frames`] its functions' stack frames.

pub mod build;
pub mod ccache;
pub mod config;
pub mod elf;
pub mod frames;
pub mod kconfig;
pub mod reproduce;
pub mod seed;
pub mod source;
pub mod toolchain;
pub mod version;

pub use build::{BuildInfo, KernelBuild};
pub use ccache::Ccache;
pub use seed::ObjectTree;
pub use source::SourceTree;
pub use toolchain::Tools;
