package com.example.dwell;

import java.time.Duration;
import java.util.List;

/** The delay between attempts. */
public sealed interface Backoff {
    /**
     * Delays that grow by a factor.
     *
     * @param initial the first delay
     * @param max the longest delay
     * @param factor from one delay to the next
     * @param jitter the fraction by which a delay is randomly shortened at most
     */
    record Exponential(Duration initial, Duration max, double factor, double jitter)
            implements Backoff {
        /** Neither duration is negative. */
        public Exponential {
            Checks.notNegative("initial", initial);
            Checks.notNegative("max", max);
        }
    }

    /**
     * Listed delays, before the second, the third, … attempt. The last one repeats.
     *
     * @param steps 1 to 32 delays
     */
    record Ladder(List<Duration> steps) implements Backoff {
        /** No delay is negative. */
        public Ladder {
            steps = List.copyOf(steps);
            Checks.between("the number of steps", 1, 32, steps.size());
            steps.forEach(step -> Checks.notNegative("step", step));
        }
    }

    /** Delays that grow by a factor, without jitter. */
    static Backoff exponential(Duration initial, Duration max, double factor) {
        return new Exponential(initial, max, factor, 0);
    }

    /** Listed delays. The last one repeats. */
    static Backoff ladder(Duration... steps) {
        return new Ladder(List.of(steps));
    }
}
