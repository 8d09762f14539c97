//! Which topics and groups have their own labels: those in use, up to a limit; the others share one label.
//!
//! A topic or group that is deleted, or that nobody has used for long, gives its place back when another one needs it.

use std::collections::HashMap;
use std::time::Duration;

use crate::platform::clock::Instant;

pub const TOPIC_LABELS_MAX: usize = 200;

pub const GROUP_LABELS_MAX: usize = 400;

pub const OTHER: &str = "other";

/// How long nobody has used a topic or group that gives its place to another one. Longer than most pauses, since
/// counters begin at zero when it comes back.
const IDLE: Duration = Duration::from_secs(600);

/// The shortest span between two looks for a place: with more topics in use than places, each event would look.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A value for each topic and each group that has labels, and for [`OTHER`].
#[derive(Debug)]
pub(super) struct Labelled<T, G> {
    topics: HashMap<String, Topic<T, G>>,
    own_groups: usize,
    next_look: Instant,
}

#[derive(Debug)]
pub(super) struct Topic<T, G> {
    pub(super) own: T,
    pub(super) groups: HashMap<String, Group<G>>,
    age: Age,
}

#[derive(Debug)]
pub(super) struct Group<G> {
    pub(super) own: G,
    age: Age,
}

#[derive(Debug, Clone, Copy, Default)]
struct Age {
    used: Instant,
    is_deleted: bool,
}

impl Age {
    fn is_over(self, now: Instant) -> bool {
        self.is_deleted || now.since(self.used) >= IDLE
    }
}

/// A topic that has lost its labels with these groups, or only the groups have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Freed {
    pub(super) topic: String,
    pub(super) groups: Vec<String>,
    pub(super) is_whole: bool,
}

impl<T, G> Default for Labelled<T, G> {
    fn default() -> Self {
        Labelled { topics: HashMap::new(), own_groups: 0, next_look: Instant::START }
    }
}

impl<T, G> Labelled<T, G> {
    pub(super) fn topic(&mut self, name: &str, now: Instant, make: impl FnOnce(&str) -> T) -> &mut T {
        let label = self.label(name);
        let topic = self.topics.entry(label.to_owned()).or_insert_with(|| Topic::new(make(label)));
        topic.age.used = now;
        &mut topic.own
    }

    /// Groups of topics that share a label share one too.
    pub(super) fn group(
        &mut self,
        topic: &str,
        group: &str,
        now: Instant,
        make_topic: impl FnOnce(&str) -> T,
        make: impl FnOnce(&str, &str) -> G,
    ) -> &mut G {
        let (topic, full) = (self.label(topic), self.own_groups >= GROUP_LABELS_MAX);
        let there = self.topics.entry(topic.to_owned()).or_insert_with(|| Topic::new(make_topic(topic)));
        there.age.used = now;
        let is_there = there.groups.contains_key(group);
        let group = if topic != OTHER && (is_there || !full) { group } else { OTHER };
        self.own_groups += usize::from(!is_there && group != OTHER);
        let made = || Group { own: make(topic, group), age: Age::default() };
        let group = there.groups.entry(group.to_owned()).or_insert_with(made);
        group.age.used = now;
        &mut group.own
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (&String, &Topic<T, G>)> {
        self.topics.iter()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = ([&str; 2], &G)> {
        self.topics.iter().flat_map(|(topic, there)| {
            there.groups.iter().map(move |(group, of_group)| ([topic.as_str(), group.as_str()], &of_group.own))
        })
    }

    fn label<'a>(&self, name: &'a str) -> &'a str {
        if self.topics.contains_key(name) || !self.is_full_of_topics() { name } else { OTHER }
    }

    fn is_full_of_topics(&self) -> bool {
        self.topics.len() - usize::from(self.topics.contains_key(OTHER)) >= TOPIC_LABELS_MAX
    }

    /// Whether a topic, or a group of it, would have to share a label now, and it is time to look for a place.
    pub(super) fn wants_place(&mut self, topic: &str, group: Option<&str>, now: Instant) -> bool {
        let there = self.topics.get(topic);
        let has_group = group.is_none_or(|group| there.is_some_and(|there| there.groups.contains_key(group)));
        let lacks_topic = there.is_none() && self.is_full_of_topics();
        let lacks_group = !has_group && self.own_groups >= GROUP_LABELS_MAX;
        let wants = (lacks_topic || lacks_group) && now >= self.next_look;
        if wants {
            self.next_look = now.plus(LOOK_AGAIN);
        }
        wants
    }

    /// A topic is there, with these groups and no others.
    pub(super) fn exists(&mut self, topic: &str, has_group: impl Fn(&str) -> bool) {
        let Some(there) = self.topics.get_mut(topic) else { return };
        there.age.is_deleted = false;
        for (name, group) in &mut there.groups {
            group.age.is_deleted = name != OTHER && !has_group(name);
            if group.age.is_deleted {
                self.next_look = Instant::START;
            }
        }
    }

    pub(super) fn deleted(&mut self, topic: &str) {
        let Some(there) = self.topics.get_mut(topic) else { return };
        there.age.is_deleted = true;
        self.next_look = Instant::START;
    }

    /// Takes the labels of all that are deleted and that nobody holds; with `idle`, also of those that are idle.
    pub(super) fn free(
        &mut self,
        now: Instant,
        idle: bool,
        is_free: (impl Fn(&T) -> bool, impl Fn(&G) -> bool),
    ) -> Vec<Freed> {
        let is_over = |age: Age| if idle { age.is_over(now) } else { age.is_deleted };
        let mut freed = Vec::new();
        self.topics.retain(|name, topic| {
            let groups_free = topic.groups.values().all(|group| is_free.1(&group.own));
            let is_whole = name != OTHER && is_over(topic.age) && is_free.0(&topic.own) && groups_free;
            let goes = |group: &Group<G>| is_whole || (is_over(group.age) && is_free.1(&group.own));
            let mut groups = Vec::new();
            if name != OTHER {
                topic.groups.retain(|name, group| {
                    let goes = goes(group);
                    groups.extend(goes.then(|| name.clone()));
                    !goes
                });
            }
            self.own_groups -= groups.iter().filter(|group| *group != OTHER).count();
            if is_whole || !groups.is_empty() {
                freed.push(Freed { topic: name.clone(), groups, is_whole });
            }
            !is_whole
        });
        freed
    }
}

impl<T, G> Topic<T, G> {
    fn new(own: T) -> Topic<T, G> {
        Topic { own, groups: HashMap::new(), age: Age::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const NOW: Instant = Instant::START;

    #[test]
    fn names_past_the_limits_share_one_series() {
        let mut labelled: Labelled<usize, usize> = Labelled::default();
        for n in 0..1_000_000 {
            *labelled.topic(&format!("t{n}"), NOW, |_| 0) += 1;
        }
        assert_eq!(labelled.topics.len(), TOPIC_LABELS_MAX + 1);
        assert_eq!(*labelled.topic("t1000000", NOW, |_| 0), 1_000_000 - TOPIC_LABELS_MAX);
    }

    #[test]
    fn total_group_series_are_limited() {
        let mut labelled: Labelled<(), usize> = Labelled::default();
        for topic in 0..TOPIC_LABELS_MAX + 50 {
            for group in 0..200 {
                *labelled.group(&format!("t{topic}"), &format!("g{group}"), NOW, |_| (), |_, _| 0) += 1;
            }
        }
        let all: Vec<_> = labelled.groups().collect();
        assert_eq!(all.len(), GROUP_LABELS_MAX + TOPIC_LABELS_MAX - 1);
        assert_eq!(all.iter().map(|(_, count)| **count).sum::<usize>(), (TOPIC_LABELS_MAX + 50) * 200);
        let of_others = all.iter().find(|([topic, _], _)| *topic == OTHER);
        assert_eq!(of_others.map(|(labels, count)| (*labels, **count)), Some(([OTHER, OTHER], 50 * 200)));
    }

    /// All places taken by topics with two groups each, at the beginning; `held` is in use by somebody.
    fn full() -> Labelled<bool, bool> {
        let mut labelled = Labelled::default();
        for n in 0..TOPIC_LABELS_MAX {
            for group in ["default", "audit"] {
                labelled.group(&format!("t{n}"), group, NOW, |_| true, |_, _| true);
            }
        }
        labelled
    }

    fn label_of(labelled: &mut Labelled<bool, bool>, topic: &str, now: Instant) -> [String; 2] {
        if labelled.wants_place(topic, Some("default"), now) {
            labelled.free(now, true, (|own| *own, |own| *own));
        }
        let mut labels = [String::new(), String::new()];
        let mut given = |topic: &str, group: &str| labels = [topic, group].map(str::to_owned);
        labelled.group(
            topic,
            "default",
            now,
            |_| true,
            |topic, group| {
                given(topic, group);
                true
            },
        );
        labels
    }

    #[test]
    fn deleted_topic_gives_its_place_back_at_once() {
        let mut labelled = full();
        assert_eq!(label_of(&mut labelled, "orders", NOW), [OTHER, OTHER]);
        labelled.deleted("t7");
        // Somebody still holds it.
        *labelled.topic("t7", NOW, |_| true) = false;
        assert_eq!(labelled.free(NOW, false, (|own| *own, |own| *own)), []);
        *labelled.topic("t7", NOW, |_| true) = true;
        assert_eq!(label_of(&mut labelled, "orders", NOW), ["orders", "default"]);
        assert!(!labelled.topics.contains_key("t7") && labelled.topics.contains_key("t8"));
        // It is made again: the next that is deleted makes room for it.
        labelled.deleted("t8");
        labelled.exists("t8", |_| true);
        assert_eq!(labelled.free(NOW, false, (|own| *own, |own| *own)), []);
    }

    #[test]
    fn idle_topic_gives_its_place_to_one_in_use() {
        let mut labelled = full();
        let later = NOW.plus(HOUR);
        for n in 0..TOPIC_LABELS_MAX - 1 {
            labelled.group(&format!("t{n}"), "default", later, |_| true, |_, _| true);
        }
        assert_eq!(label_of(&mut labelled, "orders", later), ["orders", "default"]);
        // Their other groups were idle too, and there is room for more groups now.
        assert_eq!(labelled.own_groups, TOPIC_LABELS_MAX);
        assert_eq!(label_of(&mut labelled, "refunds", later.plus(LOOK_AGAIN)), [OTHER, OTHER]);
        let last = later.plus(HOUR);
        assert_eq!(label_of(&mut labelled, "refunds", last), ["refunds", "default"]);
        assert_eq!(labelled.topics.len(), 2, "all others were idle, but for `other`");
    }

    #[test]
    fn deleted_group_gives_its_place_back() {
        let mut labelled = full();
        labelled.exists("t7", |group| group != "audit");
        assert!(labelled.wants_place("t8", Some("mail"), NOW));
        let freed = labelled.free(NOW, true, (|own| *own, |own| *own));
        assert_eq!(freed, [Freed { topic: "t7".into(), groups: vec!["audit".into()], is_whole: false }]);
        let mut label = String::new();
        labelled.group(
            "t8",
            "mail",
            NOW,
            |_| true,
            |_, group| {
                label = group.to_owned();
                true
            },
        );
        assert_eq!((label.as_str(), labelled.own_groups), ("mail", GROUP_LABELS_MAX));
    }
}
