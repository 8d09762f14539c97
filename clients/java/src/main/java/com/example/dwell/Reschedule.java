package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** A new due time: {@code Reschedule.in(Duration.ofMinutes(90)).key("order-4713")}. */
public final class Reschedule {
    final Map<String, Object> fields = new LinkedHashMap<>();
    String key, etag;

    private Reschedule() {}

    /** A due time that counts from now; the delay is rounded up to milliseconds. */
    public static Reschedule in(Duration delay) { return new Reschedule().set("delay_ms", NewMessage.milliseconds(delay)); }
    /** A due time that is named. */
    public static Reschedule at(Instant dueAt) { return new Reschedule().set("due_at", dueAt); }

    /** The key that the message was pushed with. */
    public Reschedule key(String key) {
        this.key = key;
        return this;
    }

    /** The {@link Message#etag} that the message still has to have; otherwise the type of the error is "precondition-failed". */
    public Reschedule etag(String etag) {
        this.etag = etag;
        return this;
    }

    /** What happens if the time is past: "now" or "reject". Default "now". */
    public Reschedule past(String past) { return set("past", past); }

    private Reschedule set(String name, Object value) {
        fields.put(name, value);
        return this;
    }
}
