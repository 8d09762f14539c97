package com.example.dwell;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/** A message and its state in a group. */
public final class Message extends Contents {
    Message(Map<String, Object> fields) {
        super(fields);
    }

    /** {@return "scheduled", "ready", "blocked", "backoff", "in_flight" or "dead"} */
    public String state() { return string("state"); }
    /** {@return attempts that were charged} */
    public int attempts() { return (int) number("attempts"); }
    /** {@return attempts before it is a dead letter, if the message has its own limit; 0 is without a limit} */
    public int maxAttempts() { return (int) number("max_attempts"); }
    /** {@return the version of the message, for {@link Reschedule#etag}} */
    public String etag() { return string("etag"); }
    /** {@return when the message is tried next, while it is scheduled or ready} */
    public Instant nextAt() { return time("next_at"); }
    /** {@return the time after which it is not delivered} */
    public Instant expiresAt() { return time("expires_at"); }
    /** {@return when it became a dead letter} */
    public Instant diedAt() { return time("died_at"); }
    /** {@return the broker that delivers the message, while it is in flight} */
    public String owner() { return string("owner"); }
    /** {@return why it is a dead letter: "max_attempts", "buried", "unreadable" or "expired"} */
    public String reason() { return string("reason"); }
    /** {@return the reason of the last failed attempt} */
    public String lastError() { return string("last_error"); }
    /** {@return the last 16 failed attempts, oldest first, each with "attempt", "at" and "reason"} */
    public List<Map<String, Object>> history() { return objects("history"); }
    /** {@return why the contents cannot be read, or null} */
    public String unreadable() { return string("unreadable"); }
}
