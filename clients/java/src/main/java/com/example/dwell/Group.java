package com.example.dwell;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A group. Only {@link Client#group} gives its totals, partitions, members and keys.
 *
 * @param group its name
 * @param state whether it delivers
 * @param pausedUntil when the pause ends by itself, or null
 * @param opensAt when the window opens, while it is closed, or null
 * @param copyOf the group that is being copied, or null
 * @param rate messages that are delivered in a second, at most, or null
 * @param maxInFlight deliveries in flight, at most, or null
 * @param window when messages are delivered, or null if always
 * @param fair what takes turns, or null if nothing does
 * @param keyMaxInFlight deliveries of one key in flight, at most, or null
 * @param keyRate deliveries of one key in a second, at most, or null
 * @param keyBurst deliveries of one key that may come at once, or null for 1
 * @param weights how large the shares of some keys are, where others have 1, by names and
 *     beginnings with a *; empty if all have 1
 * @param keyLimits other limits for some keys, by names and beginnings with a *; empty if there are
 *     none
 * @param totals the messages in all partitions, or null
 * @param partitions the messages of each partition
 * @param members the brokers that consume for the group
 * @param keys the keys that have messages due or in flight, or null if the group is not fair
 */
public record Group(
        String group,
        GroupState state,
        Instant pausedUntil,
        Instant opensAt,
        String copyOf,
        Double rate,
        Integer maxInFlight,
        DeliveryWindow window,
        Fairness fair,
        Integer keyMaxInFlight,
        Double keyRate,
        Integer keyBurst,
        Map<String, Integer> weights,
        Map<String, KeyLimit> keyLimits,
        Counts totals,
        List<PartitionState> partitions,
        List<Member> members,
        Keys keys) {
    static Group of(Fields fields) {
        return new Group(
                fields.text("group"),
                fields.word("state", GroupState.class),
                fields.time("paused_until"),
                fields.time("opens_at"),
                fields.text("copy_of"),
                fields.decimalOrNull("rate"),
                fields.countOrNull("max_in_flight"),
                fields.object("window", DeliveryWindow::of),
                fields.word("fair", Fairness.class),
                fields.countOrNull("key_max_in_flight"),
                fields.decimalOrNull("key_rate"),
                fields.countOrNull("key_burst"),
                fields.countsByName("weights"),
                fields.objectsByName("key_limits", KeyLimit::of),
                fields.object("totals", Counts::of),
                fields.objects("partitions", PartitionState::of),
                fields.objects("members", Member::of),
                fields.object("keys", Keys::of));
    }

    /**
     * A broker that consumes for a group.
     *
     * @param member its name
     * @param version its version
     * @param demand whether consumers wait there, or have deliveries
     * @param waiting consumers that wait there
     * @param owned partitions that it owns
     * @param heardAt when its latest heartbeat was sent, or null
     */
    public record Member(
            String member,
            String version,
            boolean demand,
            long waiting,
            long owned,
            Instant heardAt) {
        static Member of(Fields fields) {
            return new Member(
                    fields.text("member"),
                    fields.text("version"),
                    fields.is("demand"),
                    fields.number("waiting"),
                    fields.number("owned"),
                    fields.time("heard_at"));
        }
    }

    /**
     * The keys of a fair group that have messages due or in flight.
     *
     * @param count how many there are; messages without a key are one
     * @param complete whether all partitions that have such messages have an owner, which answered
     *     in time
     * @param busiest those with the most messages, 100 at most
     * @param pausedCount how many keys are paused, whether they have messages or not
     * @param paused the paused keys, 100 at most, those that are free first
     */
    public record Keys(
            long count,
            boolean complete,
            List<KeyState> busiest,
            long pausedCount,
            List<KeyPause> paused) {
        static Keys of(Fields fields) {
            return new Keys(
                    fields.number("count"),
                    fields.is("complete"),
                    fields.objects("busiest", KeyState::of),
                    fields.number("paused_count"),
                    fields.objects("paused", KeyPause::of));
        }
    }

    /**
     * A key of a fair group.
     *
     * @param key null for the messages without one
     * @param ready messages that are due
     * @param inFlight messages that are with consumers
     * @param reason what its next message waits for, if the key holds it up: "key_paused",
     *     "key_at_max_in_flight" or "key_rate_limited", or null
     * @param until when the key may have its next delivery, if it waits for a time, or null
     */
    public record KeyState(String key, long ready, long inFlight, String reason, Instant until) {
        static KeyState of(Fields fields) {
            return new KeyState(
                    fields.text("key"),
                    fields.number("ready"),
                    fields.number("in_flight"),
                    fields.text("reason"),
                    fields.time("until"));
        }
    }
}
