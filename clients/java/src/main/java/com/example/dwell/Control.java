package com.example.dwell;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** The outcome of a cancel or a reschedule. */
public final class Control extends Answer {
    Control(Map<String, Object> fields) {
        super(fields);
    }

    /** {@return the id of the message} */
    public String id() { return string("id"); }
    /** {@return "cancelled", "rescheduled", or "partly" if that is the outcome in some groups only} */
    public String status() { return string("status"); }
    /** {@return the partition that stores the message} */
    public int partition() { return (int) number("partition"); }
    /** {@return the new due time of a reschedule} */
    public Instant dueAt() { return time("due_at"); }
    /** {@return whether the outcome waits in the write-ahead log of the broker until Redis is reachable} */
    public boolean buffered() { return is("buffered"); }

    /** {@return the outcome in each group, by the name of the group} */
    public Map<String, String> groups() {
        Map<String, String> groups = new LinkedHashMap<>();
        objects("groups").forEach(group -> groups.put((String) group.get("group"), (String) group.get("status")));
        return groups;
    }
}
