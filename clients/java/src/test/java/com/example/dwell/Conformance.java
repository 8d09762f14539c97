package com.example.dwell;

import static com.example.dwell.Calls.duration;
import static com.example.dwell.Calls.given;
import static com.example.dwell.Calls.text;
import static com.example.dwell.Lab.check;
import static com.example.dwell.Lab.same;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;

/** Plays a vector of clients/conformance. */
final class Conformance {
    private final Map<String, Object> vector;
    private final String server;
    private final List<String> failures = Collections.synchronizedList(new ArrayList<>());

    private Conformance(Map<String, Object> vector, String server) {
        this.vector = vector;
        this.server = server;
    }

    static void play(Map<String, Object> name) {
        Map<String, Object> begun = Lab.object("/vector", name);
        Conformance played = new Conformance(object(begun, "vector"), (String) begun.get("server"));
        try (Client client = played.client((String) begun.get("token_file"))) {
            if (played.vector.containsKey("worker")) {
                played.work(client);
            }
            if (played.vector.containsKey("producer")) {
                new Gathering(client, played::thrown).play(played.vector);
            }
            objects(played.vector, "calls").forEach(step -> played.step(client, step));
        } catch (AssertionError | RuntimeException e) {
            played.failures.add(e.toString());
        }
        List<?> failures = (List<?>) Lab.object("/vector/end", Map.of()).get("failures");
        failures.forEach(text -> played.failures.add(text.toString()));
        check(played.failures.isEmpty(), String.join("\n    ", played.failures));
    }

    private Client client(String tokenFile) {
        Client.Builder client = Client.builder().server(server).timeout(Duration.ofSeconds(10));
        String retryFor = object(vector, "client").getOrDefault("retry_for", "30s").toString();
        if (!retryFor.equals("default")) {
            client.retryFor(duration(retryFor));
        }
        if (vector.containsKey("token")) {
            client.tokenFile(Path.of(tokenFile));
        }
        return client.build();
    }

    private void step(Client client, Map<String, Object> step) {
        Map<String, Object> raises = object(step, "raises");
        try {
            Object result = Calls.invoke(client, (String) step.get("call"), object(step, "args"));
            if (result instanceof Pages<?> pages) {
                long most = step.get("take") instanceof Long take ? take : Long.MAX_VALUE;
                result = pages.stream().limit(most).toList();
            }
            check(raises.isEmpty(), "nothing was thrown");
            Plain.differs(step.get("returns"), Plain.of(result));
            if (step.get("returns_count") instanceof Long count) {
                same(count.intValue(), ((List<?>) result).size());
            }
        } catch (RuntimeException e) {
            thrown(raises, e);
        }
    }

    private void thrown(Map<String, Object> raises, Throwable e) {
        check(!raises.isEmpty(), e);
        Map<String, Object> expected = new LinkedHashMap<>(raises);
        if (expected.remove("text_has") instanceof List<?> texts) {
            for (Object text : texts) {
                String part = text.toString().replace("<server>", server);
                check(e.getMessage().contains(part), e.getMessage() + " does not have " + part);
            }
        }
        if (Boolean.TRUE.equals(expected.remove("has_cause"))) {
            check(e.getCause() != null, e + " has no cause");
        }
        Plain.differs(
                expected,
                e instanceof DwellException known ? Plain.of(known) : Map.of("kind", kind(e)));
    }

    private static String kind(Throwable e) {
        return e instanceof IllegalArgumentException
                ? "argument"
                : e instanceof CancellationException
                        ? "cancelled"
                        : e instanceof IllegalStateException ? "closed" : e.toString();
    }

    private void work(Client client) {
        Map<Event, Long> events = Collections.synchronizedMap(new EnumMap<>(Event.class));
        Worker worker;
        try {
            worker = worker(client, events);
        } catch (IllegalArgumentException e) {
            thrown(object(vector, "raises"), e);
            return;
        }
        Lab.Running running = new Lab.Running(worker, this::handle);
        if (vector.containsKey("stop")) {
            await(object(object(vector, "stop"), "when"));
            Lab.mark("stopping", 1);
            worker.stop();
        }
        Throwable thrown = running.await();
        Stats stats = worker.stats();
        Map<String, Object> counts = new LinkedHashMap<>();
        counts.put("in_flight", (long) stats.inFlight());
        counts.put("lateness_ms", stats.lateness().toMillis());
        for (Event event : Event.values()) {
            counts.put(event.name().toLowerCase(Locale.ROOT), stats.count(event));
        }
        Plain.differs(object(vector, "stats"), counts);
        same(stats.counts(), events);
        if (thrown != null) {
            thrown(object(vector, "raises"), thrown);
        } else {
            check(!vector.containsKey("raises"), "nothing was thrown");
        }
    }

    private Worker worker(Client client, Map<Event, Long> events) {
        Map<String, Object> options = object(vector, "worker");
        Worker.Builder worker = Worker.builder(client, text(options, "topic"));
        worker.onEvent((event, delivery) -> events.merge(event, 1L, Long::sum));
        given(options, "group", worker::group);
        given(options, "concurrency", text -> worker.concurrency(Integer.parseInt(text)));
        given(options, "visibility", text -> worker.visibility(duration(text)));
        given(options, "max_runtime", text -> worker.maxRuntime(duration(text)));
        given(options, "drain", text -> worker.drain(duration(text)));
        given(options, "error_details", text -> worker.errorDetails(Boolean.parseBoolean(text)));
        return worker.build();
    }

    private void handle(Delivery d) throws Exception {
        Lab.mark("begun", 1);
        Map<String, Object> script = object(object(vector, "handlers"), d.id());
        try {
            Plain.differs(script.get("delivery"), Plain.of(d));
            if (script.containsKey("when")) {
                await(object(script, "when"));
            }
            if (script.containsKey("extend")) {
                extend(d, script);
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
        int times = then.get("times") instanceof Long number ? number.intValue() : 1;
        if (then.containsKey("raise")) {
            throw new IllegalStateException(text(then, "raise").repeat(times));
        } else if (then.containsKey("panic")) {
            int depth = then.get("depth") instanceof Long number ? number.intValue() : 0;
            panic(text(then, "panic"), depth);
        } else if (then.containsKey("retry")) {
            Retry retry = new Retry(duration(text(then, "retry")), text(then, "reason"));
            throw Boolean.TRUE.equals(then.get("pause_key")) ? retry.pauseKey() : retry;
        } else if (then.containsKey("bury")) {
            throw new Bury(text(then, "bury"));
        }
    }

    private void extend(Delivery d, Map<String, Object> script) {
        boolean isOurs;
        try {
            isOurs = d.extend(duration(text(script, "extend")));
        } catch (DwellException e) {
            check(script.containsKey("raises"), e.toString());
            thrown(object(script, "raises"), e);
            return;
        }
        same(script.get("is_ours"), isOurs);
    }

    private static void panic(String message, int depth) {
        if (depth == 0) {
            throw new LinkageError(message);
        }
        panic(message, depth - 1);
    }

    static void await(Map<String, Object> when) {
        same(true, Lab.object("/wait", Map.of("when", when)).get("is_met"));
    }

    static Map<String, Object> object(Map<String, Object> fields, String name) {
        return Fields.of(fields.get(name)).map();
    }

    static List<Map<String, Object>> objects(Map<String, Object> fields, String name) {
        return new Fields(fields).objects(name, Fields::map);
    }
}
