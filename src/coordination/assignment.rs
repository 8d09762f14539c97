//! How many partitions each member of a group is to own, and which ones it would rather have. Pure.
//!
//! Nobody assigns partitions by number: the leases say who owns which. Members agree only on how many each may own, so
//! a change of the members moves what it must and nothing else. docs/internals/groups.md says how.

use crate::model::message::{GroupName, TopicName};
use crate::model::partition::{Partition, hash};
use crate::store::MemberId;

/// The shares of some members of one group in one topic, as of those with demand: equal on every member that sees the
/// same members.
///
/// Every share is the floor or the ceiling of partitions / members, and together they are all partitions. The larger
/// shares go by the hash of group and member, not by name, so that the same members do not get the larger share of
/// every topic. A leave takes nothing from the others; a join takes from the others exactly what the new member gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    partitions: u16,
    ranked_members: Vec<RankedMember>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankedMember {
    hash: u32,
    member: MemberId,
}

impl Shares {
    pub fn new<'a>(
        topic: &TopicName,
        group: &GroupName,
        partitions: u16,
        members: impl IntoIterator<Item = &'a MemberId>,
    ) -> Shares {
        let place = place(topic, group);
        let mut ranked_members: Vec<RankedMember> =
            members.into_iter().map(|member| RankedMember::of(place, member)).collect();
        ranked_members.sort_unstable();
        ranked_members.dedup();
        Shares { partitions, ranked_members }
    }

    pub fn members(&self) -> usize {
        self.ranked_members.len()
    }

    pub fn include(&self, others: &Shares) -> bool {
        others.ranked_members.iter().all(|ranked_member| self.contain(ranked_member))
    }

    pub fn contain(&self, ranked_member: &RankedMember) -> bool {
        self.ranked_members.binary_search(ranked_member).is_ok()
    }

    /// 0 for one that is not a member.
    pub fn quota(&self, ranked_member: &RankedMember) -> usize {
        let (partitions, members) = (usize::from(self.partitions), self.ranked_members.len());
        match self.ranked_members.binary_search(ranked_member) {
            Ok(rank) => partitions / members + usize::from(rank < partitions % members),
            Err(_) => 0,
        }
    }

    /// Whether exactly so many members come before this one when `partition` looks for an owner.
    ///
    /// Looks at few members unless `place` is large: most partitions find them soon.
    pub fn is_at(&self, place: usize, ranked_member: &RankedMember, partition: Partition) -> bool {
        let own = (ranked_member.score(partition), ranked_member.hash);
        let before = |other: &&RankedMember| (other.score(partition), other.hash) > own;
        self.ranked_members.iter().filter(before).take(place + 1).count() == place
    }
}

impl RankedMember {
    pub fn new(topic: &TopicName, group: &GroupName, member: &MemberId) -> RankedMember {
        RankedMember::of(place(topic, group), member)
    }

    fn of(place: u32, member: &MemberId) -> RankedMember {
        // Mixed, so that the order of the members is another one in each group.
        RankedMember { hash: mix(place ^ hash(member.as_str().as_bytes())), member: member.clone() }
    }

    /// How much the member would like to own a partition (rendezvous): the one with the highest score comes first.
    pub fn score(&self, partition: Partition) -> u32 {
        score(self.hash, partition)
    }

    /// All partitions, the most preferred first. Every member has another order, so that members that look for a free
    /// partition begin at different ones.
    pub fn order(&self, partitions: u16) -> Vec<Partition> {
        // Score and number in one word: a topic has few partitions, but a member sorts them for every group it joins.
        let word = |partition: Partition| u64::from(!self.score(partition)) << 16 | u64::from(partition.0);
        let mut words: Vec<u64> = (0..partitions).map(Partition).map(word).collect();
        words.sort_unstable();
        words.into_iter().map(|word| Partition((word & 0xffff) as u16)).collect()
    }
}

fn place(topic: &TopicName, group: &GroupName) -> u32 {
    mix(hash(topic.as_str().as_bytes())) ^ hash(group.as_str().as_bytes())
}

/// Different members never score the same in one partition unless their hashes are the same.
fn score(member: u32, partition: Partition) -> u32 {
    mix(member ^ u32::from(partition.0).wrapping_mul(0x9e37_79b9))
}

/// The finalizer of murmur3: a bijection in which every bit of the input changes half of the output.
fn mix(mut bits: u32) -> u32 {
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
    bits ^ (bits >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    fn members(count: usize) -> Vec<MemberId> {
        (0..count).map(|n| MemberId::from_store(&format!("member-{n}"))).collect()
    }

    fn place(topic: &str) -> Result<(TopicName, GroupName)> {
        Ok((TopicName::new(topic)?, GroupName::standard()))
    }

    fn quotas(topic: &str, partitions: u16, members: &[MemberId]) -> Result<Vec<usize>> {
        let (topic, group) = place(topic)?;
        let shares = Shares::new(&topic, &group, partitions, members);
        Ok(members.iter().map(|member| shares.quota(&RankedMember::new(&topic, &group, member))).collect())
    }

    #[test]
    fn shares_cover_all_partitions_and_differ_by_at_most_one() -> Result<()> {
        for partitions in [1, 2, 7, 8, 32, 100, 1_024] {
            for count in [1, 2, 3, 4, 7, 31, 100] {
                let quotas = quotas("orders", partitions, &members(count))?;
                assert_eq!(quotas.iter().sum::<usize>(), usize::from(partitions));
                let (least, most) = (quotas.iter().min(), quotas.iter().max());
                assert!(most <= least.map(|least| least + 1).as_ref(), "{partitions} over {count}: {quotas:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn non_member_has_no_share_and_list_order_is_irrelevant() -> Result<()> {
        let (topic, group) = place("orders")?;
        let mut list = members(5);
        let shares = Shares::new(&topic, &group, 8, &list);
        assert_eq!(shares.quota(&RankedMember::new(&topic, &group, &MemberId::from_store("stranger"))), 0);
        list.reverse();
        list.push(list[2].clone());
        assert_eq!(Shares::new(&topic, &group, 8, &list), shares);
        let fewer = Shares::new(&topic, &group, 8, &list[..2]);
        assert!(shares.include(&fewer) && shares.include(&shares) && !fewer.include(&shares));
        assert_eq!(Shares::new(&topic, &group, 8, &[]).quota(&RankedMember::new(&topic, &group, &list[0])), 0);
        Ok(())
    }

    /// The movement is exact: members only gain when one leaves, and only lose when one joins.
    #[test]
    fn member_change_moves_only_its_share() -> Result<()> {
        for partitions in [1, 5, 10, 32, 100] {
            for count in 1..40 {
                let (few, many) = (members(count), members(count + 1));
                let (before, after) = (quotas("t", partitions, &few)?, quotas("t", partitions, &many)?);
                let gained: usize = before.iter().zip(&after).map(|(old, new)| new.saturating_sub(*old)).sum();
                assert_eq!(gained, 0, "{partitions} over {count}");
                let moved: usize = before.iter().zip(&after).map(|(old, new)| old - new).sum();
                let least = usize::from(partitions) / (count + 1);
                assert!((least..=least + 1).contains(&moved), "{partitions} over {count}: {moved}");
            }
        }
        Ok(())
    }

    #[test]
    fn larger_shares_vary_between_groups() -> Result<()> {
        let mut totals = vec![0; 3];
        for n in 0..300 {
            let quotas = quotas(&format!("topic-{n}"), 8, &members(3))?;
            totals.iter_mut().zip(quotas).for_each(|(total, quota)| *total += quota);
        }
        assert!(totals.iter().all(|total| (740..=860).contains(total)), "{totals:?}");
        Ok(())
    }

    #[test]
    fn first_choices_are_spread_over_partitions() -> Result<()> {
        let (topic, group) = place("orders")?;
        let members = members(10);
        let shares = Shares::new(&topic, &group, 1_000, &members);
        let mut first = vec![0; 1_000];
        for member in &members {
            let ranked_member = RankedMember::new(&topic, &group, member);
            let order = ranked_member.order(1_000);
            assert!(order.is_sorted_by_key(|partition| !ranked_member.score(*partition)));
            let chosen = order.iter().filter(|partition| shares.is_at(0, &ranked_member, **partition));
            let chosen: Vec<_> = chosen.collect();
            assert!((60..=140).contains(&chosen.len()), "{}", chosen.len());
            chosen.iter().for_each(|partition| first[usize::from(partition.0)] += 1);
            let places =
                order.iter().map(|partition| (0..10).filter(|n| shares.is_at(*n, &ranked_member, *partition)).count());
            assert!(places.into_iter().all(|places| places == 1));
        }
        assert!(first.iter().all(|choices| *choices == 1));
        Ok(())
    }
}
