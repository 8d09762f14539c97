package com.example.dwell;

import static com.example.dwell.Lab.check;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;

/** Plays a vector of clients/conformance. */
final class Conformance {
    private final Map<String, Object> vector;
    private final List<String> failures = Collections.synchronizedList(new ArrayList<>());

    private Conformance(Map<String, Object> vector) {
        this.vector = vector;
    }

    static void play(Map<String, Object> name) {
        Map<String, Object> begun = Lab.object("/vector", name);
        Conformance played = new Conformance(object(begun, "vector"));
        try (Client client = new Client((String) begun.get("server")).timeout(Duration.ofSeconds(10)).retryFor(Duration.ofSeconds(30))) {
            given(object(played.vector, "client"), "retry_for", text -> client.retryFor(duration(text)));
            if (played.vector.containsKey("token")) {
                client.tokenFile(Path.of((String) begun.get("token_file")));
            }
            if (played.vector.containsKey("worker")) {
                played.work(client);
            }
            Answer.objects(played.vector, "calls").forEach(step -> played.step(client, step));
        } catch (AssertionError | RuntimeException e) {
            played.failures.add(e.toString());
        }
        ((List<?>) Lab.object("/vector/end", Map.of()).get("failures")).forEach(text -> played.failures.add(text.toString()));
        check(played.failures.isEmpty(), String.join("\n    ", played.failures));
    }

    private void step(Client client, Map<String, Object> step) {
        Map<String, Object> raises = object(step, "raises");
        try {
            Object result = invoke(client, (String) step.get("call"), object(step, "args"));
            check(raises.isEmpty(), "nothing was thrown");
            differs(step.get("returns"), result);
            if (step.get("returns_count") instanceof Long count) {
                Lab.same(count.intValue(), ((List<?>) result).size());
            }
        } catch (DwellException e) {
            thrown(raises, e);
        }
    }

    private static Object invoke(Client client, String name, Map<String, Object> args) {
        String topic = text(args, "topic"), id = text(args, "id"), key = text(args, "key");
        switch (name) {
            case "push":
                return client.push(topic, message(args)).fields();
            case "push_many":
                List<NewMessage> messages = new ArrayList<>(Answer.objects(args, "messages").stream().map(Conformance::message).toList());
                for (long n = args.get("repeat") instanceof Long times ? times : 0; n > 0; n--) {
                    messages.add(message(Map.of("payload", args.get("payload"))));
                }
                return client.pushMany(topic, messages).stream().map(Answer::fields).toList();
            case "cancel":
                return client.cancel(topic, id, key).fields();
            case "reschedule":
                Reschedule to = Reschedule.in(duration(text(args, "delay"))).key(key).etag(text(args, "etag"));
                return client.reschedule(topic, id, to).fields();
            case "get":
                return plain(client.get(topic, id, key, text(args, "group")));
            case "create_topic":
                client.createTopic(topic, object(args, "settings"));
                return null;
            default:
                throw new AssertionError("no call is named " + name);
        }
    }

    private static NewMessage message(Map<String, Object> args) {
        Object payload = args.get("payload");
        NewMessage m = args.get("payload_base64") instanceof String base64 ? NewMessage.bytes(Base64.getDecoder().decode(base64))
            : payload instanceof String text ? NewMessage.text(text) : NewMessage.json(args.getOrDefault("payload_json", payload));
        given(args, "id", m::id);
        given(args, "key", m::key);
        given(args, "delay", text -> m.delay(duration(text)));
        given(args, "due_at", text -> m.dueAt(Instant.parse(text)));
        given(args, "past", m::past);
        given(args, "ttl", text -> m.ttl(duration(text)));
        given(args, "priority", text -> m.priority(Integer.parseInt(text)));
        given(args, "max_attempts", text -> m.maxAttempts(Integer.parseInt(text)));
        given(args, "dedup_key", text -> m.dedup(text, duration(text(args, "dedup_for"))));
        given(args, "conflict", m::conflict);
        given(args, "content_type", m::contentType);
        if (args.containsKey("meta")) {
            Map<String, String> meta = new LinkedHashMap<>();
            object(args, "meta").forEach((name, value) -> meta.put(name, (String) value));
            m.meta(meta);
        }
        return m;
    }

    private void thrown(Map<String, Object> raises, DwellException e) {
        check(!raises.isEmpty(), e);
        Map<String, Object> actual = new LinkedHashMap<>(Map.of("kind", e.isUnavailable() ? "unavailable" : "refused",
            "status", (long) e.status(), "type", e.type(), "detail", e.detail(), "request_id", e.requestId(), "repeated", e.isRepeated()));
        actual.put("groups", e.problem().get("groups"));
        if (e instanceof PushManyException many) {
            actual.put("kind", "push_many");
            actual.put("results", many.results().stream().map(Answer::fields).toList());
        }
        differs(raises, actual);
    }

    private void work(Client client) {
        Map<Event, Long> events = Collections.synchronizedMap(new EnumMap<>(Event.class));
        Map<String, Object> options = object(vector, "worker");
        Worker worker = new Worker(client, text(options, "topic")).onEvent((event, delivery) -> events.merge(event, 1L, Long::sum));
        given(options, "group", worker::group);
        given(options, "concurrency", text -> worker.concurrency(Integer.parseInt(text)));
        given(options, "visibility", text -> worker.visibility(duration(text)));
        given(options, "max_runtime", text -> worker.maxRuntime(duration(text)));
        given(options, "drain", text -> worker.drain(duration(text)));
        Lab.Running running = new Lab.Running(worker, this::handle);
        if (vector.containsKey("stop")) {
            await(object(object(vector, "stop"), "when"));
            Lab.mark("stopping", 1);
            worker.stop();
        }
        Throwable thrown = running.await();
        Stats stats = worker.stats();
        Map<String, Object> counts = new LinkedHashMap<>();
        counts.putAll(Map.of("in_flight", (long) stats.inFlight(), "lateness_ms", stats.lateness().toMillis()));
        for (Event event : Event.values()) {
            counts.put(event.name().toLowerCase(Locale.ROOT), stats.count(event));
        }
        differs(object(vector, "stats"), counts);
        Lab.same(stats.counts(), events);
        if (thrown instanceof DwellException refused) {
            thrown(object(vector, "raises"), refused);
        } else {
            check(thrown == null && !vector.containsKey("raises"), thrown);
        }
    }

    private void handle(Delivery d) throws Exception {
        Lab.mark("begun", 1);
        Map<String, Object> script = object(object(vector, "handlers"), d.id());
        try {
            differs(script.get("delivery"), plain(d));
            if (script.containsKey("when")) {
                await(object(script, "when"));
            }
            if (script.containsKey("extend")) {
                Lab.same(script.get("is_ours"), d.extend(duration(text(script, "extend"))));
            }
        } catch (AssertionError e) {
            failures.add(d.id() + ": " + e.getMessage());
        }
        if ("lost".equals(script.get("then"))) {
            try {
                new CountDownLatch(1).await();
            } finally {
                Lab.mark("lost", 1);
            }
        }
        Lab.mark("handled", 1);
        Map<String, Object> then = object(script, "then");
        if (then.containsKey("raise")) {
            throw new IllegalStateException(text(then, "raise").repeat(then.get("times") instanceof Long times ? times.intValue() : 1));
        } else if (then.containsKey("retry")) {
            throw new Retry(duration(text(then, "retry")), text(then, "reason"));
        } else if (then.containsKey("bury")) {
            throw new Bury(text(then, "bury"));
        }
    }

    private static void await(Map<String, Object> when) {
        Lab.same(true, Lab.object("/wait", Map.of("when", when)).get("is_met"));
    }

    /** The fields of a message or delivery as the vectors name them, by its accessors. */
    private static Map<String, Object> plain(Contents contents) {
        Map<String, Object> plain = new LinkedHashMap<>(contents.fields());
        plain.putAll(Map.of("payload_text", contents.text(), "payload_base64", Base64.getEncoder().encodeToString(contents.payload()),
            "id", contents.id(), "meta", contents.meta(), "partition", (long) contents.partition()));
        if (contents instanceof Delivery d) {
            plain.putAll(Map.of("attempt", (long) d.attempt(), "lateness_ms", d.lateness().toMillis()));
        }
        return plain;
    }

    /** Fails if something expected is not there; "&lt;x>" is any value. */
    private static void differs(Object expected, Object actual) {
        if (expected instanceof Map<?, ?> fields) {
            fields.forEach((name, value) -> differs(value, Answer.object(actual).get(name)));
        } else if (expected instanceof List<?> items) {
            Lab.same(items.size(), actual instanceof List<?> found ? found.size() : -1);
            for (int n = 0; n < items.size(); n++) {
                differs(items.get(n), ((List<?>) actual).get(n));
            }
        } else if (expected != null && !expected.toString().startsWith("<")) {
            Lab.same(expected, actual);
        }
    }

    private static Map<String, Object> object(Map<String, Object> fields, String name) {
        return Answer.object(fields.get(name));
    }

    private static String text(Map<String, Object> fields, String name) {
        return fields.get(name) == null ? null : fields.get(name).toString();
    }

    private static void given(Map<String, Object> fields, String name, Consumer<String> use) {
        if (fields.containsKey(name)) {
            use.accept(text(fields, name));
        }
    }

    private static Duration duration(String text) {
        return text.endsWith("ms") ? Duration.ofMillis(Long.parseLong(text.substring(0, text.length() - 2)))
            : Duration.parse("PT" + text.toUpperCase(Locale.ROOT));
    }
}
