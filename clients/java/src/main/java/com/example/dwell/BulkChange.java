package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.Objects;

/**
 * A change of the messages that are due in a window of time.
 *
 * @param action what to do
 * @param from start of the window
 * @param to end of the window, which is not part of it
 * @param by by how much to postpone or advance: at least the length of the window; null with other
 *     actions
 */
public record BulkChange(BulkAction action, Instant from, Instant to, Duration by) {
    /** Checks that {@code by} is there where it is needed. */
    public BulkChange {
        Objects.requireNonNull(action, "action");
        Objects.requireNonNull(from, "from");
        Objects.requireNonNull(to, "to");
        boolean isMoved = action == BulkAction.POSTPONE || action == BulkAction.ADVANCE;
        Checks.that(isMoved == (by != null), "by is for POSTPONE and ADVANCE");
        if (by != null) {
            Checks.notNegative("by", by);
        }
    }

    /** Cancels them. */
    public static BulkChange cancel(Instant from, Instant to) {
        return new BulkChange(BulkAction.CANCEL, from, to, null);
    }

    /** Makes them due later. */
    public static BulkChange postpone(Instant from, Instant to, Duration by) {
        return new BulkChange(BulkAction.POSTPONE, from, to, by);
    }

    /** Makes them due earlier. */
    public static BulkChange advance(Instant from, Instant to, Duration by) {
        return new BulkChange(BulkAction.ADVANCE, from, to, by);
    }

    /** Makes them due far in the future. */
    public static BulkChange park(Instant from, Instant to) {
        return new BulkChange(BulkAction.PARK, from, to, null);
    }

    /** Gives parked messages their due times again. */
    public static BulkChange unpark(Instant from, Instant to) {
        return new BulkChange(BulkAction.UNPARK, from, to, null);
    }

    Body body(String cursor) {
        return new Body()
                .with("action", action)
                .with("from", from)
                .with("to", to)
                .with("by", by)
                .with("cursor", cursor);
    }
}
