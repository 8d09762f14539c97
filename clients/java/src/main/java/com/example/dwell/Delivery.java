package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/** A message that was handed to a worker. */
public final class Delivery extends Contents {
    final Worker worker;
    /** Times of {@link System#nanoTime}. */
    long deadline, extendAt, extendUntil, decidedAt, notBefore;
    /** What is settled, "ack" or "nack", once that is decided. */
    String verb;
    Map<String, Object> decision;
    int tries;
    volatile boolean isLost;
    /** The thread of the handler while it runs. */
    Thread thread;

    Delivery(Map<String, Object> fields, Worker worker) {
        super(fields);
        this.worker = worker;
    }

    /** {@return what settles this delivery} */
    public String receipt() { return string("receipt"); }
    /** {@return the number of this attempt, starting at 1} */
    public int attempt() { return (int) number("attempt"); }
    /** {@return when the message is delivered again, unless the worker extends it} */
    public Instant deadline() { return time("deadline"); }
    /** {@return the time from due to the delivery} */
    public Duration lateness() { return Duration.ofMillis(number("lateness_ms")); }
    /** {@return whether another consumer may have the message: then nothing of this delivery is settled} */
    public boolean isLost() { return isLost; }

    /**
     * Moves the deadline. A worker does so by itself, until its {@link Worker#maxRuntime}.
     *
     * @param visibility the time from now until the message is delivered again
     * @return whether the delivery still belongs to this worker
     */
    public boolean extend(Duration visibility) { return worker.extend(List.of(this), visibility); }
}
