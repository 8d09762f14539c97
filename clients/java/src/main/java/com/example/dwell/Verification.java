package com.example.dwell;

import java.util.List;

/**
 * Whether the stored data of a group is consistent.
 *
 * @param seen entries that were looked at
 * @param findings inconsistencies
 */
public record Verification(long seen, List<Found> findings) {
    /**
     * An inconsistency.
     *
     * @param id the id of the message
     * @param partition the partition
     * @param defect a stable word, such as "body_without_id"
     */
    public record Found(String id, int partition, String defect) {
        static Found of(Fields fields) {
            return new Found(fields.text("id"), fields.count("partition"), fields.text("defect"));
        }
    }
}
