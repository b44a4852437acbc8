//! Which addresses a cluster uses: a pure function of the slot it was given.
//!
//! All clusters live in 198.18.0.0/15, which RFC 2544 sets aside for tests and
//! no network routes. A slot is a /19 of it:
//!
//! | offset | what |
//! | --- | --- |
//! | x.0.0/24 | the machines: this host .1, the control plane .2, node-1 .11, node-2 .12, ... |
//! | x.4.0/22 | Services: the API server is the first, DNS the tenth |
//! | x.16.0/20 | pods: a /24 for each node |

use std::{fmt, net::Ipv4Addr};

use serde::{Deserialize, Serialize};

/// How many clusters fit side by side.
pub const SLOTS: u8 = 16;

/// How many nodes fit into one cluster.
pub const MAX_NODES: u8 = 16;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    base: u32,
    prefix: u8,
}

impl Range {
    /// The range that begins at `base`.
    pub fn new(base: Ipv4Addr, prefix: u8) -> Self {
        Self { base: base.to_bits() & mask(prefix), prefix }
    }

    /// The n-th address.
    pub fn address(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base | n)
    }

    /// Whether the two have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        self.base & mask(prefix) == other.base & mask(prefix)
    }

    /// Reads `A.B.C.D/N`, or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        Some(Self::new(base.parse().ok()?, prefix))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.prefix)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

/// Where all clusters live.
pub fn all() -> Range {
    Range::new(Ipv4Addr::new(198, 18, 0, 0), 15)
}

/// The addresses of the cluster in one slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct AddressPlan {
    slot: u8,
}

impl TryFrom<u8> for AddressPlan {
    type Error = String;

    fn try_from(slot: u8) -> Result<Self, String> {
        Self::of_slot(slot).ok_or_else(|| format!("there is no slot {slot}"))
    }
}

impl From<AddressPlan> for u8 {
    fn from(plan: AddressPlan) -> Self {
        plan.slot
    }
}

impl AddressPlan {
    /// The plan of a slot below [`SLOTS`].
    pub fn of_slot(slot: u8) -> Option<Self> {
        (slot < SLOTS).then_some(Self { slot })
    }

    /// The first slot that is neither taken by a cluster nor overlaps with `in_use`.
    pub fn allot(taken: &[AddressPlan], in_use: &[Range]) -> Option<Self> {
        (0..SLOTS)
            .filter_map(Self::of_slot)
            .find(|plan| !taken.contains(plan) && !in_use.iter().any(|range| plan.whole().overlaps(range)))
    }

    /// The slot's number.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Everything that the cluster uses.
    pub fn whole(&self) -> Range {
        Range { base: all().base + (u32::from(self.slot) << 13), prefix: 19 }
    }

    /// The network that the machines share.
    pub fn machines(&self) -> Range {
        Range { base: self.whole().base, prefix: 24 }
    }

    /// Services.
    pub fn services(&self) -> Range {
        Range { base: self.whole().base + (4 << 8), prefix: 22 }
    }

    /// Pods of all nodes.
    pub fn pods(&self) -> Range {
        Range { base: self.whole().base + (16 << 8), prefix: 20 }
    }

    /// This host's own address in the cluster's network.
    pub fn host(&self) -> Ipv4Addr {
        self.machines().address(1)
    }

    /// Where the API server answers.
    pub fn control_plane(&self) -> Ipv4Addr {
        self.machines().address(2)
    }

    /// The address of a node; the first is 1.
    pub fn node(&self, number: u8) -> Ipv4Addr {
        self.machines().address(10 + u32::from(number))
    }

    /// The pods of a node; the first is 1.
    pub fn pods_of(&self, number: u8) -> Range {
        Range { base: self.pods().base + ((u32::from(number) - 1) << 8), prefix: 24 }
    }

    /// The Service of the cluster's DNS.
    pub fn dns_service(&self) -> Ipv4Addr {
        self.services().address(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_slot_reads_as_documented() {
        let plan = AddressPlan::of_slot(0).unwrap();
        assert_eq!("198.18.0.0/19", plan.whole().to_string());
        assert_eq!("198.18.0.2", plan.control_plane().to_string());
        assert_eq!("198.18.0.11", plan.node(1).to_string());
        assert_eq!("198.18.4.0/22", plan.services().to_string());
        assert_eq!("198.18.16.0/24", plan.pods_of(1).to_string());
        assert_eq!("198.18.31.0/24", plan.pods_of(MAX_NODES).to_string());
    }

    #[test]
    fn no_two_slots_and_no_two_parts_of_a_slot_overlap() {
        let plans: Vec<_> = (0..SLOTS).filter_map(AddressPlan::of_slot).collect();
        for (at, plan) in plans.iter().enumerate() {
            let parts = [plan.machines(), plan.services(), plan.pods()];
            for (i, one) in parts.iter().enumerate() {
                assert!(plan.whole().overlaps(one));
                assert!(parts.iter().skip(i + 1).all(|other| !one.overlaps(other)));
            }
            assert!(plans.iter().skip(at + 1).all(|other| !plan.whole().overlaps(&other.whole())));
            assert!(Range::parse("198.18.0.0/15").unwrap().overlaps(&plan.whole()));
        }
    }

    #[test]
    fn a_slot_that_a_cluster_or_a_route_uses_is_passed_over() {
        let first = AddressPlan::of_slot(0).unwrap();
        let route = Range::parse("198.18.40.0/24").unwrap();
        let allotted = AddressPlan::allot(&[first], &[route]).unwrap();
        assert_eq!(2, allotted.slot());
        assert_eq!(None, AddressPlan::allot(&[], &[Range::parse("198.18.0.0/15").unwrap()]));
    }

    #[test]
    fn a_default_route_overlaps_with_everything_and_must_not_be_passed_in() {
        assert!(Range::parse("0.0.0.0/0").unwrap().overlaps(&AddressPlan::of_slot(3).unwrap().whole()));
    }
}
