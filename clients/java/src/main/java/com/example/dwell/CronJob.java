package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Map;

/**
 * A recurring message.
 *
 * @param name its name, which is the key of its messages
 * @param cron the cron expression, or null
 * @param timeZone the time zone of {@code cron}, or null
 * @param every the span from one occurrence to the next, or null
 * @param from occurrences are whole spans of {@code every} after this, or null
 * @param missed which occurrences that were missed are pushed later
 * @param paused whether nothing is pushed
 * @param state its state
 * @param failure why it has failed, and what to write, or null
 * @param nextAt when it occurs next; null while it is paused, and when it has failed
 * @param ttl how long after its occurrence a message is still delivered, or null
 * @param maxAttempts attempts before a message is dead, if it has its own limit, or null
 * @param contentType the media type of the payload, or null
 * @param meta names and values that travel with the payload
 * @param payload the payload
 */
public record CronJob(
        String name,
        String cron,
        String timeZone,
        Duration every,
        Instant from,
        Missed missed,
        boolean paused,
        CronState state,
        String failure,
        Instant nextAt,
        Duration ttl,
        Integer maxAttempts,
        String contentType,
        Map<String, String> meta,
        byte[] payload) {

    /** Copies the payload. */
    public CronJob {
        payload = payload.clone();
    }

    static CronJob of(Fields fields) {
        return new CronJob(
                fields.text("name"),
                fields.text("cron"),
                fields.text("time_zone"),
                fields.milliseconds("every_ms"),
                fields.time("from"),
                fields.word("missed", Missed.class),
                fields.is("paused"),
                fields.word("state", CronState.class),
                fields.text("failure"),
                fields.time("next_at"),
                fields.milliseconds("ttl_ms"),
                fields.countOrNull("max_attempts"),
                fields.text("content_type"),
                fields.textsByName("meta"),
                Contents.payload(fields));
    }

    /** {@return a copy of the payload} */
    @Override
    public byte[] payload() {
        return payload.clone();
    }

    /** {@return the payload, read as UTF-8} */
    public String text() {
        return new String(payload, StandardCharsets.UTF_8);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof CronJob that
                && Arrays.equals(payload, that.payload)
                && Arrays.equals(rest(), that.rest());
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(payload) * 31 + Arrays.hashCode(rest());
    }

    private Object[] rest() {
        return new Object[] {
            name,
            cron,
            timeZone,
            every,
            from,
            missed,
            paused,
            state,
            failure,
            nextAt,
            ttl,
            maxAttempts,
            contentType,
            meta
        };
    }
}
