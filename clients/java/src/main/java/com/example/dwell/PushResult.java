package com.example.dwell;

import java.time.Instant;
import java.util.Map;

/** Where a pushed message is. */
public final class PushResult extends Answer {
    PushResult(Map<String, Object> fields) {
        super(fields);
    }

    /** {@return the id of the message} */
    public String id() { return string("id"); }
    /** {@return "stored", "journaled", "buffered", "duplicate", "replaced", "debounced" or "error"} */
    public String status() { return string("status"); }
    /** {@return the partition that stores the message} */
    public int partition() { return (int) number("partition"); }
    /** {@return when the message is due} */
    public Instant dueAt() { return time("due_at"); }
    /** {@return whether this is a duplicate of a message with another payload or due time} */
    public boolean differs() { return is("differs"); }
    /** {@return the id of the first message, for a duplicate by its dedup key} */
    public String duplicateOf() { return string("duplicate_of"); }
    /** {@return how many replicas of Redis have the message, if the topic waits for them} */
    public int replicas() { return (int) number("replicas"); }
    /** {@return whether this push created the topic} */
    public boolean topicCreated() { return is("topic_created"); }
    /** {@return why the message of a batch was not accepted, or null} */
    public DwellException error() { return fields().get("error") instanceof Map<?, ?> problem ? DwellException.of(object(problem)) : null; }
}
