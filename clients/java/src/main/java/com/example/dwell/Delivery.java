package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.List;

/** A message that was handed to a worker. */
public final class Delivery implements HasContents {
    private final Settler settler;
    private final String id;
    private final String receipt;
    private final int attempt;
    private final int partition;
    private final Instant dueAt;
    private final Instant deadline;
    private final Duration lateness;
    private final Contents contents;

    /** What the worker extends it by. */
    final Duration visibility;

    /** Times of {@link System#nanoTime}. */
    long endsAt, extendAt, extendUntil, decidedAt, notBefore;

    /** How it ends, once that is decided. */
    Decision decision;

    int tries;

    /** Its settlement has a separate request, since the broker refused it together with others. */
    boolean isAlone;

    /** Whether the worker moves its deadline. */
    boolean isExtended = true;

    /** Its extension has a separate request, since the broker refused it together with others. */
    boolean isExtendedAlone;

    volatile boolean isLost;

    /** The thread of the handler while it runs. */
    private Thread thread;

    Delivery(Fields fields, Settler settler, Duration visibility) {
        this.settler = settler;
        this.visibility = visibility;
        id = fields.text("id");
        receipt = fields.text("receipt");
        attempt = fields.count("attempt");
        partition = fields.count("partition");
        dueAt = fields.time("due_at");
        deadline = fields.time("deadline");
        lateness = Duration.ofMillis(fields.number("lateness_ms"));
        contents = Contents.of(fields);
    }

    /** {@return the id of the message} */
    @Override
    public String id() {
        return id;
    }

    /** {@return what settles this delivery} */
    public String receipt() {
        return receipt;
    }

    /** {@return the number of this attempt, starting at 1} */
    public int attempt() {
        return attempt;
    }

    /** {@return the partition that stores the message} */
    @Override
    public int partition() {
        return partition;
    }

    /** {@return when the message was due} */
    @Override
    public Instant dueAt() {
        return dueAt;
    }

    /** {@return when the message is delivered again, unless the worker extends it} */
    public Instant deadline() {
        return deadline;
    }

    /** {@return the time from due to the delivery} */
    public Duration lateness() {
        return lateness;
    }

    /** {@return what the message carries} */
    @Override
    public Contents contents() {
        return contents;
    }

    /**
     * {@return whether another consumer may have the message: then nothing of this delivery is
     * settled}
     */
    public boolean isLost() {
        return isLost;
    }

    /**
     * Moves the deadline. A worker does so by itself, until its {@link Worker.Builder#maxRuntime}.
     *
     * @param visibility the time from now until the message is delivered again
     * @return whether the delivery still belongs to this worker
     * @throws DwellException if the broker refuses this time, such as one beyond a limit: the
     *     deadline is then as before, and the worker still extends it
     */
    public boolean extend(Duration visibility) {
        Duration wanted = Checks.positive("visibility", visibility);
        DwellException refusal = settler.extend(List.of(this), wanted);
        if (refusal != null && !isLost) {
            throw refusal;
        }
        return !isLost;
    }

    @Override
    public String toString() {
        return "Delivery[id=" + id + ", attempt=" + attempt + ", partition=" + partition + "]";
    }

    /** The handler begins on this thread, or has ended with null. */
    void runsOn(Thread thread) {
        this.thread = thread;
    }

    void interrupt() {
        if (thread != null) {
            thread.interrupt();
        }
    }
}
