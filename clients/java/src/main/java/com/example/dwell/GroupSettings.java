package com.example.dwell;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;

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
 * @param weights how large the shares of some keys are, 1 to 100, where others have 1: 100 at most,
 *     by the name of a key, or the beginning of names with a * behind it, such as "gold-*"; replace
 *     all weights, and an empty map removes them; only in a fair group
 * @param keyLimits other limits for some keys, by names and beginnings as in weights, 100 at most;
 *     replace all of them, and an empty map removes them; only in a fair group
 */
public record GroupSettings(
        String copyOf,
        Double rate,
        Integer maxInFlight,
        DeliveryWindow window,
        Fairness fair,
        Integer keyMaxInFlight,
        Double keyRate,
        Integer keyBurst,
        Map<String, Integer> weights,
        Map<String, KeyLimit> keyLimits) {
    /** Settings of which none is there: a new group gets what is pushed from now on. */
    public static final GroupSettings NONE =
            new GroupSettings(null, null, null, null, null, null, null, null, null, null);

    /** No number is negative, and neither the burst nor a weight is 0. */
    public GroupSettings {
        Checks.that(rate == null || rate >= 0, "rate is negative");
        Checks.that(maxInFlight == null || maxInFlight >= 0, "maxInFlight is negative");
        Checks.that(keyMaxInFlight == null || keyMaxInFlight >= 0, "keyMaxInFlight is negative");
        Checks.that(keyRate == null || keyRate >= 0, "keyRate is negative");
        Checks.that(keyBurst == null || keyBurst >= 1, "keyBurst is below 1");
        weights = copy(weights);
        Checks.that(
                weights == null || weights.values().stream().allMatch(weight -> weight >= 1),
                "a weight is below 1");
        keyLimits = copy(keyLimits);
        if (copyOf != null) {
            Checks.name("copyOf", copyOf);
        }
    }

    /** The group of which a new one gets a copy of the messages. */
    public GroupSettings copyOf(String group) {
        return with(draft -> draft.copyOf = group);
    }

    /** Messages that all brokers together deliver in a second, at most; 0 is without a limit. */
    public GroupSettings rate(double rate) {
        return with(draft -> draft.rate = rate);
    }

    /** Deliveries in flight, at most; 0 is without a limit. */
    public GroupSettings maxInFlight(int maxInFlight) {
        return with(draft -> draft.maxInFlight = maxInFlight);
    }

    /** When messages are delivered; outside of it the group is closed. */
    public GroupSettings window(DeliveryWindow window) {
        return with(draft -> draft.window = window);
    }

    /** What takes turns. */
    public GroupSettings fair(Fairness fair) {
        return with(draft -> draft.fair = fair);
    }

    /** Deliveries of one key in flight, at most; 0 is without a limit. Only in a fair group. */
    public GroupSettings keyMaxInFlight(int keyMaxInFlight) {
        return with(draft -> draft.keyMaxInFlight = keyMaxInFlight);
    }

    /**
     * Deliveries of one key in a second, at most; 0 is without a limit, and removes the burst. Only
     * in a fair group.
     */
    public GroupSettings keyRate(double keyRate) {
        return with(draft -> draft.keyRate = keyRate);
    }

    /** Deliveries of one key that may come at once, at least 1. Only with a rate of a key. */
    public GroupSettings keyBurst(int keyBurst) {
        return with(draft -> draft.keyBurst = keyBurst);
    }

    /**
     * How large the shares of some keys are, where others have 1: by the name of a key, or the
     * beginning of names with a * behind it, such as "gold-*". The name of a key counts before a
     * beginning, and the longest beginning before others. They replace all weights; an empty map
     * removes them. Only in a fair group.
     */
    public GroupSettings weights(Map<String, Integer> weights) {
        return with(draft -> draft.weights = weights);
    }

    /**
     * Other limits for some keys, by names and beginnings as in {@link #weights(Map)}. They replace
     * all of them; an empty map removes them. Only in a fair group.
     */
    public GroupSettings keyLimits(Map<String, KeyLimit> keyLimits) {
        return with(draft -> draft.keyLimits = keyLimits);
    }

    private GroupSettings with(Consumer<Draft> change) {
        Draft draft = new Draft(this);
        change.accept(draft);
        return draft.settings();
    }

    private static <T> Map<String, T> copy(Map<String, T> map) {
        return map == null ? null : Map.copyOf(map);
    }

    private static Map<String, Object> bodies(Map<String, KeyLimit> limits) {
        Map<String, Object> bodies = new LinkedHashMap<>();
        limits.forEach((pattern, limit) -> bodies.put(pattern, limit.body().fields()));
        return bodies;
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
                .with("key_burst", keyBurst)
                .with("weights", weights)
                .with("key_limits", keyLimits == null ? null : bodies(keyLimits));
    }

    private static final class Draft {
        private String copyOf;
        private Double rate;
        private Integer maxInFlight;
        private DeliveryWindow window;
        private Fairness fair;
        private Integer keyMaxInFlight;
        private Double keyRate;
        private Integer keyBurst;
        private Map<String, Integer> weights;
        private Map<String, KeyLimit> keyLimits;

        private Draft(GroupSettings settings) {
            copyOf = settings.copyOf;
            rate = settings.rate;
            maxInFlight = settings.maxInFlight;
            window = settings.window;
            fair = settings.fair;
            keyMaxInFlight = settings.keyMaxInFlight;
            keyRate = settings.keyRate;
            keyBurst = settings.keyBurst;
            weights = settings.weights;
            keyLimits = settings.keyLimits;
        }

        private GroupSettings settings() {
            return new GroupSettings(
                    copyOf,
                    rate,
                    maxInFlight,
                    window,
                    fair,
                    keyMaxInFlight,
                    keyRate,
                    keyBurst,
                    weights,
                    keyLimits);
        }
    }
}
