package com.example.dwell;

/**
 * What {@link Client#purge} deletes of a group: {@code PurgeOf.all()}. Its methods return changed
 * copies.
 *
 * @param deadLetters its dead letters too
 * @param dryRun only counts them
 */
public record PurgeOf(boolean deadLetters, boolean dryRun) {
    /** All messages of the group, scheduled, ready and in flight, but not its dead letters. */
    public static PurgeOf all() {
        return new PurgeOf(false, false);
    }

    /** Its dead letters too. */
    public PurgeOf withDeadLetters() {
        return new PurgeOf(true, dryRun);
    }

    /** Only counts them. */
    public PurgeOf asDryRun() {
        return new PurgeOf(deadLetters, true);
    }

    Body body() {
        return new Body()
                .with("all", true)
                .with("dead_letters", deadLetters ? true : null)
                .with("dry_run", dryRun ? true : null);
    }
}
