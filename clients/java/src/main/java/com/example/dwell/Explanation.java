package com.example.dwell;

import java.time.Instant;
import java.util.List;

/**
 * Why a message is not delivered yet.
 *
 * @param id the id of the message
 * @param partition the partition that stores it
 * @param buffered whether it is on the disk of the broker until the store is reachable
 * @param groups the reason in each group of the topic
 */
public record Explanation(String id, int partition, boolean buffered, List<GroupReason> groups) {
    static Explanation of(Fields fields) {
        return new Explanation(
                fields.text("id"),
                fields.count("partition"),
                fields.is("buffered"),
                fields.objects("groups", GroupReason::of));
    }

    /**
     * The reason in one group.
     *
     * @param group the group
     * @param reason a stable word, such as "scheduled" or "no_consumer"
     * @param detail the reason in a sentence
     * @param blocker the message that it is behind, the first of its key, or null
     * @param until the latest time at which it no longer waits for this, or null if that is not
     *     known
     * @param owner the broker that owns its partition, or null
     * @param lastError how the last attempt failed, or null
     */
    public record GroupReason(
            String group,
            String reason,
            String detail,
            String blocker,
            Instant until,
            String owner,
            LastError lastError) {
        static GroupReason of(Fields fields) {
            return new GroupReason(
                    fields.text("group"),
                    fields.text("reason"),
                    fields.text("detail"),
                    fields.text("blocker"),
                    fields.time("until"),
                    fields.text("owner"),
                    fields.object("last_error", LastError::of));
        }
    }
}
