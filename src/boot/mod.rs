//! From a kernel image to what its guest reported.
//!
//! [`guest`] gathers what goes into the [`initramfs`], [`argv`] makes QEMU's
//! command line for the [`machine`] that fits ([`kvm`] says whether it can be
//! the host's own), [`session`] runs it and listens on the console
//! ([`console`]) and the results channel ([`protocol`]), [`verdict`] says
//! whether what came counts, its CPUs' and nodes' [`topology`] included,
//! [`params`] whether the kernel took its parameters, and [`load`] what others
//! had of the host meanwhile.

pub mod argv;
pub mod compiled;
pub mod console;
pub mod guest;
pub mod initramfs;
pub mod kvm;
pub mod load;
pub mod machine;
pub mod params;
pub mod protocol;
pub mod session;
mod topology;
pub mod verdict;
