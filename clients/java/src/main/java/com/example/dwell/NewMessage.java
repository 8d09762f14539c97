package com.example.dwell;

import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A message to push. It has an id from the start, so a repeated push of it is a duplicate.
 *
 * <pre>{@code NewMessage.text("close order 4713").id("close-4713").key("order-4713").delay(Duration.ofMinutes(30))}</pre>
 */
public final class NewMessage {
    private static final SecureRandom RANDOM = new SecureRandom();
    private final Map<String, Object> fields = new LinkedHashMap<>();

    private NewMessage(String name, Object payload) {
        set(name, payload).id(ulid());
    }

    /** Creates a message of text. JSON of a library is text, too, with {@code contentType("application/json")}. */
    public static NewMessage text(String payload) { return new NewMessage("payload", payload); }
    /** Creates a message of bytes. */
    public static NewMessage bytes(byte[] payload) { return new NewMessage("payload_base64", Base64.getEncoder().encodeToString(payload)); }
    /** Creates a message of JSON: maps, lists, arrays, text, numbers, booleans and null. A push refuses anything else. */
    public static NewMessage json(Object payload) { return new NewMessage("payload_json", payload); }

    /** Replaces the id, which is a new ULID. */
    public NewMessage id(String id) { return set("id", id); }
    /** Decides the partition; without a key the dedup key does, and without both the id. */
    public NewMessage key(String key) { return set("key", key); }
    /** The time from now until the message is due, at most 3,650 days, rounded up to milliseconds. Default 0. */
    public NewMessage delay(Duration delay) { return set("delay_ms", milliseconds(delay)); }
    /** When the message is due; not together with a delay. */
    public NewMessage dueAt(Instant dueAt) { return set("due_at", dueAt); }
    /** What happens if the due time is past: "now" or "reject". Default "now". */
    public NewMessage past(String past) { return set("past", past); }
    /** The time from due until the message expires, rounded up to milliseconds. Default: the topic's. */
    public NewMessage ttl(Duration ttl) { return set("ttl_ms", milliseconds(ttl)); }
    /** From 0 to 9: among the ready messages of a partition higher ones are delivered first. Default 0. */
    public NewMessage priority(int priority) { return set("priority", priority); }
    /** Attempts before the message is a dead letter, up to 1,000; 0 is without a limit. Default: the topic's. */
    public NewMessage maxAttempts(int attempts) { return set("max_attempts", attempts); }
    /** Makes another push of this dedup key to the partition a duplicate, for 1 second to 7 days from this push on. */
    public NewMessage dedup(String key, Duration time) { return set("dedup_key", key).set("dedup_for_ms", milliseconds(time)); }
    /** What happens if the id exists: "keep", "reject", "replace" or "debounce". Default "keep". */
    public NewMessage conflict(String conflict) { return set("conflict", conflict); }
    /** The media type of the payload, such as "text/plain". */
    public NewMessage contentType(String type) { return set("content_type", type); }
    /** Names and values that travel with the payload. */
    public NewMessage meta(Map<String, String> meta) { return set("meta", Map.copyOf(meta)); }

    String encoded() {
        return Json.write(fields);
    }

    private NewMessage set(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    /** Rounds up, so that nothing is due early. */
    static long milliseconds(Duration time) {
        return time.plusNanos(999_999).toMillis();
    }

    /** A new ULID: sortable by time, unique. */
    private static String ulid() {
        StringBuilder text = new StringBuilder();
        long now = System.currentTimeMillis();
        for (int shift = 45; shift >= 0; shift -= 5) {
            text.append("0123456789ABCDEFGHJKMNPQRSTVWXYZ".charAt((int) (now >> shift & 31)));
        }
        RANDOM.ints(16, 0, 32).forEach(n -> text.append("0123456789ABCDEFGHJKMNPQRSTVWXYZ".charAt(n)));
        return text.toString();
    }
}
