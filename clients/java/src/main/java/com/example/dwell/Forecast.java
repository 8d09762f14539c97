package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.List;

/**
 * How many messages of a group become due, and when. Messages in flight and dead letters are not
 * counted.
 *
 * @param from where the first span begins: now
 * @param step how long each span is
 * @param ready messages that are due already
 * @param spans one for each span
 * @param later messages that become due after the last span
 * @param backoff messages that hold their key until their next attempt: they are in no span
 */
public record Forecast(
        Instant from, Duration step, long ready, List<Due> spans, long later, long backoff) {
    static Forecast of(Fields fields) {
        return new Forecast(
                fields.time("from"),
                fields.milliseconds("step_ms"),
                fields.number("ready"),
                fields.objects("spans", Due::of),
                fields.number("later"),
                fields.number("backoff"));
    }

    /**
     * Messages that become due in one span.
     *
     * @param until the end of the span, which belongs to it
     * @param due how many
     */
    public record Due(Instant until, long due) {
        static Due of(Fields fields) {
            return new Due(fields.time("until"), fields.number("due"));
        }
    }
}
