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
 */
public record GroupSettings(
        String copyOf, Double rate, Integer maxInFlight, DeliveryWindow window, Fairness fair) {
    /** Settings of which none is there: a new group gets what is pushed from now on. */
    public static final GroupSettings NONE = new GroupSettings(null, null, null, null, null);

    /** No number is negative. */
    public GroupSettings {
        Checks.that(rate == null || rate >= 0, "rate is negative");
        Checks.that(maxInFlight == null || maxInFlight >= 0, "maxInFlight is negative");
        if (copyOf != null) {
            Checks.name("copyOf", copyOf);
        }
    }

    /** The group of which a new one gets a copy of the messages. */
    public GroupSettings copyOf(String group) {
        return new GroupSettings(group, rate, maxInFlight, window, fair);
    }

    /** Messages that all brokers together deliver in a second, at most; 0 is without a limit. */
    public GroupSettings rate(double rate) {
        return new GroupSettings(copyOf, rate, maxInFlight, window, fair);
    }

    /** Deliveries in flight, at most; 0 is without a limit. */
    public GroupSettings maxInFlight(int maxInFlight) {
        return new GroupSettings(copyOf, rate, maxInFlight, window, fair);
    }

    /** When messages are delivered; outside of it the group is closed. */
    public GroupSettings window(DeliveryWindow window) {
        return new GroupSettings(copyOf, rate, maxInFlight, window, fair);
    }

    /** What takes turns. */
    public GroupSettings fair(Fairness fair) {
        return new GroupSettings(copyOf, rate, maxInFlight, window, fair);
    }

    Body body() {
        return new Body()
                .with("copy_of", copyOf)
                .with("rate", rate)
                .with("max_in_flight", maxInFlight)
                .with("window", window == null ? null : window.body())
                .with("fair", fair);
    }
}
