package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * Counters of a worker since its start, and its state now.
 *
 * @param counts how often each event happened
 * @param inFlight deliveries that are handled or settled now
 * @param lateness the time from due to the delivery, of the last message
 * @param lastPoll when the broker last answered a poll, or null
 */
public record Stats(Map<Event, Long> counts, int inFlight, Duration lateness, Instant lastPoll) {
    /** {@return how often an event happened} */
    public long count(Event event) {
        return counts.getOrDefault(event, 0L);
    }
}
