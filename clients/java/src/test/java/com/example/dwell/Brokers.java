package com.example.dwell;

import static com.example.dwell.Lab.check;
import static com.example.dwell.Lab.same;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Real brokers that are killed, restarted, and cut off from Redis: nothing is lost. */
final class Brokers {
    private static final int MESSAGES =
            Integer.parseInt(Objects.requireNonNullElse(System.getenv("MESSAGES"), "2000"));
    private static final int PUSHERS = 4;

    private Brokers() {}

    static void story(String name, int faults) throws Exception {
        // Messages are due within this time: about 1,000 a second.
        int spread = Math.max(1000, MESSAGES), step = Math.max(1, MESSAGES / 100);
        long patience = 120_000 + MESSAGES * 20L;
        Map<String, Integer> handled = new ConcurrentHashMap<>();
        List<Long> late = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger early = new AtomicInteger(),
                pushed = new AtomicInteger(),
                count = new AtomicInteger();
        List<Worker> workers = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch isDone = new CountDownLatch(1);
        Handler handler =
                d -> {
                    if (Instant.now().isBefore(d.dueAt())) {
                        early.incrementAndGet();
                    }
                    if (d.attempt() == 1) {
                        late.add(d.lateness().toMillis());
                    }
                    if (handled.merge(d.id(), 1, Integer::sum) > 1) {
                        return;
                    }
                    int number = count.incrementAndGet();
                    if (number % step == 0) {
                        Lab.mark("handled", step);
                    }
                    if (faults == 0 && number % (MESSAGES / 4) == 0) {
                        workers.get(workers.size() - 1).stop();
                    }
                    if (number == MESSAGES) {
                        isDone.countDown();
                    }
                };
        long began = System.nanoTime(), took, seen;
        ExecutorService threads = Executors.newFixedThreadPool(PUSHERS + 1);
        try (Lab.Story story = new Lab.Story(name, MESSAGES)) {
            story.client.createTopic("orders", TopicSettings.builder().partitions(4).build());
            Future<?> working =
                    threads.submit(
                            () -> {
                                // Where the brokers have no faults, the worker is replaced while
                                // messages are in flight.
                                while (isDone.getCount() > 0) {
                                    Worker worker =
                                            Worker.builder(story.client, "orders")
                                                    .concurrency(32)
                                                    .visibility(Duration.ofSeconds(3))
                                                    .pollWait(Duration.ofSeconds(5))
                                                    .build();
                                    workers.add(worker);
                                    worker.run(handler);
                                }
                            });
            List<Future<?>> pushing = new ArrayList<>();
            for (int n = 0; n < PUSHERS; n++) {
                int pusher = n;
                pushing.add(
                        threads.submit(() -> pushed.addAndGet(push(story.client, pusher, spread))));
            }
            for (Future<?> one : pushing) {
                one.get(patience, TimeUnit.MILLISECONDS);
            }
            isDone.await(patience, TimeUnit.MILLISECONDS);
            took = System.nanoTime() - began;
            isDone.countDown();
            workers.get(workers.size() - 1).stop();
            working.get(60, TimeUnit.SECONDS);
            seen = story.end();
        } finally {
            threads.shutdownNow();
        }
        int lost = MESSAGES - handled.size();
        int again = handled.values().stream().mapToInt(times -> times - 1).sum();
        long stale = workers.stream().mapToLong(worker -> worker.stats().count(Event.STALE)).sum();
        Collections.sort(late);
        System.out.printf(
                "java %s: %d messages in %.1f s, %d faults, %d lost, %d early, %d again, %d stale, p99 of lateness %d ms%n",
                name,
                MESSAGES,
                took / 1e9,
                seen,
                lost,
                early.get(),
                again,
                stale,
                late.isEmpty() ? 0 : late.get(late.size() * 99 / 100));
        same(
                List.of((long) faults, MESSAGES, 0, 0),
                List.of(seen, pushed.get(), lost, early.get()));
        check(faults > 0 || again + stale == 0, again + " again, " + stale + " stale");
    }

    private static int push(Client client, int pusher, int spread) {
        int pushed = 0;
        for (int first = pusher; first < MESSAGES; first += PUSHERS * 50) {
            List<NewMessage> batch = new ArrayList<>();
            for (int n = first; n < Math.min(first + PUSHERS * 50, MESSAGES); n += PUSHERS) {
                batch.add(
                        NewMessage.json(Map.of("n", n))
                                .id("m-" + n)
                                .delay(Duration.ofMillis(n * 7919L % spread))
                                .build());
            }
            pushed += client.pushMany("orders", batch).size();
        }
        return pushed;
    }

    static void messagesArePushedChangedAndFound() {
        try (Lab.Story story = new Lab.Story("calm", 0)) {
            Client client = story.client;
            String id = "close-4713", key = "order-4713";
            Map<String, Object> order = Map.of("order", 4713L);
            NewMessage message =
                    NewMessage.json(order)
                            .id(id)
                            .key(key)
                            .delay(Duration.ofMinutes(30))
                            .meta(Map.of("shop", "7"))
                            .build();
            PushResult pushed = client.push("orders", message);
            same(
                    List.of(id, PushStatus.STORED, true),
                    List.of(pushed.id(), pushed.status(), pushed.topicCreated()));
            PushResult again = client.push("orders", message);
            same(
                    List.of(PushStatus.DUPLICATE, pushed.dueAt()),
                    List.of(again.status(), again.dueAt()));
            Message found = client.get("orders", id, key, null);
            same(
                    List.of(MessageState.SCHEDULED, order, Map.of("shop", "7"), key),
                    List.of(found.state(), found.json(), found.meta(), found.key()));
            Control moved =
                    client.reschedule(
                            "orders",
                            id,
                            Reschedule.in(Duration.ofMinutes(90)).key(key).etag(found.etag()));
            same(
                    List.of(new Control.GroupFate("default", GroupControlStatus.RESCHEDULED)),
                    moved.groups());
            long by = Duration.between(pushed.dueAt(), moved.dueAt()).toSeconds();
            check(Math.abs(by - 3600) < 30, "moved by " + by + " s");
            Reschedule late =
                    Reschedule.at(Instant.now().plusSeconds(3600)).key(key).etag(found.etag());
            same(
                    "precondition-failed",
                    refused(() -> client.reschedule("orders", id, late)).type());
            same(ControlStatus.CANCELLED, client.cancel("orders", id, key).status());
            same(404, refused(() -> client.get("orders", id, key, null)).status());
            same(
                    "invalid",
                    refused(() -> client.push("orders", NewMessage.text("x").id("a b").build()))
                            .type());
        }
    }

    private static DwellException refused(Runnable call) {
        try {
            call.run();
        } catch (DwellException e) {
            return e;
        }
        throw new AssertionError("nothing was refused");
    }

    static void payloadsArriveAsTheyWerePushed(String name) throws Exception {
        Map<String, NewMessage.Builder> payloads =
                Map.of(
                        "bytes",
                        NewMessage.bytes(new byte[] {0, -1}),
                        "none",
                        NewMessage.bytes(new byte[0]),
                        "text",
                        NewMessage.text("käse"),
                        "empty",
                        NewMessage.text(""),
                        "escaped",
                        NewMessage.text("\"\\\b\f\n\r\t\u0000\u2028"),
                        "json",
                        NewMessage.json(Arrays.asList(1, null, -2.5, Map.of("ä", "🧀"))),
                        "null",
                        NewMessage.json(null));
        Map<String, Object> json = new HashMap<>();
        json.put("json", Arrays.asList(1L, null, -2.5, Map.of("ä", "🧀")));
        json.put("null", null);
        Map<String, String> expected =
                Map.of(
                        "bytes",
                        "AP8=",
                        "none",
                        "",
                        "text",
                        base64("käse"),
                        "empty",
                        "",
                        "escaped",
                        base64("\"\\\b\f\n\r\t\u0000\u2028"),
                        "json",
                        base64("[1,null,-2.5,{\"ä\":\"🧀\"}]"),
                        "null",
                        base64("null"));
        Map<String, String> seen = new ConcurrentHashMap<>();
        CountDownLatch isDone = new CountDownLatch(payloads.size());
        try (Lab.Story story = new Lab.Story(name, 0);
                Lab.Running running =
                        new Lab.Running(
                                new Worker(story.client, "orders"),
                                d -> {
                                    if (json.containsKey(d.id())) {
                                        same(json.get(d.id()), d.json());
                                    }
                                    seen.put(
                                            d.id(),
                                            Base64.getEncoder().encodeToString(d.payload()));
                                    isDone.countDown();
                                })) {
            payloads.forEach((id, message) -> story.client.push("orders", message.id(id).build()));
            isDone.await(30, TimeUnit.SECONDS);
            long began = System.nanoTime();
            running.worker.close();
            check(
                    System.nanoTime() - began < TimeUnit.SECONDS.toNanos(5),
                    "the end of a worker does not end its poll");
        }
        same(expected, seen);
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    static void pushesCarryTheContextOfTheSupplier() throws Exception {
        String parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        ThreadLocal<String> span = new ThreadLocal<>();
        Map<String, String> seen = new ConcurrentHashMap<>();
        CountDownLatch isDone = new CountDownLatch(4);
        try (Lab.Story story = new Lab.Story("calm", 0);
                Lab.Running running =
                        new Lab.Running(
                                new Worker(story.client, "orders"),
                                d -> {
                                    seen.put(d.id(), String.valueOf(d.contents().traceparent()));
                                    isDone.countDown();
                                })) {
            Client.Builder traced =
                    Client.builder()
                            .server(story.server)
                            .trace(
                                    () ->
                                            span.get() == null
                                                    ? Map.of()
                                                    : Map.of(
                                                            "traceparent",
                                                            span.get(),
                                                            "baggage",
                                                            "shop=7"));
            try (Client client = traced.build();
                    Producer producer = Producer.builder(client).topic("orders").build()) {
                span.set(parent);
                client.push("orders", NewMessage.text("x").id("one").build());
                client.pushMany("orders", List.of(NewMessage.text("x").id("many").build()));
                producer.push(NewMessage.text("x").id("gathered").build());
                span.remove();
                client.push("orders", NewMessage.text("x").id("none").build());
            }
            isDone.await(30, TimeUnit.SECONDS);
        }
        same(Map.of("one", parent, "many", parent, "gathered", parent, "none", "null"), seen);
    }

    static void aPushThatIsCancelledBeforeItBeganIsNotSent() throws Exception {
        List<Runnable> held = new ArrayList<>();
        try (Lab.Story story = new Lab.Story("calm", 0);
                Client client = Client.builder().server(story.server).executor(held::add).build()) {
            NewMessage kept = NewMessage.text("x").id("kept").build();
            CompletableFuture<PushResult> pushed = client.pushAsync("orders", kept);
            NewMessage taken = NewMessage.text("x").id("taken").build();
            client.pushAsync("orders", taken).cancel(true);
            held.forEach(Runnable::run);
            same(PushStatus.STORED, pushed.join().status());
            same("not-found", refused(() -> client.get("orders", "taken")).type());
        }
    }

    static void anInterruptEndsTheRepeatsOfACall() throws Exception {
        try (Client nobody = new Client("http://127.0.0.1:1")) {
            Thread.currentThread().interrupt();
            nobody.push("orders", NewMessage.text("x").build());
            check(false, "nothing was thrown");
        } catch (CancellationException e) {
            check(Thread.interrupted() && e.getCause() instanceof InterruptedException, e);
        }
    }

    static void anInterruptStopsAWorkerWhichWaitsForItsHandlers() throws Exception {
        CountDownLatch hasBegun = new CountDownLatch(1), mayEnd = new CountDownLatch(1);
        try (Lab.Story story = new Lab.Story("calm", 0)) {
            story.client.push("orders", NewMessage.text("x").build());
            Worker worker = new Worker(story.client, "orders");
            Thread thread =
                    new Thread(
                            () ->
                                    worker.run(
                                            d -> {
                                                hasBegun.countDown();
                                                mayEnd.await();
                                            }));
            thread.start();
            check(hasBegun.await(30, TimeUnit.SECONDS), "nothing was delivered");
            thread.interrupt();
            mayEnd.countDown();
            thread.join(Lab.PATIENCE.toMillis());
            check(!thread.isAlive(), "the worker does not end");
            same(
                    Map.of(Event.DELIVERED, 1L, Event.ACKED, 1L, Event.SETTLED, 1L),
                    worker.stats().counts());
        }
    }

    /** The program of the next test. Its handler waits for a line. */
    static final class Slow {
        public static void main(String[] args) {
            new Worker(new Client(args[0]), "orders")
                    .run(
                            d -> {
                                System.out.println("begun");
                                System.in.read();
                                System.out.println("ended");
                            });
        }
    }

    static void aSignalLetsHandlersEnd() throws Exception {
        try (Lab.Story story = new Lab.Story("calm", 0)) {
            story.client.push("orders", NewMessage.text("x").id("x").build());
            String java = System.getProperty("java.home") + "/bin/java",
                    classes = System.getProperty("java.class.path");
            ProcessBuilder command =
                    new ProcessBuilder(java, "-cp", classes, Slow.class.getName(), story.server);
            Process program = command.redirectError(ProcessBuilder.Redirect.INHERIT).start();
            try {
                same("begun", program.inputReader().readLine());
                program.toHandle().destroy();
                program.outputWriter().append('\n').close();
                same("ended", program.inputReader().readLine());
                check(program.waitFor(30, TimeUnit.SECONDS), "the program does not end");
                same(143, program.exitValue());
                same("not-found", refused(() -> story.client.get("orders", "x")).type());
            } finally {
                program.destroyForcibly();
            }
        }
    }
}
