package com.example.dwell;

/**
 * Settings of a group. One that is null stays unchanged. Its methods return changed copies.
 *
 * @param copyOf the group of which a new one gets a copy of the messages, or null
 * @param rate messages that all brokers together deliver in a second, at most; 0 is without a limit
 * @param maxInFlight deliveries in flight, at most, and not fewer than there are partitions; 0 is
 *     without a limit
 * @param window when messages are delivered; {@link DeliveryWindow#ALWAYS} removes the window
 * @param fair what takes turns; {@link Fairness#NONE} ends it
 * @param keyMaxInFlight deliveries of one key in flight, at most; 0 is without a limit; only in a
 *     fair group
 * @param keyRate deliveries of one key in a second, at most; 0 is without a limit, and removes
 *     keyBurst; only in a fair group
 * @param keyBurst deliveries of one key that may come at once, at least 1; only with a keyRate
 */
public record GroupSettings(
        String copyOf,
        Double rate,
        Integer maxInFlight,
        DeliveryWindow window,
        Fairness fair,
        Integer keyMaxInFlight,
        Double keyRate,
        Integer keyBurst) {
    /** Settings of which none is there: a new group gets what is pushed from now on. */
    public static final GroupSettings NONE =
            new GroupSettings(null, null, null, null, null, null, null, null);

    /** No number is negative, and the burst is not 0. */
    public GroupSettings {
        Checks.that(rate == null || rate >= 0, "rate is negative");
        Checks.that(maxInFlight == null || maxInFlight >= 0, "maxInFlight is negative");
        Checks.that(keyMaxInFlight == null || keyMaxInFlight >= 0, "keyMaxInFlight is negative");
        Checks.that(keyRate == null || keyRate >= 0, "keyRate is negative");
        Checks.that(keyBurst == null || keyBurst >= 1, "keyBurst is below 1");
        if (copyOf != null) {
            Checks.name("copyOf", copyOf);
        }
    }

    /** The group of which a new one gets a copy of the messages. */
    public GroupSettings copyOf(String group) {
        return new GroupSettings(
                group, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /** Messages that all brokers together deliver in a second, at most; 0 is without a limit. */
    public GroupSettings rate(double rate) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /** Deliveries in flight, at most; 0 is without a limit. */
    public GroupSettings maxInFlight(int maxInFlight) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /** When messages are delivered; outside of it the group is closed. */
    public GroupSettings window(DeliveryWindow window) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /** What takes turns. */
    public GroupSettings fair(Fairness fair) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /** Deliveries of one key in flight, at most; 0 is without a limit. Only in a fair group. */
    public GroupSettings keyMaxInFlight(int keyMaxInFlight) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /**
     * Deliveries of one key in a second, at most; 0 is without a limit, and removes the burst. Only
     * in a fair group.
     */
    public GroupSettings keyRate(double keyRate) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    /** Deliveries of one key that may come at once, at least 1. Only with a rate of a key. */
    public GroupSettings keyBurst(int keyBurst) {
        return new GroupSettings(
                copyOf, rate, maxInFlight, window, fair, keyMaxInFlight, keyRate, keyBurst);
    }

    Body body() {
        return new Body()
                .with("copy_of", copyOf)
                .with("rate", rate)
                .with("max_in_flight", maxInFlight)
                .with("window", window == null ? null : window.body())
                .with("fair", fair)
                .with("key_max_in_flight", keyMaxInFlight)
                .with("key_rate", keyRate)
                .with("key_burst", keyBurst);
    }
}
