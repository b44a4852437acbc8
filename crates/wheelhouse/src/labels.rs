//! The labels and annotations that the SDK writes.

/// The UID of the owner, on children in another namespace than their owner's,
/// where Kubernetes' own references do not reach.
pub const OWNER_UID: &str = "wheelhouse.dev/owner-uid";

/// The owner's key, beside [`OWNER_UID`].
pub const OWNER: &str = "wheelhouse.dev/owner";

/// The kind of the owner, as `Kind.group`, beside [`OWNER_UID`].
pub const OWNER_KIND: &str = "wheelhouse.dev/owner-kind";

/// A hash of what was last applied, so that a removed field counts as a change.
pub const APPLIED: &str = "wheelhouse.dev/applied";
