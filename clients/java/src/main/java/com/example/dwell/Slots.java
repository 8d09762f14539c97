package com.example.dwell;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;

/**
 * The deliveries of a worker, and whether it stops. Its loops wait here for changes. All methods
 * hold the lock of this object; none makes a request.
 */
final class Slots {
    private static final System.Logger LOG = System.getLogger(Slots.class.getPackageName());

    private final BiConsumer<Event, Delivery> onEvent;
    private final Map<String, Delivery> deliveries = new LinkedHashMap<>();
    private final Map<Event, Long> counts = new EnumMap<>(Event.class);
    private Duration lateness = Duration.ZERO;
    private Instant lastPoll;

    /** The longest visibility timeout of a delivery until now. */
    Duration visibility = Duration.ZERO;

    /** {@code isOver}: nothing is left to settle or to extend. */
    boolean isStopping, isOver;

    Slots(BiConsumer<Event, Delivery> onEvent) {
        this.onEvent = onEvent;
    }

    /** Changes the state, and wakes those that wait for a change. */
    synchronized void update(Runnable change) {
        change.run();
        notifyAll();
    }

    /** Waits for a change, or until a time of {@link System#nanoTime}. */
    synchronized void await(long until) throws InterruptedException {
        long nanos = until - System.nanoTime();
        if (nanos > 0) {
            wait(TimeUnit.NANOSECONDS.toMillis(nanos) + 1);
        }
    }

    /**
     * Waits until a condition is true or a time is there. An interrupt, which stays, calls {@code
     * onInterrupt}.
     */
    synchronized void until(long end, BooleanSupplier condition, Runnable onInterrupt) {
        boolean wasInterrupted = false;
        while (!condition.getAsBoolean() && System.nanoTime() - end < 0) {
            try {
                await(end);
            } catch (InterruptedException e) {
                wasInterrupted = true;
                onInterrupt.run();
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    static long never() {
        return System.nanoTime() + TimeUnit.DAYS.toNanos(36_500);
    }

    static long earlier(long a, long b) {
        return a - b < 0 ? a : b;
    }

    Collection<Delivery> deliveries() {
        return deliveries.values();
    }

    boolean isEmpty() {
        return deliveries.isEmpty();
    }

    synchronized Stats stats() {
        return new Stats(Map.copyOf(counts), deliveries.size(), lateness, lastPoll);
    }

    synchronized void polled() {
        lastPoll = Instant.now();
    }

    synchronized void add(Delivery d) {
        deliveries.put(d.receipt(), d);
        lateness = d.lateness();
        if (d.visibility.compareTo(visibility) > 0) {
            visibility = d.visibility;
        }
        event(Event.DELIVERED, d);
        notifyAll();
    }

    synchronized void remove(Delivery d) {
        deliveries.remove(d.receipt(), d);
        notifyAll();
    }

    synchronized void event(Event event, Delivery delivery) {
        counts.merge(event, 1L, Long::sum);
        try {
            onEvent.accept(event, delivery);
        } catch (RuntimeException e) {
            LOG.log(Level.WARNING, "the hook for events failed", e);
        }
    }

    /** Decides how a delivery ends. */
    synchronized void decide(Delivery d, Decision decision) {
        d.decision = decision;
        d.decidedAt = d.notBefore = System.nanoTime();
        notifyAll();
    }

    /** Another consumer may have the message. */
    synchronized void lose(Delivery d) {
        if (!d.isLost) {
            d.isLost = true;
            LOG.log(Level.WARNING, "delivery of {0} is lost: another consumer may have it", d.id());
            event(Event.LOST, d);
            d.interrupt();
        }
    }

    /** Gives back what handlers have, and interrupts them. */
    synchronized void giveBack() {
        for (Delivery d : deliveries.values()) {
            if (d.decision == null && !d.isLost) {
                decide(d, Decision.interrupted());
                d.interrupt();
            }
        }
    }
}
