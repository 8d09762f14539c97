package com.example.dwell;

import java.time.Instant;

/**
 * A key of a fair group, and how long it is paused.
 *
 * @param key the key
 * @param pausedUntil when the pause ends, or null if the key is not paused
 */
public record KeyPause(String key, Instant pausedUntil) {
    static KeyPause of(Fields fields) {
        return new KeyPause(fields.text("key"), fields.time("paused_until"));
    }
}
