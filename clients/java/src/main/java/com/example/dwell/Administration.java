package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Function;

/** The calls of {@link Client} about topics, groups, dead letters, cron jobs and brokers. */
abstract class Administration {
    /** The pause between two steps of a move that waits for consumers. */
    private static final long MOVE_PAUSE_NANOS = 200_000_000;

    final Transport transport;
    final Duration timeout;
    final Duration retryFor;

    Administration(Transport transport, Duration timeout, Duration retryFor) {
        this.transport = transport;
        this.timeout = timeout;
        this.retryFor = retryFor;
    }

    /** A request that may be sent twice. */
    final Fields call(String method, String path, Body body) {
        return call(method, path, body == null ? null : body.json(), true);
    }

    private Fields call(String method, String path, byte[] body, boolean mayRepeat) {
        return transport.call(
                new Transport.Call(
                        method,
                        path,
                        body,
                        Map.of(),
                        timeout,
                        retryFor,
                        new Transport.Interrupt(),
                        mayRepeat,
                        false));
    }

    static String topicPath(String topic, String... parts) {
        String[] all = new String[parts.length + 2];
        all[0] = "topics";
        all[1] = Checks.name("topic", topic);
        System.arraycopy(parts, 0, all, 2, parts.length);
        return Transport.path(all);
    }

    static String groupPath(String topic, String group, String... parts) {
        String[] all = new String[parts.length + 2];
        all[0] = "groups";
        all[1] = Checks.name("group", group);
        System.arraycopy(parts, 0, all, 2, parts.length);
        return topicPath(topic, all);
    }

    private static String keyPath(String topic, String group, String key, String verb) {
        return groupPath(topic, group, "keys", Checks.step("key", key), verb);
    }

    private static String cronPath(String topic, String name, String... parts) {
        String[] all = new String[parts.length + 2];
        all[0] = "cron";
        all[1] = Checks.name("name", name);
        System.arraycopy(parts, 0, all, 2, parts.length);
        return topicPath(topic, all);
    }

    private <T> Pages<T> pages(String path, Body query, String items, Function<Fields, T> read) {
        return new Pages<>(
                cursor -> {
                    Body asked = new Body().withAll(query).with("cursor", cursor);
                    Fields page = call("GET", path + asked.query(), null);
                    return new Pages.Page<>(page.objects(items, read), page.text("next_cursor"));
                });
    }

    // Topics

    /** Creates a topic with default settings. If it exists, nothing changes. */
    public Topic createTopic(String topic) {
        return createTopic(topic, TopicSettings.builder().build());
    }

    /**
     * Creates a topic, or changes those of its settings that are given. Sending it again changes
     * nothing.
     */
    public Topic createTopic(String topic, TopicSettings settings) {
        return Topic.of(call("PUT", topicPath(topic), settings.body()));
    }

    /** Gets a topic with its settings and counts. */
    public Topic topic(String topic) {
        return Topic.of(call("GET", topicPath(topic), null));
    }

    /** Lists the names of all topics. */
    public Pages<String> topics() {
        return new Pages<>(
                cursor -> {
                    String query = new Body().with("cursor", cursor).query();
                    Fields page = call("GET", Transport.path("topics") + query, null);
                    return new Pages.Page<>(page.texts("topics"), page.text("next_cursor"));
                });
    }

    /** Deletes a topic with all its messages. */
    public void deleteTopic(String topic) {
        call("DELETE", topicPath(topic), null);
    }

    /** Moves the messages of a topic to another one, until nothing is left. */
    public Moved move(String topic, String to) {
        return move(topic, to, null, moved -> {});
    }

    /**
     * Moves the messages of a topic to another one, until nothing is left. It waits for messages
     * that consumers have; an interrupt of the thread ends it, and a later call moves the rest.
     *
     * @param partitions the number of partitions of the other topic, or null for that of this topic
     * @param onProgress called after each step, which takes up to 5 s
     */
    public Moved move(String topic, String to, Integer partitions, Consumer<Moved> onProgress) {
        if (partitions != null) {
            Checks.between("partitions", 1, 1024, partitions);
        }
        Body body = new Body().with("to", Checks.name("to", to)).with("partitions", partitions);
        Moved all = new Moved(0, 0, 0, 0, false);
        while (true) {
            Fields step = call("POST", topicPath(topic, "move"), body);
            long moved = step.number("moved"), dead = step.number("dead");
            all =
                    new Moved(
                            all.moved() + moved,
                            all.dead() + dead,
                            all.duplicates() + step.number("duplicates"),
                            step.number("in_flight"),
                            step.is("done"));
            onProgress.accept(all);
            if (all.done()) {
                return all;
            }
            if (moved + dead == 0) {
                Transport.sleep(MOVE_PAUSE_NANOS);
            }
        }
    }

    // Groups

    /** Lists the groups of a topic, with their limits. */
    public List<Group> groups(String topic) {
        return call("GET", topicPath(topic, "groups"), null).objects("groups", Group::of);
    }

    /** Gets a group with its counts and members. */
    public Group group(String topic, String group) {
        return Group.of(call("GET", groupPath(topic, group), null));
    }

    /**
     * Creates a group, which gets every message that is pushed from then on. If it exists, nothing
     * changes.
     */
    public Group createGroup(String topic, String group) {
        return createGroup(topic, group, GroupSettings.NONE);
    }

    /**
     * Creates a group, or changes those of its settings that are given. Sending it again changes
     * nothing.
     */
    public Group createGroup(String topic, String group, GroupSettings settings) {
        return Group.of(call("PUT", groupPath(topic, group), settings.body()));
    }

    /** Deletes a group with all its messages. */
    public void deleteGroup(String topic, String group) {
        call("DELETE", groupPath(topic, group), null);
    }

    /** Pauses a group until it is resumed. Deliveries in flight may still be settled. */
    public Group pause(String topic, String group) {
        return Group.of(call("POST", groupPath(topic, group, "pause"), new Body()));
    }

    /** Pauses a group for some time. */
    public Group pause(String topic, String group, Duration time) {
        Body body = new Body().with("for", Checks.notNegative("time", time));
        return Group.of(call("POST", groupPath(topic, group, "pause"), body));
    }

    /** Pauses a group until some time. */
    public Group pause(String topic, String group, Instant until) {
        Body body = new Body().with("until", Objects.requireNonNull(until, "until"));
        return Group.of(call("POST", groupPath(topic, group, "pause"), body));
    }

    /** Resumes a group. */
    public Group resume(String topic, String group) {
        return Group.of(call("POST", groupPath(topic, group, "resume"), null));
    }

    /** Pauses a key of a fair group for some time. Other keys do not wait for it. */
    public KeyPause pauseKey(String topic, String group, String key, Duration time) {
        Body body = new Body().with("for", Checks.notNegative("time", time));
        return KeyPause.of(call("POST", keyPath(topic, group, key, "pause"), body));
    }

    /** Pauses a key of a fair group until some time. Other keys do not wait for it. */
    public KeyPause pauseKey(String topic, String group, String key, Instant until) {
        Body body = new Body().with("until", Objects.requireNonNull(until, "until"));
        return KeyPause.of(call("POST", keyPath(topic, group, key, "pause"), body));
    }

    /** Resumes a key of a fair group. */
    public KeyPause resumeKey(String topic, String group, String key) {
        return KeyPause.of(call("POST", keyPath(topic, group, key, "resume"), null));
    }

    /**
     * Deletes messages of a group: {@code client.purge("orders", "default", PurgeOf.all())}. It is
     * not repeated if its answer is lost, since that would delete messages that were pushed since.
     */
    public Purged purge(String topic, String group, PurgeOf which) {
        String path = groupPath(topic, group, "purge");
        long purged = 0, matching = 0;
        boolean hasMore = true;
        while (hasMore) {
            Fields answer = call("POST", path, which.body().json(), which.dryRun());
            purged += answer.number("purged");
            matching += answer.number("matching");
            hasMore = answer.has("next_cursor");
        }
        return new Purged(purged, matching);
    }

    /** Verifies that the stored data of a group is consistent. It changes nothing. */
    public Verification verify(String topic, String group) {
        return verify("GET", topic, group);
    }

    /** Verifies the stored data of a group, and repairs it. */
    public Verification repair(String topic, String group) {
        return verify("POST", topic, group);
    }

    private Verification verify(String method, String topic, String group) {
        List<Verification.Found> findings = new ArrayList<>();
        long seen = 0;
        String cursor = null;
        do {
            String path = groupPath(topic, group, "verify");
            Fields page = call(method, path + new Body().with("cursor", cursor).query(), null);
            seen += page.number("seen");
            findings.addAll(page.objects("findings", Verification.Found::of));
            cursor = page.text("next_cursor");
        } while (cursor != null);
        return new Verification(seen, List.copyOf(findings));
    }

    // Many messages

    /** Lists the messages of the group "default" that no consumer has and that are not dead. */
    public Pages<Message> list(String topic) {
        return list(topic, MessageQuery.ALL);
    }

    /** Lists messages by state and due time. */
    public Pages<Message> list(String topic, MessageQuery query) {
        return pages(topicPath(topic, "messages"), query.body(), "messages", Message::of);
    }

    /** Counts the messages that become due in the next hour, minute by minute. */
    public Forecast forecast(String topic, String group) {
        return forecast(topic, group, Duration.ofMinutes(1), 60);
    }

    /** Counts the messages that become due in equal spans of time, 1 to 500. */
    public Forecast forecast(String topic, String group, Duration step, int spans) {
        Body query =
                new Body()
                        .with("step", Checks.positive("step", step))
                        .with("spans", Checks.between("spans", 1, 500, spans));
        return Forecast.of(call("GET", groupPath(topic, group, "forecast") + query.query(), null));
    }

    /**
     * Counts the messages that are due in a window of time: those that a bulk operation changes.
     */
    public long bulkCount(String topic, String group, Instant from, Instant to) {
        String query = new Body().with("from", from).with("to", to).query();
        return call("GET", groupPath(topic, group, "bulk") + query, null).number("waiting");
    }

    /** Changes the messages that are due in a window of time. */
    public BulkChanged bulk(String topic, String group, BulkChange change) {
        return bulk(topic, group, change, progress -> {});
    }

    /**
     * Changes the messages that are due in a window of time. A step that postpones or advances is
     * not repeated if its answer is lost, since that would move messages twice.
     *
     * @param onProgress called after each step, which takes up to 5 s
     */
    public BulkChanged bulk(
            String topic, String group, BulkChange change, Consumer<BulkChanged> onProgress) {
        String path = groupPath(topic, group, "bulk");
        BulkChanged all = new BulkChanged(0, 0);
        String cursor = null;
        do {
            Fields step = call("POST", path, change.body(cursor).json(), change.by() == null);
            all =
                    new BulkChanged(
                            all.changed() + step.number("changed"),
                            all.passedOver() + step.number("passed_over"));
            onProgress.accept(all);
            cursor = step.text("next_cursor");
        } while (cursor != null);
        return all;
    }

    // Dead letters

    /** Lists the dead letters of a group, partition by partition. */
    public Pages<Message> deadLetters(String topic, String group) {
        return deadLetters(topic, group, DeadLetterQuery.ALL);
    }

    /** Lists dead letters of a group. */
    public Pages<Message> deadLetters(String topic, String group, DeadLetterQuery query) {
        String path = groupPath(topic, group, "dead-letters");
        return pages(path, query.body(), "dead_letters", Message::of);
    }

    /** Makes dead letters ready again. Their attempts start again at 1. */
    public Redriven redrive(String topic, String group, DeadLetterSelection which) {
        long[] counts = sweep(topic, group, "redrive", "redriven", which);
        return new Redriven(counts[0], counts[1]);
    }

    /** Deletes dead letters for good. */
    public Purged purgeDeadLetters(String topic, String group, DeadLetterSelection which) {
        long[] counts = sweep(topic, group, "purge", "purged", which);
        return new Purged(counts[0], counts[1]);
    }

    /** How many dead letters were changed, and how many would be. */
    private long[] sweep(
            String topic, String group, String verb, String field, DeadLetterSelection which) {
        String path = groupPath(topic, group, "dead-letters", verb);
        long changed = 0, matching = 0;
        String cursor = null;
        do {
            Fields step = call("POST", path, which.body(changed + matching, cursor));
            changed += step.number(field);
            matching += step.number("matching");
            cursor = step.text("next_cursor");
        } while (cursor != null && (which.limit == null || changed + matching < which.limit));
        return new long[] {changed, matching};
    }

    // Cron jobs

    /** Creates a cron job, or changes it. Sending it again changes nothing. */
    public CronJob putCron(String topic, String name, NewCronJob job) {
        return CronJob.of(call("PUT", cronPath(topic, name), job.json(), true));
    }

    /** Gets a cron job. */
    public CronJob cron(String topic, String name) {
        return CronJob.of(call("GET", cronPath(topic, name), null));
    }

    /** Lists the cron jobs of a topic. */
    public Pages<CronJob> crons(String topic) {
        return pages(topicPath(topic, "cron"), new Body(), "cron_jobs", CronJob::of);
    }

    /** Pauses a cron job. */
    public CronJob pauseCron(String topic, String name) {
        return CronJob.of(call("POST", cronPath(topic, name, "pause"), null));
    }

    /** Resumes a cron job with its next occurrence. */
    public CronJob resumeCron(String topic, String name) {
        return CronJob.of(call("POST", cronPath(topic, name, "resume"), null));
    }

    /** Deletes a cron job. Messages that it has pushed stay. */
    public void deleteCron(String topic, String name) {
        call("DELETE", cronPath(topic, name), null);
    }

    // Brokers

    /** Lists the brokers that share the store. */
    public List<Broker> brokers() {
        return call("GET", Transport.path("brokers"), null).objects("brokers", Broker::of);
    }

    /** Lists what needs attention. */
    public Attention attention() {
        return Attention.of(call("GET", Transport.path("attention"), null));
    }
}
