package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.Map;

/**
 * A message to push. It has an id from the start, so a repeated push of it is a duplicate.
 *
 * <pre>{@code
 * NewMessage.text("close order 4713").id("close-4713").delay(Duration.ofMinutes(30)).build()
 * }</pre>
 */
public final class NewMessage {
    private final Map<String, Object> fields;

    /** The message as JSON. */
    final byte[] encoded;

    private NewMessage(Map<String, Object> fields) {
        this.fields = fields;
        encoded = Json.write(fields).getBytes(StandardCharsets.UTF_8);
    }

    /**
     * Begins a message of text. JSON of a library is text, too, with {@link Builder#contentType}.
     */
    public static Builder text(String payload) {
        return new Builder("payload", java.util.Objects.requireNonNull(payload, "payload"));
    }

    /** Begins a message of bytes. */
    public static Builder bytes(byte[] payload) {
        return new Builder("payload_base64", Base64.getEncoder().encodeToString(payload));
    }

    /**
     * Begins a message of JSON: maps, lists, arrays, text, numbers, booleans and null. {@link
     * Builder#build} refuses anything else.
     */
    public static Builder json(Object payload) {
        return new Builder("payload_json", payload);
    }

    /** {@return the id} */
    public String id() {
        return (String) fields.get("id");
    }

    /** {@return the key, or null} */
    public String key() {
        return (String) fields.get("key");
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof NewMessage message && fields.equals(message.fields);
    }

    @Override
    public int hashCode() {
        return fields.hashCode();
    }

    @Override
    public String toString() {
        return "NewMessage" + fields;
    }

    /** The message with the trace context of its push, unless it has its own. */
    NewMessage in(Map<String, String> trace) {
        if (trace.isEmpty() || fields.containsKey("traceparent")) {
            return this;
        }
        Map<String, Object> traced = new java.util.LinkedHashMap<>(fields);
        traced.putAll(trace);
        return new NewMessage(traced);
    }

    /** The settings of a message. */
    public static final class Builder {
        private final Body body = new Body();

        private Builder(String name, Object payload) {
            body.withNullable(name, payload);
        }

        /** The id. Default: a new ULID. */
        public Builder id(String id) {
            body.with("id", Checks.id(id));
            return this;
        }

        /** Decides the partition; without a key the dedup key does, and without both the id. */
        public Builder key(String key) {
            body.with("key", Checks.name("key", key));
            return this;
        }

        /**
         * The time from now until the message is due, at most 3,650 days, rounded up to
         * milliseconds. Default 0. Not together with {@link #dueAt}.
         */
        public Builder delay(Duration delay) {
            body.with("delay", Checks.notNegative("delay", delay));
            return this;
        }

        /** When the message is due. Not together with {@link #delay}. */
        public Builder dueAt(Instant dueAt) {
            body.with("due_at", dueAt);
            return this;
        }

        /** What happens if the due time is past. Default {@link Past#NOW}. */
        public Builder past(Past past) {
            body.with("past", past);
            return this;
        }

        /**
         * The time from due until the message expires, rounded up to milliseconds. Default: the
         * topic's.
         */
        public Builder ttl(Duration ttl) {
            body.with("ttl", Checks.notNegative("ttl", ttl));
            return this;
        }

        /**
         * From 0 to 9: among the ready messages of a partition higher ones are delivered first.
         * Default 0.
         */
        public Builder priority(int priority) {
            body.with("priority", Checks.between("priority", 0, 9, priority));
            return this;
        }

        /**
         * Attempts before the message is a dead letter, up to 1,000; 0 is without a limit. Default:
         * the topic's.
         */
        public Builder maxAttempts(int attempts) {
            body.with("max_attempts", Checks.between("maxAttempts", 0, 1000, attempts));
            return this;
        }

        /**
         * Makes another push of this dedup key to the partition a duplicate, for 1 second to 7 days
         * from this push on.
         */
        public Builder dedup(String dedupKey, Duration dedupFor) {
            body.with("dedup_key", Checks.name("dedupKey", dedupKey));
            body.with("dedup_for", Checks.positive("dedupFor", dedupFor));
            return this;
        }

        /**
         * Moves the due time by up to this, by a value that the id decides: a repeated push is due
         * at the same time. Rounded up to milliseconds.
         */
        public Builder spread(Duration spread) {
            body.with("spread", Checks.positive("spread", spread));
            return this;
        }

        /** What happens if the id exists. Default {@link ConflictPolicy#KEEP}. */
        public Builder conflict(ConflictPolicy conflict) {
            body.with("conflict", conflict);
            return this;
        }

        /**
         * With {@link ConflictPolicy#DEBOUNCE}: how long after its first push the message may be
         * due at the latest. Rounded up to milliseconds.
         */
        public Builder debounceMax(Duration max) {
            body.with("debounce_max", Checks.positive("debounceMax", max));
            return this;
        }

        /** The media type of the payload, such as "text/plain". */
        public Builder contentType(String contentType) {
            body.with("content_type", Checks.name("contentType", contentType));
            return this;
        }

        /** Names and values that travel with the payload. */
        public Builder meta(Map<String, String> meta) {
            body.with("meta", Map.copyOf(meta));
            return this;
        }

        /**
         * The trace context of the push, in the form of W3C. Default: that of {@link
         * Client.Builder#trace}.
         */
        public Builder traceparent(String traceparent) {
            body.with("traceparent", Checks.name("traceparent", traceparent));
            return this;
        }

        /** The trace state of the push, in the form of W3C; not without {@link #traceparent}. */
        public Builder tracestate(String tracestate) {
            body.with("tracestate", tracestate);
            return this;
        }

        /**
         * Makes the message. Throws IllegalArgumentException if its fields contradict each other.
         */
        public NewMessage build() {
            Checks.that(
                    !body.has("delay_ms") || !body.has("due_at"),
                    "a message has either delay or dueAt");
            if (!body.has("id")) {
                return new NewMessage(new Body().withAll(body).with("id", Ids.next()).fields());
            }
            return new NewMessage(new Body().withAll(body).fields());
        }
    }
}
