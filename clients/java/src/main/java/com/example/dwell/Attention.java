package com.example.dwell;

import java.util.List;

/**
 * The reasons to act.
 *
 * @param attention the most urgent first, at most 200; empty if all is well
 * @param topicsSeen topics that were looked at, at most 500
 * @param topics all topics
 */
public record Attention(List<Item> attention, int topicsSeen, int topics) {
    static Attention of(Fields fields) {
        return new Attention(
                fields.objects("attention", Item::of),
                fields.count("topics_seen"),
                fields.count("topics"));
    }

    /**
     * A reason to act.
     *
     * @param kind a stable word, such as "no_consumer" or "late"
     * @param topic the topic; null if it is about the broker or its store
     * @param group the group, or null
     * @param cause the cause, for people
     * @param alert the alert of Prometheus for it, or null
     */
    public record Item(String kind, String topic, String group, String cause, String alert) {
        static Item of(Fields fields) {
            return new Item(
                    fields.text("kind"),
                    fields.text("topic"),
                    fields.text("group"),
                    fields.text("cause"),
                    fields.text("alert"));
        }
    }
}
