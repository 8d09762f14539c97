package com.example.dwell;

import java.time.Duration;

/** Thrown by a handler that wants the message again after a given time, and not after the backoff of its topic. */
public final class Retry extends RuntimeException {
    private static final long serialVersionUID = 1;
    final Duration after;

    /** Delivers the message again after this time, which is rounded up to milliseconds. */
    public Retry(Duration after) { this(after, ""); }

    /** The same, with the reason of the failed attempt. */
    public Retry(Duration after, String reason) {
        super(reason);
        this.after = after;
    }
}
