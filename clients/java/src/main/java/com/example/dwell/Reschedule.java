package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.Objects;

/**
 * A new due time: {@code Reschedule.in(Duration.ofMinutes(90)).key("order-4713")}. Its methods
 * return changed copies.
 *
 * @param delay the time from now until the message is due, or null
 * @param dueAt when the message is due, or null
 * @param past what happens if {@code dueAt} is past, or null for {@link Past#REJECT}
 * @param key the key that the message was pushed with, or null
 * @param etag the {@link Message#etag} that the message has to have, or null
 */
public record Reschedule(Duration delay, Instant dueAt, Past past, String key, String etag) {
    /** Exactly one of {@code delay} and {@code dueAt} is there. */
    public Reschedule {
        Checks.that((delay == null) != (dueAt == null), "a reschedule has either delay or dueAt");
        if (delay != null) {
            Checks.notNegative("delay", delay);
        }
        if (key != null) {
            Checks.name("key", key);
        }
    }

    /** A due time that counts from now; the delay is rounded up to milliseconds. */
    public static Reschedule in(Duration delay) {
        return new Reschedule(Objects.requireNonNull(delay, "delay"), null, null, null, null);
    }

    /** A due time that is named. */
    public static Reschedule at(Instant dueAt) {
        return new Reschedule(null, Objects.requireNonNull(dueAt, "dueAt"), null, null, null);
    }

    /** The key that the message was pushed with. */
    public Reschedule key(String key) {
        return new Reschedule(delay, dueAt, past, key, etag);
    }

    /**
     * The {@link Message#etag} that the message still has to have; otherwise the type of the error
     * is "precondition-failed".
     */
    public Reschedule etag(String etag) {
        return new Reschedule(delay, dueAt, past, key, etag);
    }

    /** What happens if the time is past. Default {@link Past#REJECT}. */
    public Reschedule past(Past past) {
        return new Reschedule(delay, dueAt, past, key, etag);
    }

    Body body() {
        return new Body().with("delay", delay).with("due_at", dueAt).with("past", past);
    }
}
