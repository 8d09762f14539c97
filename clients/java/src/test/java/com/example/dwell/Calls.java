package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The calls of a client by the names of the vectors. */
final class Calls {
    private static final Pattern DURATION = Pattern.compile("(-?\\d+)(ms|s|m|h|d)");

    private Calls() {}

    static Object invoke(Client client, String name, Map<String, Object> args) {
        String topic = text(args, "topic"), group = text(args, "group");
        String id = text(args, "id"), key = text(args, "key");
        return switch (name) {
            case "push" -> client.push(topic, message(args));
            case "push_many" -> client.pushMany(topic, messages(args));
            case "cancel" -> client.cancel(topic, id, key);
            case "reschedule" -> client.reschedule(topic, id, reschedule(args));
            case "get" -> client.get(topic, id, key, group);
            case "cancel_many" -> client.cancelMany(topic, refs(args));
            case "reschedule_many" -> client.rescheduleMany(topic, refs(args), reschedule(args));
            case "get_many" -> client.getMany(topic, refs(args), group);
            case "explain" -> client.explain(topic, id, key);
            case "list" -> client.list(topic, messageQuery(args));
            case "forecast" ->
                    client.forecast(
                            topic, group, duration(text(args, "step")), number(args, "spans"));
            case "bulk_count" ->
                    Map.of(
                            "waiting",
                            client.bulkCount(topic, group, time(args, "from"), time(args, "to")));
            case "bulk" -> client.bulk(topic, group, bulkChange(args));
            case "move" ->
                    client.move(topic, text(args, "to"), number(args, "partitions"), moved -> {});
            default -> administer(client, name, args);
        };
    }

    private static Object administer(Client client, String name, Map<String, Object> args) {
        String topic = text(args, "topic"), group = text(args, "group"), job = text(args, "name");
        Map<String, Object> settings = Fields.of(args.get("settings")).map();
        return switch (name) {
            case "create_topic" -> client.createTopic(topic, topicSettings(settings));
            case "topic" -> client.topic(topic);
            case "topics" -> client.topics();
            case "delete_topic" -> nothing(() -> client.deleteTopic(topic));
            case "groups" -> client.groups(topic);
            case "group" -> client.group(topic, group);
            case "create_group" -> client.createGroup(topic, group, groupSettings(settings));
            case "delete_group" -> nothing(() -> client.deleteGroup(topic, group));
            case "pause" ->
                    args.containsKey("for")
                            ? client.pause(topic, group, duration(text(args, "for")))
                            : client.pause(topic, group);
            case "resume" -> client.resume(topic, group);
            case "pause_key" -> pauseKey(client, topic, group, args);
            case "resume_key" -> client.resumeKey(topic, group, text(args, "key"));
            case "purge" ->
                    client.purge(
                            topic,
                            group,
                            new PurgeOf(is(args, "dead_letters"), is(args, "dry_run")));
            case "verify" -> client.verify(topic, group);
            case "repair" -> client.repair(topic, group);
            case "dead_letters" -> client.deadLetters(topic, group, deadLetterQuery(args));
            case "redrive" -> client.redrive(topic, group, selection(args));
            case "purge_dead_letters" -> client.purgeDeadLetters(topic, group, selection(args));
            case "put_cron" -> client.putCron(topic, job, cronJob(settings));
            case "cron" -> client.cron(topic, job);
            case "crons" -> client.crons(topic);
            case "pause_cron" -> client.pauseCron(topic, job);
            case "resume_cron" -> client.resumeCron(topic, job);
            case "delete_cron" -> nothing(() -> client.deleteCron(topic, job));
            case "brokers" -> client.brokers();
            case "attention" -> client.attention();
            default -> throw new AssertionError("no call is named " + name);
        };
    }

    private static KeyPause pauseKey(
            Client client, String topic, String group, Map<String, Object> args) {
        String key = text(args, "key");
        if (args.containsKey("for")) {
            return client.pauseKey(topic, group, key, duration(text(args, "for")));
        }
        if (args.containsKey("until")) {
            return client.pauseKey(topic, group, key, time(args, "until"));
        }
        // The types of Java have no pause of a key without an end.
        throw new IllegalArgumentException("no end is given");
    }

    private static Object nothing(Runnable call) {
        call.run();
        return null;
    }

    static NewMessage message(Map<String, Object> args) {
        Object payload = args.get("payload");
        int times = args.containsKey("times") ? number(args, "times") : 1;
        NewMessage.Builder m =
                args.get("payload_base64") instanceof String base64
                        ? NewMessage.bytes(Base64.getDecoder().decode(base64))
                        : payload instanceof String text
                                ? NewMessage.text(text.repeat(times))
                                : NewMessage.json(args.getOrDefault("payload_json", payload));
        given(args, "id", m::id);
        given(args, "key", m::key);
        given(args, "delay", text -> m.delay(duration(text)));
        given(args, "due_at", text -> m.dueAt(Instant.parse(text)));
        given(args, "past", text -> m.past(word(Past.class, text)));
        given(args, "ttl", text -> m.ttl(duration(text)));
        given(args, "priority", text -> m.priority(Integer.parseInt(text)));
        given(args, "max_attempts", text -> m.maxAttempts(Integer.parseInt(text)));
        given(args, "dedup_key", text -> m.dedup(text, duration(text(args, "dedup_for"))));
        given(args, "spread", text -> m.spread(duration(text)));
        given(args, "conflict", text -> m.conflict(word(ConflictPolicy.class, text)));
        given(args, "debounce_max", text -> m.debounceMax(duration(text)));
        given(args, "content_type", m::contentType);
        given(args, "meta", text -> m.meta(texts(args, "meta")));
        return m.build();
    }

    private static List<NewMessage> messages(Map<String, Object> args) {
        List<NewMessage> messages = new ArrayList<>();
        for (Fields message : new Fields(args).objects("messages")) {
            messages.add(message(message.map()));
        }
        for (int n = args.containsKey("repeat") ? number(args, "repeat") : 0; n > 0; n--) {
            Map<String, Object> one = new LinkedHashMap<>(args);
            one.remove("id");
            messages.add(message(one));
        }
        return messages;
    }

    private static List<MessageRef> refs(Map<String, Object> args) {
        return new Fields(args)
                .objects(
                        "messages",
                        message -> new MessageRef(message.text("id"), message.text("key")));
    }

    private static Reschedule reschedule(Map<String, Object> args) {
        Duration delay = args.containsKey("delay") ? duration(text(args, "delay")) : null;
        Past past = args.containsKey("past") ? word(Past.class, text(args, "past")) : null;
        return new Reschedule(
                delay, time(args, "due_at"), past, text(args, "key"), text(args, "etag"));
    }

    private static MessageQuery messageQuery(Map<String, Object> args) {
        Fields fields = new Fields(args);
        return new MessageQuery(
                fields.word("state", MessageState.class),
                fields.text("group"),
                time(args, "from"),
                time(args, "to"),
                args.containsKey("order") ? word(ListOrder.class, text(args, "order")) : null,
                fields.countOrNull("limit"));
    }

    private static DeadLetterQuery deadLetterQuery(Map<String, Object> args) {
        Fields fields = new Fields(args);
        return new DeadLetterQuery(
                fields.word("reason", DeathReason.class),
                args.containsKey("older_than") ? duration(text(args, "older_than")) : null,
                args.containsKey("younger_than") ? duration(text(args, "younger_than")) : null,
                fields.text("text"),
                args.containsKey("order") ? word(DeadLetterOrder.class, text(args, "order")) : null,
                fields.countOrNull("limit"));
    }

    private static DeadLetterSelection selection(Map<String, Object> args) {
        DeadLetterSelection which;
        if (args.containsKey("ids")) {
            which = DeadLetterSelection.ids(new Fields(args).texts("ids").toArray(String[]::new));
        } else if (is(args, "all")) {
            which = DeadLetterSelection.all();
        } else {
            Map<String, Object> query = new LinkedHashMap<>(args);
            query.remove("limit");
            which = DeadLetterSelection.matching(deadLetterQuery(query));
        }
        which = args.containsKey("limit") ? which.limit(number(args, "limit")) : which;
        which = args.containsKey("rate") ? which.rate(number(args, "rate")) : which;
        return is(args, "dry_run") ? which.dryRun() : which;
    }

    private static BulkChange bulkChange(Map<String, Object> args) {
        return new BulkChange(
                word(BulkAction.class, text(args, "action")),
                time(args, "from"),
                time(args, "to"),
                args.containsKey("by") ? duration(text(args, "by")) : null);
    }

    private static TopicSettings topicSettings(Map<String, Object> args) {
        TopicSettings.Builder s = TopicSettings.builder();
        given(args, "partitions", text -> s.partitions(Integer.parseInt(text)));
        given(args, "visibility_timeout", text -> s.visibilityTimeout(duration(text)));
        given(args, "max_attempts", text -> s.maxAttempts(Integer.parseInt(text)));
        given(args, "backoff", text -> s.backoff(backoff(Fields.of(args.get("backoff")))));
        given(args, "dedup_window", text -> s.dedupWindow(duration(text)));
        given(args, "ordering", text -> s.ordering(word(Ordering.class, text)));
        given(args, "ttl", text -> s.ttl(duration(text)));
        given(args, "on_expiry", text -> s.onExpiry(word(Expiry.class, text)));
        given(args, "dead_max_age", text -> s.deadMaxAge(duration(text)));
        given(args, "dead_max_count", text -> s.deadMaxCount(Long.parseLong(text)));
        given(args, "annotations", text -> s.annotations(texts(args, "annotations")));
        given(
                args,
                "dead_letter",
                text -> s.deadLetter(Fields.of(args.get("dead_letter")).text("topic")));
        return s.build();
    }

    private static Backoff backoff(Fields fields) {
        if (fields.text("kind").equals("ladder")) {
            return new Backoff.Ladder(fields.texts("steps").stream().map(Calls::duration).toList());
        }
        return new Backoff.Exponential(
                duration(fields.text("initial")),
                duration(fields.text("max")),
                fields.decimalOrNull("factor"),
                fields.decimalOrNull("jitter"));
    }

    private static GroupSettings groupSettings(Map<String, Object> args) {
        Fields fields = new Fields(args);
        return new GroupSettings(
                fields.text("copy_of"),
                fields.decimalOrNull("rate"),
                fields.countOrNull("max_in_flight"),
                fields.object("window", DeliveryWindow::of),
                fields.word("fair", Fairness.class),
                fields.countOrNull("key_max_in_flight"),
                fields.decimalOrNull("key_rate"),
                fields.countOrNull("key_burst"),
                fields.has("weights") ? fields.countsByName("weights") : null,
                fields.has("key_limits") ? fields.objectsByName("key_limits", KeyLimit::of) : null);
    }

    private static NewCronJob cronJob(Map<String, Object> args) {
        NewCronJob.Builder job =
                args.containsKey("cron")
                        ? NewCronJob.cron(text(args, "cron"))
                        : NewCronJob.every(duration(text(args, "every")));
        given(args, "payload", job::text);
        given(args, "payload_json", text -> job.json(args.get("payload_json")));
        given(args, "time_zone", text -> job.timeZone(ZoneId.of(text)));
        given(args, "from", text -> job.from(Instant.parse(text)));
        given(args, "missed", text -> job.missed(word(Missed.class, text)));
        given(args, "ttl", text -> job.ttl(duration(text)));
        given(args, "max_attempts", text -> job.maxAttempts(Integer.parseInt(text)));
        given(args, "content_type", job::contentType);
        given(args, "meta", text -> job.meta(texts(args, "meta")));
        return job.build();
    }

    static Duration duration(String text) {
        Matcher matcher = DURATION.matcher(text);
        Lab.check(matcher.matches(), text);
        long number = Long.parseLong(matcher.group(1));
        return switch (matcher.group(2)) {
            case "ms" -> Duration.ofMillis(number);
            case "s" -> Duration.ofSeconds(number);
            case "m" -> Duration.ofMinutes(number);
            case "h" -> Duration.ofHours(number);
            default -> Duration.ofDays(number);
        };
    }

    static String text(Map<String, Object> fields, String name) {
        return fields.get(name) == null ? null : fields.get(name).toString();
    }

    static void given(Map<String, Object> fields, String name, Consumer<String> use) {
        if (fields.containsKey(name)) {
            use.accept(text(fields, name));
        }
    }

    private static <E extends Enum<E>> E word(Class<E> words, String text) {
        return Enum.valueOf(words, text.toUpperCase(Locale.ROOT));
    }

    private static Integer number(Map<String, Object> args, String name) {
        return new Fields(args).countOrNull(name);
    }

    private static boolean is(Map<String, Object> args, String name) {
        return Boolean.TRUE.equals(args.get(name));
    }

    private static Instant time(Map<String, Object> args, String name) {
        return args.containsKey(name) ? Instant.parse(text(args, name)) : null;
    }

    private static Map<String, String> texts(Map<String, Object> args, String name) {
        return new Fields(args).textsByName(name);
    }
}
