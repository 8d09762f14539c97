package com.example.dwell;

import java.time.Duration;

/**
 * Messages of a group by state.
 *
 * @param scheduled messages that are not due
 * @param ready messages that are due, and that the next consumer may have
 * @param blocked messages that are due, behind an earlier message of their key
 * @param backoff messages that hold their key until their next attempt
 * @param inFlight messages that consumers have
 * @param dead dead letters
 * @param oldestReadyAge how long the oldest message that is ready or blocked has been due, or null
 */
public record Counts(
        long scheduled,
        long ready,
        long blocked,
        long backoff,
        long inFlight,
        long dead,
        Duration oldestReadyAge) {
    static Counts of(Fields fields) {
        return new Counts(
                fields.number("scheduled"),
                fields.number("ready"),
                fields.number("blocked"),
                fields.number("backoff"),
                fields.number("in_flight"),
                fields.number("dead"),
                fields.milliseconds("oldest_ready_age_ms"));
    }
}
