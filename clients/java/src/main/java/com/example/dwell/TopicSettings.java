package com.example.dwell;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * Settings of a topic. In a request, one that is null stays unchanged, or has its default in a new
 * topic.
 *
 * <pre>
 * {@code TopicSettings.builder().maxAttempts(5).visibilityTimeout(Duration.ofMinutes(1)).build()}
 * </pre>
 *
 * @param partitions 1 to 1,024; cannot be changed later. Default 8
 * @param visibilityTimeout how long a consumer has to settle a delivery, 100 ms to 12 h. Default 30
 *     s
 * @param maxAttempts attempts before a message is dead, up to 1,000; 0 is without a limit. Default
 *     16
 * @param backoff the delay between attempts
 * @param dedupWindow how long after a message was acked a push with its id is still a duplicate, at
 *     most 7 days. Default 0
 * @param ordering the order of delivery; cannot be changed later. Default {@link Ordering#NONE}
 * @param ttl how long after its due time a message without its own is delivered; 0 is indefinitely.
 *     Default 0
 * @param onExpiry what happens with a message that expires. Default {@link Expiry#DROP}
 * @param deadMaxAge how long dead letters are kept; 0 is indefinitely. Default 0
 * @param deadMaxCount how many dead letters a group keeps in each partition; 0 is all. Default 0
 * @param annotations texts about the topic, which dwell does not read; an empty text removes one
 * @param deadLetter the topic to which messages move that used all attempts or were buried; empty
 *     for none
 */
public record TopicSettings(
        Integer partitions,
        Duration visibilityTimeout,
        Integer maxAttempts,
        Backoff backoff,
        Duration dedupWindow,
        Ordering ordering,
        Duration ttl,
        Expiry onExpiry,
        Duration deadMaxAge,
        Long deadMaxCount,
        Map<String, String> annotations,
        String deadLetter) {

    /** Begins settings of which none is there. */
    public static Builder builder() {
        return new Builder();
    }

    static TopicSettings of(Fields fields) {
        return new TopicSettings(
                fields.countOrNull("partitions"),
                fields.milliseconds("visibility_timeout_ms"),
                fields.countOrNull("max_attempts"),
                fields.object("backoff", TopicSettings::backoff),
                fields.milliseconds("dedup_window_ms"),
                fields.word("ordering", Ordering.class),
                fields.milliseconds("ttl_ms"),
                fields.word("on_expiry", Expiry.class),
                fields.milliseconds("dead_max_age_ms"),
                fields.numberOrNull("dead_max_count"),
                fields.textsByName("annotations"),
                fields.object("dead_letter").text("topic"));
    }

    Body body() {
        return new Body()
                .with("partitions", partitions)
                .with("visibility_timeout", visibilityTimeout)
                .with("max_attempts", maxAttempts)
                .with("backoff", backoff == null ? null : body(backoff))
                .with("dedup_window", dedupWindow)
                .with("ordering", ordering)
                .with("ttl", ttl)
                .with("on_expiry", onExpiry)
                .with("dead_max_age", deadMaxAge)
                .with("dead_max_count", deadMaxCount)
                .with(
                        "annotations",
                        annotations == null || annotations.isEmpty() ? null : annotations)
                .with(
                        "dead_letter",
                        deadLetter == null ? null : new Body().with("topic", deadLetter));
    }

    private static Backoff backoff(Fields fields) {
        if ("ladder".equals(fields.text("kind"))) {
            List<?> steps = (List<?>) fields.map().getOrDefault("steps_ms", List.of());
            return new Backoff.Ladder(
                    steps.stream()
                            .map(step -> Duration.ofMillis(((Number) step).longValue()))
                            .toList());
        }
        return new Backoff.Exponential(
                fields.milliseconds("initial_ms"),
                fields.milliseconds("max_ms"),
                fields.decimalOrNull("factor"),
                fields.decimalOrNull("jitter"));
    }

    private static Body body(Backoff backoff) {
        if (backoff instanceof Backoff.Exponential grows) {
            return new Body()
                    .with("kind", "exponential")
                    .with("initial", grows.initial())
                    .with("max", grows.max())
                    .with("factor", grows.factor())
                    .with("jitter", grows.jitter());
        }
        List<Duration> steps = ((Backoff.Ladder) backoff).steps();
        return new Body()
                .with("kind", "ladder")
                .with("steps_ms", steps.stream().map(Checks::milliseconds).toList());
    }

    /** Settings as they are given. */
    public static final class Builder {
        private Integer partitions;
        private Duration visibilityTimeout;
        private Integer maxAttempts;
        private Backoff backoff;
        private Duration dedupWindow;
        private Ordering ordering;
        private Duration ttl;
        private Expiry onExpiry;
        private Duration deadMaxAge;
        private Long deadMaxCount;
        private Map<String, String> annotations;
        private String deadLetter;

        private Builder() {}

        /** 1 to 1,024; cannot be changed later. Default 8. */
        public Builder partitions(int partitions) {
            this.partitions = Checks.between("partitions", 1, 1024, partitions);
            return this;
        }

        /** How long a consumer has to settle a delivery, 100 ms to 12 h. Default 30 s. */
        public Builder visibilityTimeout(Duration visibilityTimeout) {
            this.visibilityTimeout = Checks.positive("visibilityTimeout", visibilityTimeout);
            return this;
        }

        /** Attempts before a message is dead, up to 1,000; 0 is without a limit. Default 16. */
        public Builder maxAttempts(int maxAttempts) {
            this.maxAttempts = Checks.between("maxAttempts", 0, 1000, maxAttempts);
            return this;
        }

        /** The delay between attempts. */
        public Builder backoff(Backoff backoff) {
            this.backoff = backoff;
            return this;
        }

        /**
         * How long after a message was acked a push with its id is still a duplicate, at most 7
         * days. Default 0.
         */
        public Builder dedupWindow(Duration dedupWindow) {
            this.dedupWindow = Checks.notNegative("dedupWindow", dedupWindow);
            return this;
        }

        /** The order of delivery; cannot be changed later. Default {@link Ordering#NONE}. */
        public Builder ordering(Ordering ordering) {
            this.ordering = ordering;
            return this;
        }

        /**
         * How long after its due time a message without its own is delivered; 0 is indefinitely.
         * Default 0.
         */
        public Builder ttl(Duration ttl) {
            this.ttl = Checks.notNegative("ttl", ttl);
            return this;
        }

        /** What happens with a message that expires. Default {@link Expiry#DROP}. */
        public Builder onExpiry(Expiry onExpiry) {
            this.onExpiry = onExpiry;
            return this;
        }

        /** How long dead letters are kept; 0 is indefinitely. Default 0. */
        public Builder deadMaxAge(Duration deadMaxAge) {
            this.deadMaxAge = Checks.notNegative("deadMaxAge", deadMaxAge);
            return this;
        }

        /** How many dead letters a group keeps in each partition; 0 is all. Default 0. */
        public Builder deadMaxCount(long deadMaxCount) {
            Checks.that(deadMaxCount >= 0, "deadMaxCount is negative");
            this.deadMaxCount = deadMaxCount;
            return this;
        }

        /**
         * Texts about the topic, which dwell does not read. Others stay; an empty text removes one.
         */
        public Builder annotations(Map<String, String> annotations) {
            this.annotations = Map.copyOf(annotations);
            return this;
        }

        /**
         * The topic to which messages move that used all attempts or were buried; empty for none.
         */
        public Builder deadLetter(String topic) {
            this.deadLetter = topic;
            return this;
        }

        /** Makes the settings. */
        public TopicSettings build() {
            return new TopicSettings(
                    partitions,
                    visibilityTimeout,
                    maxAttempts,
                    backoff,
                    dedupWindow,
                    ordering,
                    ttl,
                    onExpiry,
                    deadMaxAge,
                    deadMaxCount,
                    annotations,
                    deadLetter);
        }
    }
}
