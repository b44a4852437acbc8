//! What a sample is a sample of.

use serde::Serialize;

/// Every single value that is measured, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// From the start of the program until every Widget has converged.
    ColdWall,
    /// Processor time until it is quiet.
    ColdCpu,
    /// Writes, also those that failed, for each Widget.
    ColdWrites,
    /// Writes that the API server refused.
    ColdFailedWrites,
    /// Reconciles for each Widget.
    ColdReconciles,
    /// Reconciles that ended with an error.
    ColdErrors,
    /// From the start of the program until its first reconcile begins.
    WarmFirst,
    /// From the start of the program until every Widget was reconciled once.
    WarmWall,
    /// Processor time until then.
    WarmCpu,
    /// Writes.
    WarmWrites,
    /// From a spec change to the write that follows: half of them are not slower.
    LatencyP50,
    /// The same: 99 of 100 are not slower.
    LatencyP99,
    /// Resident memory at rest.
    MemorySteady,
    /// That part of it that no file backs.
    MemoryAnonymous,
    /// The most that was ever resident.
    MemoryPeak,
    /// Writes; more than none would mean that the world had not converged.
    MemoryWrites,
}

impl Measure {
    pub(super) const ALL: [Self; 16] = [
        Self::ColdWall,
        Self::ColdCpu,
        Self::ColdWrites,
        Self::ColdFailedWrites,
        Self::ColdReconciles,
        Self::ColdErrors,
        Self::WarmFirst,
        Self::WarmWall,
        Self::WarmCpu,
        Self::WarmWrites,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::MemorySteady,
        Self::MemoryAnonymous,
        Self::MemoryPeak,
        Self::MemoryWrites,
    ];

    /// What it is called in the table.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::ColdWall => "cold: wall time",
            Self::ColdCpu => "cold: processor time",
            Self::ColdWrites => "cold: writes a resource",
            Self::ColdFailedWrites => "cold: failed writes",
            Self::ColdReconciles => "cold: reconciles a resource",
            Self::ColdErrors => "cold: reconcile errors",
            Self::WarmFirst => "warm: start to first reconcile",
            Self::WarmWall => "warm: start to all reconciled",
            Self::WarmCpu => "warm: processor time",
            Self::WarmWrites => "warm: writes",
            Self::LatencyP50 => "latency: p50",
            Self::LatencyP99 => "latency: p99",
            Self::MemorySteady => "memory: resident",
            Self::MemoryAnonymous => "memory: resident, anonymous",
            Self::MemoryPeak => "memory: peak",
            Self::MemoryWrites => "memory: writes",
        }
    }

    /// What it is counted in; empty for plain numbers.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::ColdWall | Self::ColdCpu | Self::WarmFirst | Self::WarmWall | Self::WarmCpu => "s",
            Self::LatencyP50 | Self::LatencyP99 => "ms",
            Self::MemorySteady | Self::MemoryAnonymous | Self::MemoryPeak => "MiB",
            Self::ColdWrites
            | Self::ColdFailedWrites
            | Self::ColdReconciles
            | Self::ColdErrors
            | Self::WarmWrites
            | Self::MemoryWrites => "",
        }
    }
}
