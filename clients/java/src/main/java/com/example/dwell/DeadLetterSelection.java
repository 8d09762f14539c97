package com.example.dwell;

import java.util.List;
import java.util.Map;

/**
 * The dead letters that {@link Client#redrive} or {@link Client#purgeDeadLetters} changes: {@link
 * #all}, those of {@link #ids}, or those that {@link #matching} describes. Its methods return
 * changed copies.
 */
public final class DeadLetterSelection {
    private final Body body;

    /** The largest number to change, or null. */
    final Long limit;

    private DeadLetterSelection(Body body, Long limit) {
        this.body = body;
        this.limit = limit;
    }

    /** All that are dead now. */
    public static DeadLetterSelection all() {
        return new DeadLetterSelection(new Body().with("all", true), null);
    }

    /** Those with these ids, 1 to 1,000. */
    public static DeadLetterSelection ids(String... ids) {
        Checks.between("the number of ids", 1, 1000, ids.length);
        for (String id : ids) {
            Checks.name("id", id);
        }
        return new DeadLetterSelection(new Body().with("ids", List.of(ids)), null);
    }

    /** Those that a query describes, whose order and limit mean nothing here. */
    public static DeadLetterSelection matching(DeadLetterQuery query) {
        Body body = query.order(null).body();
        Map<String, Object> fields = new Body().withAll(body).fields();
        fields.remove("limit");
        Checks.that(
                !fields.isEmpty(), "the query describes nothing: use DeadLetterSelection.all()");
        Body selection = new Body();
        fields.forEach(selection::with);
        return new DeadLetterSelection(selection, null);
    }

    /** At most this number. Not together with ids. */
    public DeadLetterSelection limit(long limit) {
        Checks.that(limit >= 1, "limit is not positive");
        Checks.that(!body.has("ids"), "a limit is not possible with ids");
        return new DeadLetterSelection(body, limit);
    }

    /** At most so many a second, up to 100,000. Not together with ids. */
    public DeadLetterSelection rate(int rate) {
        Checks.that(!body.has("ids"), "a rate is not possible with ids");
        Checks.between("rate", 1, 100_000, rate);
        return new DeadLetterSelection(new Body().withAll(body).with("rate", rate), limit);
    }

    /** Only counts them. Not together with ids. */
    public DeadLetterSelection dryRun() {
        Checks.that(!body.has("ids"), "a dry run is not possible with ids");
        return new DeadLetterSelection(new Body().withAll(body).with("dry_run", true), limit);
    }

    /** The next request, once some have been changed. */
    Body body(long changed, String cursor) {
        Long left = limit == null ? null : Long.valueOf(limit - changed);
        return new Body().withAll(body).with("limit", left).with("cursor", cursor);
    }
}
