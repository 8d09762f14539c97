package com.example.dwell;

import java.time.Instant;

/**
 * The messages of a group in one partition.
 *
 * @param partition the partition, from 0 on
 * @param group the group
 * @param counts the messages by state
 * @param nextDueAt the earliest due time of what is scheduled or ready, or null
 * @param owner the broker that owns the partition, or null
 */
public record PartitionState(
        int partition, String group, Counts counts, Instant nextDueAt, String owner) {
    static PartitionState of(Fields fields) {
        return new PartitionState(
                fields.count("partition"),
                fields.text("group"),
                Counts.of(fields),
                fields.time("next_due_at"),
                fields.text("owner"));
    }
}
