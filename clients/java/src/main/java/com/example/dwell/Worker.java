package com.example.dwell;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;

/**
 * Handles messages of a group. Set its options, and then {@link #run}.
 *
 * <pre>{@code
 * Worker worker = new Worker(dwell, "orders").concurrency(8).visibility(Duration.ofSeconds(30));
 * worker.run(delivery -> closeOrder(delivery.text()));
 * }</pre>
 *
 * <p>A message can be delivered twice, so handlers have to be idempotent.
 */
public final class Worker implements AutoCloseable {
    /** Decisions are gathered for this long, or until there are this many. */
    private static final long GATHER_FOR = TimeUnit.MILLISECONDS.toNanos(5);
    private static final int GATHERED = 100;
    /** The longest reason that is sent; the broker cuts longer ones. */
    private static final int REASON = 1000;
    /** The most deliveries of one request. */
    private static final int BATCH = 1000;
    private static final Set<String> SUCCESS = Set.of("acked", "nacked", "buried", "extended", "pending");
    /** What a new token, scope or topic ends. */
    private static final Set<Integer> PATIENT = Set.of(401, 403, 404, 500);
    private static final System.Logger LOG = System.getLogger(Worker.class.getPackageName());

    private final Client client;
    private final String topic;
    private String group = "default";
    private int concurrency = 8;
    private Duration visibility = Duration.ofSeconds(30);
    private Duration pollWait = Duration.ofSeconds(30);
    private long maxRuntime = TimeUnit.HOURS.toNanos(1);
    private long drain = TimeUnit.SECONDS.toNanos(25);
    private BiConsumer<Event, Delivery> onEvent = (event, delivery) -> {};
    private boolean hasShutdownHook = true;

    private final Map<String, Delivery> slots = new LinkedHashMap<>();
    private final Map<Event, Long> counts = new EnumMap<>(Event.class);
    private final Transport.Interrupt interrupt = new Transport.Interrupt();
    private final ExecutorService handlers;
    private Duration lateness = Duration.ZERO;
    private Instant lastPoll;
    private RuntimeException failure;
    private boolean isStarted, isStopping, isPolled, isOver, hasEnded;
    private int loops;

    /** A worker of a topic, with the connections of a client. */
    public Worker(Client client, String topic) {
        this.client = client;
        this.topic = topic;
        handlers = Executors.newCachedThreadPool(run -> Transport.daemon("dwell-handler-" + topic, run));
    }

    /** The group to consume. Default "default". */
    public Worker group(String group) {
        this.group = group;
        return this;
    }

    /** How many handlers run at the same time. Default 8. */
    public Worker concurrency(int handlers) {
        this.concurrency = handlers;
        return this;
    }

    /** How long the broker waits for an extension or a settlement, at least 1 ms. Default 30 s. */
    public Worker visibility(Duration visibility) {
        this.visibility = visibility;
        return this;
    }

    /** For how long the deadline of a delivery is extended. Default 1 h. */
    public Worker maxRuntime(Duration maxRuntime) {
        this.maxRuntime = maxRuntime.toNanos();
        return this;
    }

    /** How long a worker that stops waits for handlers. Default 25 s. */
    public Worker drain(Duration drain) {
        this.drain = drain.toNanos();
        return this;
    }

    /** The length of a poll, up to 60 s. Default 30 s. */
    public Worker pollWait(Duration wait) {
        this.pollWait = wait;
        return this;
    }

    /** A hook for metrics. The delivery of a poll that failed is null. The hook must neither block nor call the worker. */
    public Worker onEvent(BiConsumer<Event, Delivery> hook) {
        this.onEvent = hook;
        return this;
    }

    /** Whether a shutdown of the JVM, such as by SIGTERM, stops the worker and waits for it. Default true. */
    public Worker shutdownHook(boolean isWanted) {
        this.hasShutdownHook = isWanted;
        return this;
    }

    /** {@return a copy of the counters, for health checks and metrics} */
    public synchronized Stats stats() {
        return new Stats(Map.copyOf(counts), slots.size(), lateness, lastPoll);
    }

    /**
     * Works until {@link #stop}, until the thread is interrupted, or until the JVM shuts down. Then it reserves nothing more, waits for
     * handlers until the time to drain is over, interrupts the others, and returns their messages. A worker runs once.
     *
     * @param handler runs on threads of the worker
     * @throws DwellException if the broker refuses a poll for a reason that cannot pass
     */
    public void run(Handler handler) {
        synchronized (this) {
            if (isStarted) {
                throw new IllegalStateException("a worker runs once");
            }
            isStarted = true;
        }
        Thread hook = new Thread(this::close, "dwell-shutdown");
        try {
            if (hasShutdownHook) {
                Runtime.getRuntime().addShutdownHook(hook);
            }
            work(handler);
        } finally {
            update(() -> hasEnded = true);
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                LOG.log(Level.DEBUG, "the JVM shuts down");
            }
        }
    }

    private void work(Handler handler) {
        begin("poll", () -> poll(handler));
        begin("settle", this::settle);
        begin("extend", this::extend);
        until(never(), () -> isStopping);
        long drained = System.nanoTime() + drain;
        until(never(), () -> isPolled);
        until(drained, slots::isEmpty);
        giveBack();
        // Decisions are sent, or given up at their deadline.
        until(System.nanoTime() + Math.max(TimeUnit.SECONDS.toNanos(5), visibility.toNanos()),
            () -> slots.values().stream().allMatch(d -> d.verb == null));
        update(() -> isOver = true);
        until(never(), () -> loops == 0);
        handlers.shutdown();
        if (failure != null) {
            throw failure;
        }
    }

    /** Ends {@link #run} from another thread, and does not wait for it. */
    public void stop() {
        update(() -> isStopping = true);
        interrupt.set();
    }

    /** Stops the worker, and waits until {@link #run} is over. A handler must not call it. */
    @Override
    public void close() {
        stop();
        until(never(), () -> !isStarted || hasEnded);
    }

    private interface Loop {
        void run() throws InterruptedException;
    }

    private void begin(String name, Loop loop) {
        update(() -> loops++);
        Transport.daemon("dwell-" + name + "-" + topic, () -> {
            try {
                loop.run();
            } catch (InterruptedException | RuntimeException | Error e) {
                update(() -> failure = e instanceof RuntimeException known ? known : new IllegalStateException(e));
                stop();
            } finally {
                update(() -> {
                    loops--;
                    isPolled |= name.equals("poll");
                });
            }
        }).start();
    }

    /** Changes the state, and wakes those that wait for a change. */
    private synchronized void update(Runnable change) {
        change.run();
        notifyAll();
    }

    private static long never() {
        return System.nanoTime() + TimeUnit.DAYS.toNanos(36_500);
    }

    private static long earlier(long a, long b) {
        return a - b < 0 ? a : b;
    }

    /** Waits for a change, or until a time. */
    private void await(long until) throws InterruptedException {
        long nanos = until - System.nanoTime();
        if (nanos > 0) {
            wait(TimeUnit.NANOSECONDS.toMillis(nanos) + 1);
        }
    }

    private synchronized void until(long end, BooleanSupplier condition) {
        boolean wasInterrupted = false;
        while (!condition.getAsBoolean() && System.nanoTime() - end < 0) {
            try {
                await(end);
            } catch (InterruptedException e) {
                wasInterrupted = true;
                stop();
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void event(Event event, Delivery delivery) {
        counts.merge(event, 1L, Long::sum);
        try {
            onEvent.accept(event, delivery);
        } catch (RuntimeException e) {
            LOG.log(Level.WARNING, "the hook for events failed", e);
        }
    }

    private String path(String verb) {
        return Client.path("topics", topic, "groups", group, verb);
    }

    // Poll

    private void poll(Handler handler) throws InterruptedException {
        int failures = 0;
        // A broker hands out the messages of its own partitions, so polls that change between brokers would move them around.
        try (Transport transport = client.transport.sibling()) {
            for (int free = awaitFree(); free > 0; free = awaitFree()) {
                String body = Json.write(Map.of("max", free, "wait_ms", NewMessage.milliseconds(pollWait),
                    "visibility_timeout_ms", NewMessage.milliseconds(visibility)));
                try {
                    Map<String, Object> answer = transport.call(new Transport.Call(
                        "POST", path("reserve"), body, Map.of(), pollWait.plusSeconds(10), Duration.ZERO, interrupt));
                    if (answer == null) {
                        return;
                    }
                    failures = 0;
                    begin(Answer.objects(answer, "deliveries"), handler);
                } catch (DwellException e) {
                    update(() -> event(Event.POLL_FAILURES, null));
                    LOG.log(Level.WARNING, "reserve failed: {0}", e.getMessage());
                    if (!e.mayPass() && !PATIENT.contains(e.status())) {
                        throw e;
                    }
                    long wait = Math.max(e.retryAfter.toNanos(), Transport.backoff(failures++, 100));
                    until(System.nanoTime() + wait, () -> isStopping);
                }
            }
        }
    }

    /** How many handlers can begin: waits for one, and returns 0 when the worker stops. Settlements may be under way for as many more. */
    private synchronized int awaitFree() throws InterruptedException {
        while (!isStopping) {
            int running = (int) slots.values().stream().filter(d -> d.verb == null).count();
            int free = Math.min(Math.min(concurrency - running, 2 * concurrency - slots.size()), BATCH);
            if (free > 0) {
                return free;
            }
            wait();
        }
        return 0;
    }

    private synchronized void begin(List<Map<String, Object>> deliveries, Handler handler) {
        lastPoll = Instant.now();
        long now = System.nanoTime();
        for (Map<String, Object> fields : deliveries) {
            Delivery d = new Delivery(fields, this);
            d.deadline = now + visibility.toNanos();
            d.extendAt = now + visibility.toNanos() / 3;
            d.extendUntil = now + maxRuntime;
            slots.put(d.receipt(), d);
            lateness = d.lateness();
            event(Event.DELIVERED, d);
            if (isStopping) {
                decide(d, "nack", Map.of("delay_ms", 0));
            } else {
                handlers.execute(() -> handle(d, handler));
            }
        }
        notifyAll();
    }

    // Handle

    private void handle(Delivery d, Handler handler) {
        Throwable thrown = null;
        try {
            if (begins(d)) {
                handler.handle(d);
            }
        } catch (Throwable e) {
            thrown = e;
        }
        end(d, thrown);
    }

    private synchronized boolean begins(Delivery d) {
        d.thread = Thread.currentThread();
        return !d.isLost && d.verb == null;
    }

    private synchronized void end(Delivery d, Throwable thrown) {
        d.thread = null;
        // The interrupt was for this delivery.
        Thread.interrupted();
        if (d.isLost) {
            slots.remove(d.receipt(), d);
        } else if (d.verb == null && thrown == null) {
            decide(d, "ack", Map.of());
        } else if (d.verb == null) {
            String reason = thrown.getMessage() == null ? thrown.getClass().getSimpleName() : thrown.getMessage();
            if (thrown instanceof Bury) {
                decide(d, "nack", Map.of("bury", true, "reason", reason));
            } else if (thrown instanceof Retry retry) {
                decide(d, "nack", Map.of("delay_ms", NewMessage.milliseconds(retry.after), "reason", reason));
            } else {
                LOG.log(Level.WARNING, "handler of " + d.id() + " failed", thrown);
                decide(d, "nack", Map.of("reason", reason));
            }
        }
        notifyAll();
    }

    private void decide(Delivery d, String verb, Map<String, Object> fields) {
        d.verb = verb;
        d.decision = new LinkedHashMap<>(fields);
        d.decision.computeIfPresent("reason", (name, text) -> {
            String reason = (String) text;
            int length = reason.codePointCount(0, reason.length());
            return reason.isEmpty() ? null : reason.substring(0, reason.offsetByCodePoints(0, Math.min(length, REASON)));
        });
        d.decidedAt = d.notBefore = System.nanoTime();
        notifyAll();
    }

    private synchronized void giveBack() {
        for (Delivery d : slots.values()) {
            if (d.verb == null && !d.isLost) {
                decide(d, "nack", Map.of("reason", "the worker stopped before the handler had finished", "delay_ms", 0));
                interrupt(d);
            }
        }
    }

    private static void interrupt(Delivery d) {
        if (d.thread != null) {
            d.thread.interrupt();
        }
    }

    // Settle

    private void settle() throws InterruptedException {
        for (List<Delivery> batch = awaitBatch(); !batch.isEmpty(); batch = awaitBatch()) {
            String verb = batch.get(0).verb;
            List<Object> receipts = new ArrayList<>();
            for (Delivery d : batch) {
                Map<String, Object> fields = new LinkedHashMap<>(Map.of("receipt", d.receipt()));
                fields.putAll(d.decision);
                receipts.add(verb.equals("ack") ? d.receipt() : fields);
            }
            List<Map<String, Object>> verdicts = verdicts(verb, batch, Map.of("receipts", receipts));
            List<Delivery> sent = batch;
            update(() -> {
                for (int n = 0; n < sent.size(); n++) {
                    settled(sent.get(n), verdicts.get(n));
                }
            });
        }
    }

    /** The decisions to send now: one verb, once enough are gathered, or nothing more can be waited for. Empty at the end. */
    private synchronized List<Delivery> awaitBatch() throws InterruptedException {
        while (true) {
            long now = System.nanoTime(), next = never();
            List<Delivery> decided = slots.values().stream().filter(d -> d.verb != null).toList();
            List<Delivery> ready = decided.stream().filter(d -> d.notBefore - now <= 0).toList();
            for (Delivery d : decided) {
                next = earlier(next, d.notBefore - now <= 0 ? d.decidedAt + GATHER_FOR : d.notBefore);
            }
            boolean isComplete = ready.size() >= GATHERED || decided.size() == slots.size() || next - now <= 0;
            if (!ready.isEmpty() && isComplete) {
                String verb = ready.get(0).verb;
                return ready.stream().filter(d -> d.verb.equals(verb)).limit(GATHERED).toList();
            }
            if (isOver) {
                return List.of();
            }
            await(next);
        }
    }

    /** The verdicts of the broker, one for each delivery. Without an answer each is "failed". */
    private List<Map<String, Object>> verdicts(String verb, List<Delivery> deliveries, Map<String, Object> body) {
        try {
            Duration timeout = Duration.ofMillis(Math.max(1000, visibility.toMillis() / 3));
            Map<String, Object> answer = client.transport.call(new Transport.Call(
                "POST", path(verb), Json.write(body), Map.of(), timeout, Duration.ZERO, new Transport.Interrupt()));
            List<Map<String, Object>> results = Answer.objects(answer, "results");
            if (results.size() == deliveries.size()) {
                return results;
            }
            LOG.log(Level.WARNING, "{0}: the broker answered {1} of {2} receipts", verb, results.size(), deliveries.size());
        } catch (DwellException e) {
            LOG.log(Level.WARNING, "{0} of {1} deliveries failed: {2}", verb, deliveries.size(), e.getMessage());
        }
        return deliveries.stream().map(d -> Map.<String, Object>of("status", "failed")).toList();
    }

    private void settled(Delivery d, Map<String, Object> verdict) {
        Object status = verdict.get("status");
        if (SUCCESS.contains(status)) {
            // The nack of the last attempt is answered with "buried".
            boolean isBuried = status.equals("buried") || d.decision.containsKey("bury");
            event(d.verb.equals("ack") ? Event.ACKED : isBuried ? Event.BURIED : Event.NACKED, d);
        } else if (status.equals("unreachable") || status.equals("failed")) {
            event(Event.SETTLE_FAILURES, d);
            if (System.nanoTime() - d.deadline < 0) {
                d.notBefore = System.nanoTime() + Transport.backoff(d.tries++, 50);
                return;
            }
            LOG.log(Level.WARNING, "{0} of {1} was not answered before the deadline: it may be delivered again", d.verb, d.id());
        } else {
            event(Event.STALE, d);
            LOG.log(Level.WARNING, "{0} of {1} came too late: {2}", d.verb, d.id(), verdict.getOrDefault("reason", status));
        }
        event(Event.SETTLED, d);
        slots.remove(d.receipt(), d);
    }

    // Extend

    private void extend() throws InterruptedException {
        for (List<Delivery> due = awaitDue(); !due.isEmpty(); due = awaitDue()) {
            extend(due, visibility);
        }
    }

    /** The deliveries whose deadlines have to move now. Those whose deadline passed are lost. Empty at the end. */
    private synchronized List<Delivery> awaitDue() throws InterruptedException {
        while (!isOver) {
            long now = System.nanoTime(), next = never();
            List<Delivery> due = new ArrayList<>();
            for (Delivery d : slots.values()) {
                if (d.verb != null || d.isLost) {
                    continue;
                }
                boolean isExtended = d.extendAt - d.extendUntil < 0 && now - d.extendUntil < 0;
                if (now - d.deadline >= 0) {
                    lose(d);
                } else if (isExtended && now - d.extendAt >= 0) {
                    due.add(d);
                } else {
                    next = earlier(next, isExtended ? d.extendAt : d.deadline);
                }
            }
            if (!due.isEmpty()) {
                return due.subList(0, Math.min(due.size(), BATCH));
            }
            await(next);
        }
        return List.of();
    }

    /** Moves deadlines in one call. Returns whether all deliveries still belong to this worker. */
    boolean extend(List<Delivery> deliveries, Duration visibility) {
        long asked = System.nanoTime();
        List<String> receipts = deliveries.stream().map(Delivery::receipt).toList();
        List<Map<String, Object>> verdicts = verdicts("extend", deliveries,
            Map.of("receipts", receipts, "visibility_timeout_ms", NewMessage.milliseconds(visibility)));
        update(() -> {
            for (int n = 0; n < deliveries.size(); n++) {
                Delivery d = deliveries.get(n);
                Object status = verdicts.get(n).get("status");
                if (SUCCESS.contains(status)) {
                    d.deadline = asked + visibility.toNanos();
                    d.extendAt = asked + visibility.toNanos() / 3;
                    event(Event.EXTENDED, d);
                } else if (status.equals("unreachable") || status.equals("failed")) {
                    d.extendAt = System.nanoTime() + Math.min(TimeUnit.SECONDS.toNanos(1), this.visibility.toNanos() / 10);
                } else if (d.verb == null) {
                    lose(d);
                }
            }
        });
        return deliveries.stream().noneMatch(d -> d.isLost);
    }

    private void lose(Delivery d) {
        if (!d.isLost) {
            d.isLost = true;
            LOG.log(Level.WARNING, "delivery of {0} is lost: another consumer may have it", d.id());
            event(Event.LOST, d);
            interrupt(d);
        }
    }
}
