package com.example.dwell;

import java.time.Instant;

/**
 * Where a pushed message is.
 *
 * @param id the id of the message
 * @param status the outcome
 * @param partition the partition that stores the message; 0 if it was not accepted, or is buffered
 *     for a topic that the broker has not seen in Redis
 * @param dueAt when the message is due; null if it was not accepted
 * @param differs whether this is a duplicate of a message with another payload or due time
 * @param duplicateOf the id of the first message, for a duplicate by its dedup key, or null
 * @param replicas how many replicas of Redis have the message, if the broker waits for them, or
 *     null
 * @param topicCreated whether this push created the topic
 * @param error why the message of a batch was not accepted, or null
 */
public record PushResult(
        String id,
        PushStatus status,
        int partition,
        Instant dueAt,
        boolean differs,
        String duplicateOf,
        Integer replicas,
        boolean topicCreated,
        DwellException error) {

    static PushResult of(Fields fields) {
        return new PushResult(
                fields.text("id"),
                fields.word("status", PushStatus.class),
                fields.count("partition"),
                fields.time("due_at"),
                fields.is("differs"),
                fields.text("duplicate_of"),
                fields.countOrNull("replicas"),
                fields.is("topic_created"),
                fields.object("error", DwellException::of));
    }
}
