package com.example.dwell;

import java.time.Instant;

/**
 * Which messages of a topic {@link Client#list} lists. A field that is null restricts nothing. Its
 * methods return changed copies.
 *
 * @param state only those in this state; null for all that no consumer has and that are not dead
 * @param group in which group, or null for "default"
 * @param from only those of this time on, or null
 * @param to only those before this time, or null
 * @param order their order, or null for {@link ListOrder#PARTITION}
 * @param limit messages of a page, 1 to 1,000, or null for 100
 */
public record MessageQuery(
        MessageState state,
        String group,
        Instant from,
        Instant to,
        ListOrder order,
        Integer limit) {
    /** All messages of the group "default" that no consumer has and that are not dead. */
    public static final MessageQuery ALL = new MessageQuery(null, null, null, null, null, null);

    /** Checks the group and the limit. */
    public MessageQuery {
        if (group != null) {
            Checks.name("group", group);
        }
        if (limit != null) {
            Checks.between("limit", 1, 1000, limit);
        }
    }

    /** Only those in this state. */
    public MessageQuery state(MessageState state) {
        return new MessageQuery(state, group, from, to, order, limit);
    }

    /** In this group. */
    public MessageQuery group(String group) {
        return new MessageQuery(state, group, from, to, order, limit);
    }

    /** Only those of this time on. */
    public MessageQuery from(Instant from) {
        return new MessageQuery(state, group, from, to, order, limit);
    }

    /** Only those before this time. */
    public MessageQuery to(Instant to) {
        return new MessageQuery(state, group, from, to, order, limit);
    }

    /** Their order. */
    public MessageQuery order(ListOrder order) {
        return new MessageQuery(state, group, from, to, order, limit);
    }

    /** Messages of a page, 1 to 1,000. */
    public MessageQuery limit(int limit) {
        return new MessageQuery(state, group, from, to, order, limit);
    }

    Body body() {
        return new Body()
                .with("state", state)
                .with("group", group)
                .with("from", from)
                .with("to", to)
                .with("order", order)
                .with("limit", limit);
    }
}
