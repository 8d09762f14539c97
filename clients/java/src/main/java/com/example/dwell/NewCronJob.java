package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.Base64;
import java.util.Map;

/**
 * A message that recurs: {@code NewCronJob.cron("0 9 1 3
 * *").timeZone(ZoneId.of("Europe/Berlin")).text("report").build()}.
 */
public final class NewCronJob {
    private final Body body;

    private NewCronJob(Body body) {
        this.body = body;
    }

    /**
     * Begins one with a cron expression: minute, hour, day of month, month, day of week; or a name
     * such as "@daily".
     */
    public static Builder cron(String expression) {
        return new Builder(new Body().with("cron", Checks.name("cron", expression)));
    }

    /** Begins one that occurs at equal intervals, 1 s to 3,650 days. */
    public static Builder every(Duration span) {
        return new Builder(new Body().with("every", Checks.positive("every", span)));
    }

    byte[] json() {
        return body.json();
    }

    @Override
    public String toString() {
        return "NewCronJob" + body.fields();
    }

    /** The settings of a cron job. */
    public static final class Builder {
        private final Body body;
        private String payload;

        private Builder(Body body) {
            this.body = body;
        }

        /** The payload as text. */
        public Builder text(String payload) {
            return payload("payload", payload);
        }

        /** The payload as bytes. */
        public Builder bytes(byte[] payload) {
            return payload("payload_base64", Base64.getEncoder().encodeToString(payload));
        }

        /** The payload as JSON: maps, lists, arrays, text, numbers, booleans and null. */
        public Builder json(Object payload) {
            return payload("payload_json", payload);
        }

        private Builder payload(String name, Object value) {
            Checks.that(payload == null || payload.equals(name), "a cron job has one payload");
            payload = name;
            body.withNullable(name, value);
            return this;
        }

        /** The time zone of a cron expression. Default: UTC. */
        public Builder timeZone(ZoneId timeZone) {
            body.with("time_zone", timeZone.getId());
            return this;
        }

        /** Occurrences are whole spans of "every" after this. Default: 1970-01-01T00:00:00Z. */
        public Builder from(Instant from) {
            body.with("from", from);
            return this;
        }

        /** Which occurrences that were missed are pushed later. Default {@link Missed#LAST}. */
        public Builder missed(Missed missed) {
            body.with("missed", missed);
            return this;
        }

        /** How long after its occurrence a message is still delivered. Default: the topic's. */
        public Builder ttl(Duration ttl) {
            body.with("ttl", Checks.notNegative("ttl", ttl));
            return this;
        }

        /**
         * Attempts before a message is dead, up to 1,000; 0 is without a limit. Default: the
         * topic's.
         */
        public Builder maxAttempts(int attempts) {
            body.with("max_attempts", Checks.between("maxAttempts", 0, 1000, attempts));
            return this;
        }

        /** The media type of the payload. */
        public Builder contentType(String contentType) {
            body.with("content_type", Checks.name("contentType", contentType));
            return this;
        }

        /** Names and values that travel with the payload. */
        public Builder meta(Map<String, String> meta) {
            body.with("meta", Map.copyOf(meta));
            return this;
        }

        /** Makes the cron job. Throws IllegalArgumentException if it has no payload. */
        public NewCronJob build() {
            Checks.that(payload != null, "a cron job has a payload");
            return new NewCronJob(new Body().withAll(body));
        }
    }
}
