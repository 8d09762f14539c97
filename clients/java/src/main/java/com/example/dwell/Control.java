package com.example.dwell;

import java.time.Instant;
import java.util.List;

/**
 * The outcome of a cancel or a reschedule.
 *
 * @param id the id of the message
 * @param status the outcome
 * @param partition the partition that stores the message
 * @param dueAt the new due time of a reschedule, or null
 * @param buffered whether the outcome waits on the disk of the broker until the store is reachable
 * @param groups the outcome in each group of the topic
 */
public record Control(
        String id,
        ControlStatus status,
        int partition,
        Instant dueAt,
        boolean buffered,
        List<GroupFate> groups) {

    static Control of(Fields fields) {
        return new Control(
                fields.text("id"),
                fields.word("status", ControlStatus.class),
                fields.count("partition"),
                fields.time("due_at"),
                fields.is("buffered"),
                fields.objects("groups", GroupFate::of));
    }

    /**
     * The outcome in one group.
     *
     * @param group the group
     * @param status the outcome
     */
    public record GroupFate(String group, GroupControlStatus status) {
        static GroupFate of(Fields fields) {
            return new GroupFate(
                    fields.text("group"), fields.word("status", GroupControlStatus.class));
        }
    }
}
