package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

/** The contents of a message. */
public abstract class Contents extends Answer {
    Contents(Map<String, Object> fields) {
        super(fields);
    }

    /** {@return the payload} */
    public byte[] payload() {
        String text = string("payload"), base64 = string("payload_base64");
        return text != null ? text.getBytes(StandardCharsets.UTF_8) : Base64.getDecoder().decode(base64 == null ? "" : base64);
    }

    /** {@return the payload, read as UTF-8} */
    public String text() { return new String(payload(), StandardCharsets.UTF_8); }

    /**
     * Reads the payload as JSON.
     *
     * @return a {@link Map}, {@link java.util.List}, {@link String}, {@link Long}, {@link Double}, {@link Boolean} or null; a whole
     *     number that is no long is a {@link java.math.BigInteger}
     * @throws IllegalArgumentException if the payload is not JSON, or nested more than 500 times
     */
    public Object json() { return Json.read(text()); }

    /** {@return the id of the message} */
    public String id() { return string("id"); }
    /** {@return the key that the message was pushed with} */
    public String key() { return string("key"); }
    /** {@return the dedup key that the message was pushed with} */
    public String dedupKey() { return string("dedup_key"); }
    /** {@return the content type, such as "application/json"} */
    public String contentType() { return string("content_type"); }
    /** {@return the metadata} */
    public Map<String, String> meta() {
        Map<String, String> meta = new LinkedHashMap<>();
        object(fields().get("meta")).forEach((name, value) -> meta.put(name, (String) value));
        return meta;
    }
    /** {@return the priority, from 0 to 9} */
    public int priority() { return (int) number("priority"); }
    /** {@return the partition that stores the message} */
    public int partition() { return (int) number("partition"); }
    /** {@return when the message was pushed} */
    public Instant pushedAt() { return time("pushed_at"); }
    /** {@return when the message is due} */
    public Instant dueAt() { return time("due_at"); }
    /** {@return the trace context of the push, in the form of W3C} */
    public String traceparent() { return string("traceparent"); }
    /** {@return the trace state of the push, in the form of W3C} */
    public String tracestate() { return string("tracestate"); }
    /** {@return the attributes with which an SQS client sent the message, each an object with a type and a value} */
    public Map<String, Object> attributes() {
        return fields().get("attributes") instanceof Map<?, ?> attributes ? object(attributes) : Map.of();
    }
    /** {@return where the message was a dead letter before it was forwarded, or null} */
    public DeadLetterSource deadLetterSource() {
        return fields().get("dead_letter_source") instanceof Map<?, ?> source ? new DeadLetterSource(object(source)) : null;
    }

    /** Where a message was a dead letter before it was forwarded. */
    public static final class DeadLetterSource extends Answer {
        DeadLetterSource(Map<String, Object> fields) {
            super(fields);
        }

        /** {@return the topic} */
        public String topic() { return string("topic"); }
        /** {@return the group} */
        public String group() { return string("group"); }
        /** {@return the id that the message had there} */
        public String id() { return string("id"); }
        /** {@return "max_attempts" or "buried"} */
        public String reason() { return string("reason"); }
        /** {@return how many attempts failed} */
        public int attempts() { return (int) number("attempts"); }
        /** {@return when it became a dead letter} */
        public Instant diedAt() { return time("died_at"); }
        /** {@return the reason of the last failed attempt} */
        public String lastError() { return string("last_error"); }
        /** {@return how many topics have forwarded the message, from 1} */
        public int hops() { return (int) number("hops"); }
    }
}
