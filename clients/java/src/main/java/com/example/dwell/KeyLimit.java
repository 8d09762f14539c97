package com.example.dwell;

/**
 * Limits of some keys of a fair group: {@code KeyLimit.NONE.maxInFlight(20).rate(50).burst(5)}. One
 * that is null is that of the group. Its methods return changed copies.
 *
 * @param maxInFlight deliveries in flight of each such key, at most; 0 is without a limit
 * @param rate deliveries of each such key in a second, at most, 0.001 to 100,000; 0 is without a
 *     limit
 * @param burst deliveries of each such key that may come at once, 1 to 10,000; only with a rate.
 *     Default 1
 */
public record KeyLimit(Integer maxInFlight, Double rate, Integer burst) {
    /** Limits of which none is there. */
    public static final KeyLimit NONE = new KeyLimit(null, null, null);

    /** No number is negative, and the burst is not 0. */
    public KeyLimit {
        Checks.that(maxInFlight == null || maxInFlight >= 0, "maxInFlight is negative");
        Checks.that(rate == null || rate >= 0, "rate is negative");
        Checks.that(burst == null || burst >= 1, "burst is below 1");
    }

    /** Deliveries in flight of each such key, at most; 0 is without a limit. */
    public KeyLimit maxInFlight(int maxInFlight) {
        return new KeyLimit(maxInFlight, rate, burst);
    }

    /** Deliveries of each such key in a second, at most; 0 is without a limit. */
    public KeyLimit rate(double rate) {
        return new KeyLimit(maxInFlight, rate, burst);
    }

    /** Deliveries of each such key that may come at once, at least 1. Only with a rate. */
    public KeyLimit burst(int burst) {
        return new KeyLimit(maxInFlight, rate, burst);
    }

    static KeyLimit of(Fields fields) {
        return new KeyLimit(
                fields.countOrNull("max_in_flight"),
                fields.decimalOrNull("rate"),
                fields.countOrNull("burst"));
    }

    Body body() {
        return new Body()
                .with("max_in_flight", maxInFlight)
                .with("rate", rate)
                .with("burst", burst);
    }
}
