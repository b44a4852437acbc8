//! What the benchmarks share.
//!
//! - [`LocalCluster`]: a cluster on this machine, which ends with the benchmark.
//! - [`process_usage`]: the memory and the processor time of a process.
//! - [`samples`]: medians, and where samples are written.
//! - [`table`]: columns that line up.

mod local_cluster;
pub mod process_usage;
pub mod samples;
pub mod table;

pub use local_cluster::LocalCluster;
