package com.example.dwell;

import java.time.Duration;

/**
 * Thrown by a handler that wants the message again after a given time, and not after the backoff of
 * its topic.
 */
public final class Retry extends RuntimeException {
    private static final long serialVersionUID = 1;
    final Duration after;
    boolean pausesKey;

    /** Delivers the message again after this time, which is rounded up to milliseconds. */
    public Retry(Duration after) {
        this(after, "");
    }

    /** Delivers the message again, and says why the attempt failed. */
    public Retry(Duration after, String reason) {
        this(after, reason, null);
    }

    /** Delivers the message again, with the details of the error behind the failed attempt. */
    public Retry(Duration after, String reason, Throwable cause) {
        super(reason, cause);
        this.after = Checks.notNegative("after", after);
    }

    /**
     * All messages of the key wait as long as this one, and no attempt of theirs is counted, as for
     * a 429 with {@code Retry-After} of a customer's endpoint. Only in a fair group: in another one
     * the broker refuses it, and delivers the message again after its visibility timeout.
     *
     * @return this
     */
    public Retry pauseKey() {
        pausesKey = true;
        return this;
    }
}
