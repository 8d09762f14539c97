package com.example.dwell;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;

/**
 * Handles messages of a group.
 *
 * <pre>{@code
 * Worker worker = Worker.builder(dwell, "orders").concurrency(8).build();
 * worker.run(delivery -> closeOrder(delivery.text()));
 * }</pre>
 *
 * <p>A message can be delivered twice, so handlers have to be idempotent.
 */
public final class Worker implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Worker.class.getPackageName());

    private final Builder options;
    private final Slots slots;
    private final Settler settler;
    private final ExecutorService handlers;
    private final Transport.Interrupt interrupt = new Transport.Interrupt();
    private RuntimeException failure;
    private boolean isStarted;
    private boolean isPolled;
    private boolean hasEnded;
    private int loops;

    /** A worker with default settings. */
    public Worker(Client client, String topic) {
        this(builder(client, topic));
    }

    private Worker(Builder given) {
        options = new Builder(given);
        slots = new Slots(options.onEvent);
        settler = new Settler(options.client.transport, options.topic, options.group, slots);
        String name = "dwell-handler-" + options.topic;
        handlers = Executors.newCachedThreadPool(run -> Transport.daemon(name, run));
    }

    /** Begins a worker of a topic, with the connections of a client. */
    public static Builder builder(Client client, String topic) {
        return new Builder(client, topic);
    }

    /** {@return a copy of the counters, for health checks and metrics} */
    public Stats stats() {
        return slots.stats();
    }

    /**
     * Works until {@link #stop}, until the thread is interrupted, or until the JVM shuts down. Then
     * it reserves nothing more, releases what no handler has begun, waits for handlers until the
     * time to drain is over, interrupts the others, and returns their messages. A worker runs once.
     *
     * @param handler runs on threads of the worker
     * @throws DwellException if the broker refuses a poll for a reason that cannot pass
     */
    public void run(Handler handler) {
        Objects.requireNonNull(handler, "handler");
        slots.update(
                () -> {
                    if (isStarted) {
                        throw new IllegalStateException("a worker runs once");
                    }
                    isStarted = true;
                });
        Thread hook = new Thread(this::close, "dwell-shutdown");
        try {
            if (options.hasShutdownHook) {
                Runtime.getRuntime().addShutdownHook(hook);
            }
            work(handler);
        } finally {
            slots.update(() -> hasEnded = true);
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                LOG.log(Level.DEBUG, "the JVM shuts down");
            }
        }
    }

    private void work(Handler handler) {
        begin("poll", () -> poll(handler));
        begin("settle", settler::settle);
        begin("extend", settler::extend);
        until(Slots.never(), () -> slots.isStopping);
        long drained = System.nanoTime() + options.drain.toNanos();
        until(Slots.never(), () -> isPolled);
        until(drained, slots::isEmpty);
        slots.giveBack();
        // Decisions are sent, or given up at their deadline.
        long most = Math.max(TimeUnit.SECONDS.toNanos(5), slots.visibility.toNanos());
        until(
                System.nanoTime() + most,
                () -> slots.deliveries().stream().allMatch(d -> d.decision == null));
        slots.update(() -> slots.isOver = true);
        until(Slots.never(), () -> loops == 0);
        handlers.shutdown();
        if (failure != null) {
            throw failure;
        }
    }

    /** Ends {@link #run} from another thread, and does not wait for it. */
    public void stop() {
        slots.update(() -> slots.isStopping = true);
        interrupt.set();
    }

    /** Stops the worker, and waits until {@link #run} is over. A handler must not call it. */
    @Override
    public void close() {
        stop();
        until(Slots.never(), () -> !isStarted || hasEnded);
    }

    private void until(long end, BooleanSupplier condition) {
        slots.until(end, condition, this::stop);
    }

    private interface Loop {
        void run() throws InterruptedException;
    }

    private void begin(String name, Loop loop) {
        slots.update(() -> loops++);
        Runnable run =
                () -> {
                    try {
                        loop.run();
                    } catch (InterruptedException | RuntimeException | Error e) {
                        slots.update(() -> failure = unchecked(e));
                        stop();
                    } finally {
                        slots.update(
                                () -> {
                                    loops--;
                                    isPolled |= name.equals("poll");
                                });
                    }
                };
        Transport.daemon("dwell-" + name + "-" + options.topic, run).start();
    }

    private static RuntimeException unchecked(Throwable thrown) {
        return thrown instanceof RuntimeException known ? known : new IllegalStateException(thrown);
    }

    private void poll(Handler handler) throws InterruptedException {
        int failures = 0;
        // A broker hands out the messages of its own partitions, so polls that change between
        // brokers would move them around.
        try (Transport transport = options.client.transport.sibling()) {
            for (int free = awaitFree(); free > 0; free = awaitFree()) {
                try {
                    Fields answer = reserve(transport, free);
                    if (answer == null) {
                        return;
                    }
                    failures = 0;
                    begin(answer, handler);
                } catch (DwellException e) {
                    slots.event(Event.POLL_FAILURES, null);
                    LOG.log(Level.WARNING, "reserve failed: {0}", e.getMessage());
                    if (!e.mayPassLater()) {
                        throw e;
                    }
                    long wait =
                            Math.max(e.retryAfter.toNanos(), Transport.backoff(failures++, 100));
                    until(System.nanoTime() + wait, () -> slots.isStopping);
                }
            }
        }
    }

    /** Returns null if the worker stops before an answer. */
    private Fields reserve(Transport transport, int free) {
        Body body =
                new Body()
                        .with("max", free)
                        .with("wait", options.pollWait)
                        .with("visibility_timeout", options.visibility);
        Duration timeout = options.pollWait.plusSeconds(10);
        return transport.call(
                Transport.Call.once(settler.path("reserve"), body, timeout, interrupt));
    }

    /**
     * How many handlers can begin: waits for one, and returns 0 when the worker stops. Settlements
     * may be under way for as many more.
     */
    private int awaitFree() throws InterruptedException {
        synchronized (slots) {
            while (!slots.isStopping) {
                int all = slots.deliveries().size();
                int running =
                        (int) slots.deliveries().stream().filter(d -> d.decision == null).count();
                int free = Math.min(options.concurrency - running, 2 * options.concurrency - all);
                if (free > 0) {
                    return Math.min(free, Settler.BATCH);
                }
                slots.wait();
            }
            return 0;
        }
    }

    private void begin(Fields answer, Handler handler) {
        slots.polled();
        long now = System.nanoTime();
        Duration visibility = answer.milliseconds("visibility_timeout_ms");
        if (visibility == null) {
            throw new UnavailableException(
                    "the answer has no visibility_timeout_ms", (Throwable) null);
        }
        for (Fields fields : answer.objects("deliveries")) {
            Delivery d = new Delivery(fields, settler, visibility);
            d.endsAt = now + visibility.toNanos();
            d.extendAt = now + visibility.toNanos() / 3;
            d.extendUntil = now + options.maxRuntime.toNanos();
            slots.add(d);
            handlers.execute(() -> handle(d, handler));
        }
    }

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

    /** Whether the handler may begin. A worker that stops begins none. */
    private boolean begins(Delivery d) {
        synchronized (slots) {
            if (slots.isStopping && d.decision == null && !d.isLost) {
                slots.decide(d, Decision.release());
            }
            d.runsOn(Thread.currentThread());
            return !d.isLost && d.decision == null;
        }
    }

    private void end(Delivery d, Throwable thrown) {
        synchronized (slots) {
            d.runsOn(null);
            // The interrupt was for this delivery.
            Thread.interrupted();
            if (d.isLost) {
                slots.remove(d);
            } else if (d.decision == null && thrown == null) {
                slots.decide(d, Decision.ack());
            } else if (d.decision == null) {
                if (!(thrown instanceof Bury) && !(thrown instanceof Retry)) {
                    LOG.log(Level.WARNING, "handler of " + d.id() + " failed", thrown);
                }
                slots.decide(d, Decision.failed(thrown, options.hasErrorDetails));
            }
            slots.notifyAll();
        }
    }

    /** Settings of a worker. */
    public static final class Builder {
        private final Client client;
        private final String topic;
        private String group = "default";
        private int concurrency = 8;
        private Duration visibility;
        private Duration pollWait = Duration.ofSeconds(30);
        private Duration maxRuntime = Duration.ofHours(1);
        private Duration drain = Duration.ofSeconds(25);
        private BiConsumer<Event, Delivery> onEvent = (event, delivery) -> {};
        private boolean hasShutdownHook = true;
        private boolean hasErrorDetails = true;

        private Builder(Client client, String topic) {
            this.client = Objects.requireNonNull(client, "client");
            this.topic = Checks.name("topic", topic);
        }

        private Builder(Builder other) {
            client = other.client;
            topic = other.topic;
            group = other.group;
            concurrency = other.concurrency;
            visibility = other.visibility;
            pollWait = other.pollWait;
            maxRuntime = other.maxRuntime;
            drain = other.drain;
            onEvent = other.onEvent;
            hasShutdownHook = other.hasShutdownHook;
            hasErrorDetails = other.hasErrorDetails;
        }

        /** The group to consume. Default "default". */
        public Builder group(String group) {
            this.group = Checks.name("group", group);
            return this;
        }

        /** How many handlers run at the same time. Default 8. */
        public Builder concurrency(int handlers) {
            this.concurrency = Checks.between("concurrency", 1, 1_000_000, handlers);
            return this;
        }

        /**
         * How long the broker waits for an extension or a settlement, 100 ms to 12 h. Default: the
         * topic's.
         */
        public Builder visibility(Duration visibility) {
            this.visibility = Checks.positive("visibility", visibility);
            return this;
        }

        /** For how long the deadline of a delivery is extended. Default 1 h. */
        public Builder maxRuntime(Duration maxRuntime) {
            this.maxRuntime = Checks.notNegative("maxRuntime", maxRuntime);
            return this;
        }

        /** How long a worker that stops waits for handlers. Default 25 s. */
        public Builder drain(Duration drain) {
            this.drain = Checks.notNegative("drain", drain);
            return this;
        }

        /** The length of a poll, up to 60 s. Default 30 s. */
        public Builder pollWait(Duration wait) {
            this.pollWait = Checks.notNegative("pollWait", wait);
            return this;
        }

        /**
         * A hook for metrics. The delivery of a poll that failed is null. The hook must neither
         * block nor call the worker.
         */
        public Builder onEvent(BiConsumer<Event, Delivery> hook) {
            this.onEvent = Objects.requireNonNull(hook, "hook");
            return this;
        }

        /**
         * Whether a shutdown of the JVM, such as by SIGTERM, stops the worker and waits for it.
         * Default true.
         */
        public Builder shutdownHook(boolean isWanted) {
            this.hasShutdownHook = isWanted;
            return this;
        }

        /**
         * Whether the broker gets the class and the stack trace of an error beside its message.
         * They are shown with dead letters. Default true.
         */
        public Builder errorDetails(boolean isWanted) {
            this.hasErrorDetails = isWanted;
            return this;
        }

        /** Makes the worker. */
        public Worker build() {
            return new Worker(this);
        }
    }
}
