package com.example.dwell;

import java.util.List;

/**
 * A topic. The answer of {@link Client#createTopic} has neither totals nor partitions.
 *
 * @param topic its name
 * @param groups its groups, each of which gets every message
 * @param settings all its settings
 * @param totals the messages of each group
 * @param partitions the messages of each partition and group
 */
public record Topic(
        String topic,
        List<String> groups,
        TopicSettings settings,
        List<GroupTotals> totals,
        List<PartitionState> partitions) {
    static Topic of(Fields fields) {
        return new Topic(
                fields.text("topic"),
                fields.texts("groups"),
                TopicSettings.of(fields.object("settings")),
                fields.objects("totals", GroupTotals::of),
                fields.objects("partitions", PartitionState::of));
    }

    /**
     * The messages of a group in all partitions.
     *
     * @param group the group
     * @param state whether it delivers
     * @param counts the messages by state
     */
    public record GroupTotals(String group, GroupState state, Counts counts) {
        static GroupTotals of(Fields fields) {
            return new GroupTotals(
                    fields.text("group"),
                    fields.word("state", GroupState.class),
                    Counts.of(fields));
        }
    }
}
