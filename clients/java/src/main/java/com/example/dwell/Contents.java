package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What a message carries.
 *
 * @param payload the payload
 * @param key the key, or null
 * @param dedupKey the dedup key, or null
 * @param contentType the media type, such as "application/json", or null
 * @param meta the names and values that travel with the payload
 * @param priority from 0 to 9
 * @param pushedAt when the message was accepted; null if its stored bytes cannot be read
 * @param traceparent the trace context of the push, in the form of W3C, or null
 * @param tracestate the trace state of the push, in the form of W3C, or null
 * @param attributes the attributes with which an SQS client sent the message
 * @param deadLetterSource where the message was a dead letter before it was forwarded, or null
 */
public record Contents(
        byte[] payload,
        String key,
        String dedupKey,
        String contentType,
        Map<String, String> meta,
        int priority,
        Instant pushedAt,
        String traceparent,
        String tracestate,
        Map<String, Attribute> attributes,
        DeadLetterSource deadLetterSource) {

    /** Copies the payload. */
    public Contents {
        payload = payload.clone();
    }

    static Contents of(Fields fields) {
        Map<String, Attribute> attributes = new LinkedHashMap<>();
        fields.object("attributes")
                .map()
                .forEach((name, value) -> attributes.put(name, Attribute.of(Fields.of(value))));
        return new Contents(
                payload(fields),
                fields.text("key"),
                fields.text("dedup_key"),
                fields.text("content_type"),
                fields.textsByName("meta"),
                fields.count("priority"),
                fields.time("pushed_at"),
                fields.text("traceparent"),
                fields.text("tracestate"),
                Collections.unmodifiableMap(attributes),
                fields.object("dead_letter_source", DeadLetterSource::of));
    }

    static byte[] payload(Fields fields) {
        String text = fields.text("payload"), base64 = fields.text("payload_base64");
        return text != null
                ? text.getBytes(StandardCharsets.UTF_8)
                : Base64.getDecoder().decode(base64 == null ? "" : base64);
    }

    /** {@return a copy of the payload} */
    @Override
    public byte[] payload() {
        return payload.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Contents that
                && Arrays.equals(payload, that.payload)
                && Arrays.equals(rest(), that.rest());
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(payload) * 31 + Arrays.hashCode(rest());
    }

    private Object[] rest() {
        return new Object[] {
            key,
            dedupKey,
            contentType,
            meta,
            priority,
            pushedAt,
            traceparent,
            tracestate,
            attributes,
            deadLetterSource
        };
    }

    /**
     * An attribute with which an SQS client sent a message.
     *
     * @param type "String", "Number" or "Binary", perhaps with a dot and a label of the client
     * @param value its text; null if its type is "Binary"
     * @param valueBase64 its bytes in base64, if its type is "Binary"
     */
    public record Attribute(String type, String value, String valueBase64) {
        static Attribute of(Fields fields) {
            return new Attribute(
                    fields.text("type"), fields.text("value"), fields.text("value_base64"));
        }
    }

    /**
     * Where a message was a dead letter before it was forwarded.
     *
     * @param topic the topic
     * @param group the group
     * @param id the id that the message had there
     * @param reason why it was a dead letter
     * @param attempts how often it was delivered there
     * @param diedAt when it became a dead letter
     * @param lastError how the last attempt failed, or null
     * @param hops how many topics have forwarded the message, from 1
     */
    public record DeadLetterSource(
            String topic,
            String group,
            String id,
            DeathReason reason,
            int attempts,
            Instant diedAt,
            LastError lastError,
            int hops) {
        static DeadLetterSource of(Fields fields) {
            return new DeadLetterSource(
                    fields.text("topic"),
                    fields.text("group"),
                    fields.text("id"),
                    fields.word("reason", DeathReason.class),
                    fields.count("attempts"),
                    fields.time("died_at"),
                    fields.object("last_error", LastError::of),
                    fields.count("hops"));
        }
    }
}
