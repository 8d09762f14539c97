package com.example.dwell;

import java.time.Instant;
import java.util.List;

/**
 * A message that is stored, and its state in a group. A list of messages leaves out {@code
 * maxAttempts}, {@code etag}, {@code successorDueAt} and {@code owner}, and a list of dead letters {@code nextAt} and
 * {@code expiresAt} as well.
 *
 * @param id the id
 * @param partition the partition that stores it
 * @param state where it is
 * @param attempts attempts that were charged
 * @param maxAttempts attempts before it is a dead letter, if it has its own limit, or null; 0 is
 *     without a limit
 * @param dueAt when it is due
 * @param nextAt when it is tried next; null unless it is scheduled, ready or in backoff
 * @param expiresAt after this time it is not delivered, or null
 * @param owner the broker that owns its partition, while it is blocked, in backoff or in flight, or
 *     null
 * @param successorDueAt when the message that follows it is due, which is delivered once this one has
 *     ended; null if none does
 * @param etag its version, for {@link Reschedule#etag}
 * @param diedAt when it became a dead letter, or null
 * @param reason why it is a dead letter, or null
 * @param lastError how the last attempt failed, or null
 * @param history the last 16 failed attempts, oldest first
 * @param unforwarded "hop_limit": eight topics have forwarded it, so it stays; otherwise null
 * @param unreadable why its stored bytes cannot be read, or null
 * @param contents what it carries
 */
public record Message(
        String id,
        int partition,
        MessageState state,
        int attempts,
        Integer maxAttempts,
        Instant dueAt,
        Instant nextAt,
        Instant expiresAt,
        String owner,
        Instant successorDueAt,
        String etag,
        Instant diedAt,
        DeathReason reason,
        LastError lastError,
        List<FailedAttempt> history,
        String unforwarded,
        String unreadable,
        Contents contents)
        implements HasContents {

    static Message of(Fields fields) {
        MessageState state = fields.word("state", MessageState.class);
        return new Message(
                fields.text("id"),
                fields.count("partition"),
                // Dead letters have no field for it.
                state == null ? MessageState.DEAD : state,
                fields.count("attempts"),
                fields.countOrNull("max_attempts"),
                fields.time("due_at"),
                fields.time("next_at"),
                fields.time("expires_at"),
                fields.text("owner"),
                fields.time("successor_due_at"),
                fields.text("etag"),
                fields.time("died_at"),
                fields.word("reason", DeathReason.class),
                fields.object("last_error", LastError::of),
                fields.objects("history", FailedAttempt::of),
                fields.text("unforwarded"),
                fields.text("unreadable"),
                Contents.of(fields));
    }

    /**
     * An attempt that failed.
     *
     * @param at when
     * @param attempt which attempt, from 1 on
     * @param reason why, or null
     */
    public record FailedAttempt(Instant at, int attempt, String reason) {
        static FailedAttempt of(Fields fields) {
            return new FailedAttempt(
                    fields.time("at"), fields.count("attempt"), fields.text("reason"));
        }
    }
}
