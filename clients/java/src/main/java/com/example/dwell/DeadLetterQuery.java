package com.example.dwell;

import java.time.Duration;

/**
 * Which dead letters {@link Client#deadLetters} lists. A field that is null restricts nothing. Its
 * methods return changed copies.
 *
 * @param reason only those with this reason, or null
 * @param olderThan minimum age, or null
 * @param youngerThan maximum age, or null
 * @param text only those with this text in the last error or in the payload, or null
 * @param order their order, or null for {@link DeadLetterOrder#PARTITION}
 * @param limit dead letters of a page, 1 to 1,000, or null for 100
 */
public record DeadLetterQuery(
        DeathReason reason,
        Duration olderThan,
        Duration youngerThan,
        String text,
        DeadLetterOrder order,
        Integer limit) {
    /** All dead letters. */
    public static final DeadLetterQuery ALL =
            new DeadLetterQuery(null, null, null, null, null, null);

    /** Checks the ages, the text and the limit. */
    public DeadLetterQuery {
        if (olderThan != null) {
            Checks.notNegative("olderThan", olderThan);
        }
        if (youngerThan != null) {
            Checks.notNegative("youngerThan", youngerThan);
        }
        if (text != null) {
            Checks.name("text", text);
        }
        if (limit != null) {
            Checks.between("limit", 1, 1000, limit);
        }
    }

    /** Only those with this reason. */
    public DeadLetterQuery reason(DeathReason reason) {
        return new DeadLetterQuery(reason, olderThan, youngerThan, text, order, limit);
    }

    /** Only those that have been dead for this long. */
    public DeadLetterQuery olderThan(Duration age) {
        return new DeadLetterQuery(reason, age, youngerThan, text, order, limit);
    }

    /** Only those that have not been dead for longer. */
    public DeadLetterQuery youngerThan(Duration age) {
        return new DeadLetterQuery(reason, olderThan, age, text, order, limit);
    }

    /** Only those with this text in the last error or in the payload, 1 to 256 bytes. */
    public DeadLetterQuery text(String text) {
        return new DeadLetterQuery(reason, olderThan, youngerThan, text, order, limit);
    }

    /** Their order. */
    public DeadLetterQuery order(DeadLetterOrder order) {
        return new DeadLetterQuery(reason, olderThan, youngerThan, text, order, limit);
    }

    /** Dead letters of a page, 1 to 1,000. */
    public DeadLetterQuery limit(int limit) {
        return new DeadLetterQuery(reason, olderThan, youngerThan, text, order, limit);
    }

    Body body() {
        return new Body()
                .with("limit", limit)
                .with("reason", reason)
                .with("older_than", olderThan)
                .with("younger_than", youngerThan)
                .with("text", text)
                .with("order", order);
    }
}
