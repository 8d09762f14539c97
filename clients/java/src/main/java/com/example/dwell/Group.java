package com.example.dwell;

import java.time.Instant;
import java.util.List;

/**
 * A group. Only {@link Client#group} gives its totals, partitions and members.
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
 * @param totals the messages in all partitions, or null
 * @param partitions the messages of each partition
 * @param members the brokers that consume for the group
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
        Counts totals,
        List<PartitionState> partitions,
        List<Member> members) {
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
                fields.object("totals", Counts::of),
                fields.objects("partitions", PartitionState::of),
                fields.objects("members", Member::of));
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
}
