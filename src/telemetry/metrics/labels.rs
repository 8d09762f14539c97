//! How many label values there may be: names come from clients, and series must not grow with them.

use std::collections::HashMap;

/// Topics with series of their own.
pub const TOPIC_LABELS_MAX: usize = 200;

/// Groups, of all topics together, with series of their own.
pub const GROUP_LABELS_MAX: usize = 400;

/// What the rest share.
pub const OTHER: &str = "other";

/// Something for each topic and for each of its groups, first come, first kept: past the limits the rest share one.
#[derive(Debug)]
pub(super) struct Labelled<T, G> {
    topics: HashMap<String, Topic<T, G>>,
    /// Groups that have something of their own.
    own_groups: usize,
}

/// What is kept of one topic, or of all the others.
#[derive(Debug)]
struct Topic<T, G> {
    own: T,
    groups: HashMap<String, G>,
}

impl<T, G> Topic<T, G> {
    fn new(own: T) -> Topic<T, G> {
        Topic { own, groups: HashMap::new() }
    }
}

impl<T, G> Default for Labelled<T, G> {
    fn default() -> Self {
        Labelled { topics: HashMap::new(), own_groups: 0 }
    }
}

impl<T, G> Labelled<T, G> {
    /// What is kept of a topic; made, if it is new, for the label under which it is shown.
    pub(super) fn topic(&mut self, name: &str, make: impl FnOnce(&str) -> T) -> &mut T {
        let label = self.label(name);
        &mut self.topics.entry(label.to_owned()).or_insert_with(|| Topic::new(make(label))).own
    }

    /// What is kept of a group of a topic, likewise. All groups of the topics that share a label share one as well.
    pub(super) fn group(
        &mut self,
        topic: &str,
        group: &str,
        make_topic: impl FnOnce(&str) -> T,
        make: impl FnOnce(&str, &str) -> G,
    ) -> &mut G {
        let (topic, full) = (self.label(topic), self.own_groups >= GROUP_LABELS_MAX);
        let groups = &mut self.topics.entry(topic.to_owned()).or_insert_with(|| Topic::new(make_topic(topic))).groups;
        let is_there = groups.contains_key(group);
        let group = if topic != OTHER && (is_there || !full) { group } else { OTHER };
        self.own_groups += usize::from(!is_there && group != OTHER);
        groups.entry(group.to_owned()).or_insert_with(|| make(topic, group))
    }

    /// The groups, with the labels of their topics and their own.
    pub(super) fn groups(&self) -> impl Iterator<Item = ([&str; 2], &G)> {
        self.topics.iter().flat_map(|(topic, kept)| {
            kept.groups.iter().map(move |(group, of_group)| ([topic.as_str(), group.as_str()], of_group))
        })
    }

    fn label<'a>(&self, name: &'a str) -> &'a str {
        let own = self.topics.len() - usize::from(self.topics.contains_key(OTHER));
        if self.topics.contains_key(name) || own < TOPIC_LABELS_MAX { name } else { OTHER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_names_share_what_is_past_the_limits() {
        let mut labelled: Labelled<usize, usize> = Labelled::default();
        for n in 0..1_000_000 {
            *labelled.topic(&format!("t{n}"), |_| 0) += 1;
        }
        assert_eq!(labelled.topics.len(), TOPIC_LABELS_MAX + 1);
        assert_eq!(*labelled.topic("t1000000", |_| 0), 1_000_000 - TOPIC_LABELS_MAX);
    }

    #[test]
    fn groups_of_all_topics_together_have_a_limit() {
        let mut labelled: Labelled<(), usize> = Labelled::default();
        for topic in 0..TOPIC_LABELS_MAX + 50 {
            for group in 0..200 {
                *labelled.group(&format!("t{topic}"), &format!("g{group}"), |_| (), |_, _| 0) += 1;
            }
        }
        let all: Vec<_> = labelled.groups().collect();
        // One more for each topic, and for those that have no label of their own.
        assert_eq!(all.len(), GROUP_LABELS_MAX + TOPIC_LABELS_MAX - 1);
        assert_eq!(all.iter().map(|(_, count)| **count).sum::<usize>(), (TOPIC_LABELS_MAX + 50) * 200);
        let of_others = all.iter().find(|([topic, _], _)| *topic == OTHER);
        assert_eq!(of_others.map(|(labels, count)| (*labels, **count)), Some(([OTHER, OTHER], 50 * 200)));
    }
}
