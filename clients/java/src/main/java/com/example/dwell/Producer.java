package com.example.dwell;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Gathers the pushes of many threads, so that they travel in batches. It may be used by many
 * threads.
 *
 * <pre>{@code
 * try (Producer producer = Producer.builder(dwell).topic("orders").build()) {
 *     CompletableFuture<PushResult> result = producer.push(NewMessage.text("close order 4713").build());
 * }
 * }</pre>
 *
 * <p>While batches are under way the next one gathers. A push waits while the buffer is full. Each
 * push has its own outcome: a message that the broker refuses does not refuse the others of its
 * batch. A future that is cancelled before its message was sent takes the message back. {@link
 * #close} sends what waits; without it, messages that wait at the end of the program are lost.
 */
public final class Producer implements AutoCloseable {
    /** For so long a batch that is not full waits for the answer of the one before it. */
    private static final long BEHIND_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final Client client;
    private final String topic;
    private final long lingerNanos;
    private final int batch;
    private final int buffer;
    private final long bufferBytes;
    private final int atOnce;

    private final ReentrantLock lock = new ReentrantLock();

    /** There is something to send. */
    private final Condition work = lock.newCondition();

    /** A message has its answer. */
    private final Condition answered = lock.newCondition();

    /** What waits to be sent, by topic. */
    private final Map<String, Lane> lanes = new LinkedHashMap<>();

    /** What has no answer yet, in the order of the pushes. */
    private final Set<Pending> unanswered = new LinkedHashSet<>();

    private long bytes;
    private long pushes;

    /** Messages up to this push do not wait for others. */
    private long flushed;

    private int senders;
    private int idle;
    private boolean isClosed;

    private Producer(Builder options) {
        client = options.client;
        topic = options.topic;
        lingerNanos = options.linger.toNanos();
        batch = options.batch;
        buffer = options.buffer;
        bufferBytes = options.bufferBytes;
        atOnce = options.atOnce;
    }

    /** Begins a producer, with the connections of a client. */
    public static Builder builder(Client client) {
        return new Builder(client);
    }

    /** Pushes a message to the topic of {@link Builder#topic}. */
    public CompletableFuture<PushResult> push(NewMessage message) {
        if (topic == null) {
            throw new IllegalStateException("the producer has no topic: give one to push");
        }
        return push(topic, message);
    }

    /**
     * Pushes a message, once there is room in the buffer. The future ends as {@link Client#push}
     * does. What is attached to it runs on a thread that sends, and must not block.
     *
     * @throws IllegalStateException if the producer is closed
     * @throws java.util.concurrent.CancellationException if the thread is interrupted while it
     *     waits for room
     */
    public CompletableFuture<PushResult> push(String topic, NewMessage message) {
        Checks.name("topic", topic);
        Pending pending = new Pending(topic, message.in(client.traceHeaders()));
        lock.lock();
        try {
            awaitRoom(pending.size());
            pending.number = ++pushes;
            pending.since = System.nanoTime();
            unanswered.add(pending);
            bytes += pending.size();
            Lane lane = lanes.computeIfAbsent(topic, name -> new Lane());
            lane.add(pending);
            if (lane.waiting.size() == 1 || isFull(lane)) {
                wakeSender();
            }
        } catch (InterruptedException e) {
            throw Transport.interrupted(e);
        } finally {
            lock.unlock();
        }
        pending.future.whenComplete(
                (result, error) -> {
                    if (pending.future.isCancelled()) {
                        takeBack(pending);
                    }
                });
        return pending.future;
    }

    /** Sends what waits at once, and waits for the answers of all that was pushed before. */
    public void flush() {
        lock.lock();
        try {
            long upTo = pushes;
            flushed = upTo;
            work.signalAll();
            while (!unanswered.isEmpty() && unanswered.iterator().next().number <= upTo) {
                answered.await();
            }
        } catch (InterruptedException e) {
            throw Transport.interrupted(e);
        } finally {
            lock.unlock();
        }
    }

    /** Refuses later pushes, and waits for the answers of all that was pushed before. */
    @Override
    public void close() {
        lock.lock();
        try {
            isClosed = true;
            answered.signalAll();
            work.signalAll();
        } finally {
            lock.unlock();
        }
        flush();
    }

    private void awaitRoom(long size) throws InterruptedException {
        while (true) {
            if (isClosed) {
                throw new IllegalStateException("the producer is closed");
            }
            // A message that is larger than the buffer has room in an empty one.
            boolean hasRoom = unanswered.size() < buffer && bytes + size <= bufferBytes;
            if (hasRoom || unanswered.isEmpty()) {
                return;
            }
            answered.await();
        }
    }

    private boolean isFull(Lane lane) {
        return lane.waiting.size() >= batch || lane.bytes >= Batch.BYTES;
    }

    private void wakeSender() {
        if (idle == 0 && senders < atOnce) {
            senders++;
            Transport.daemon("dwell-producer", this::sendAll).start();
        } else {
            work.signal();
        }
    }

    /** A future that is cancelled before its message was sent. */
    private void takeBack(Pending pending) {
        lock.lock();
        try {
            Lane lane = lanes.get(pending.topic);
            if (lane != null && lane.remove(pending)) {
                dropIfEmpty(pending.topic, lane);
                forget(pending);
            }
        } finally {
            lock.unlock();
        }
    }

    private void dropIfEmpty(String name, Lane lane) {
        if (lane.waiting.isEmpty() && lane.underWay == 0) {
            lanes.remove(name);
        }
    }

    private void forget(Pending pending) {
        if (unanswered.remove(pending)) {
            bytes -= pending.size();
            answered.signalAll();
        }
    }

    private void sendAll() {
        try {
            for (List<Pending> next = take(); !next.isEmpty(); next = take()) {
                send(next);
            }
        } catch (InterruptedException e) {
            // Nobody interrupts a sender; its place is taken by another one.
            Thread.currentThread().interrupt();
        } finally {
            lock.lock();
            senders--;
            lock.unlock();
        }
    }

    /** The next batch, of one topic. Empty at the end. */
    private List<Pending> take() throws InterruptedException {
        lock.lockInterruptibly();
        try {
            while (true) {
                long now = System.nanoTime(), next = Slots.never();
                for (Map.Entry<String, Lane> entry : lanes.entrySet()) {
                    Lane lane = entry.getValue();
                    if (lane.waiting.isEmpty()) {
                        continue;
                    }
                    long readyAt = readyAt(lane, now);
                    if (now - readyAt >= 0) {
                        // To the end, so that each topic has its turn.
                        lanes.remove(entry.getKey());
                        lanes.put(entry.getKey(), lane);
                        List<Pending> taken = take(lane);
                        if (lanes.values().stream().anyMatch(other -> !other.waiting.isEmpty())) {
                            wakeSender();
                        }
                        return taken;
                    }
                    next = Slots.earlier(next, readyAt);
                }
                if (isClosed) {
                    return List.of();
                }
                idle++;
                try {
                    work.awaitNanos(next - now);
                } finally {
                    idle--;
                }
            }
        } finally {
            lock.unlock();
        }
    }

    /** When the next batch of a lane is sent, unless it is full before. */
    private long readyAt(Lane lane, long now) {
        Pending first = lane.waiting.iterator().next();
        if (isClosed || first.number <= flushed || isFull(lane)) {
            return now;
        }
        boolean isBehind = lane.underWay > 0;
        return first.since + (isBehind ? Math.max(lingerNanos, BEHIND_NANOS) : lingerNanos);
    }

    private List<Pending> take(Lane lane) {
        List<Pending> taken = new ArrayList<>();
        long size = 0;
        Iterator<Pending> waiting = lane.waiting.iterator();
        while (waiting.hasNext() && taken.size() < batch) {
            Pending pending = waiting.next();
            if (!taken.isEmpty() && size + pending.size() > Batch.BYTES) {
                break;
            }
            size += pending.size();
            waiting.remove();
            taken.add(pending);
        }
        lane.bytes -= size;
        lane.underWay++;
        return taken;
    }

    /** Sends a batch until each of its messages has its outcome. */
    private void send(List<Pending> all) {
        List<Pending> left = all;
        try {
            String path = Administration.topicPath(all.get(0).topic, "messages", "batch");
            while (!left.isEmpty()) {
                left = sendOnce(path, left);
            }
        } catch (Throwable e) {
            left.forEach(pending -> pending.future.completeExceptionally(e));
        } finally {
            lock.lock();
            all.forEach(this::forget);
            Lane lane = lanes.get(all.get(0).topic);
            lane.underWay--;
            dropIfEmpty(all.get(0).topic, lane);
            lock.unlock();
        }
    }

    /** Returns what has to be sent again, since a wrong message refuses its whole batch. */
    private List<Pending> sendOnce(String path, List<Pending> sent) {
        try {
            List<NewMessage> messages = sent.stream().map(pending -> pending.message).toList();
            List<PushResult> results = client.pushBatch(path, messages, Map.of());
            for (int n = 0; n < sent.size(); n++) {
                sent.get(n).complete(results.get(n));
            }
            return List.of();
        } catch (DwellException e) {
            Map<Integer, DwellException> wrong = Refusals.of(e);
            if (wrong.isEmpty()) {
                throw e;
            }
            List<Pending> others = new ArrayList<>();
            for (int n = 0; n < sent.size(); n++) {
                if (wrong.containsKey(n)) {
                    sent.get(n).future.completeExceptionally(wrong.get(n));
                } else {
                    others.add(sent.get(n));
                }
            }
            if (others.size() == sent.size()) {
                throw e;
            }
            return others;
        }
    }

    /** A message without an answer. */
    private static final class Pending {
        private final String topic;
        private final NewMessage message;
        private final CompletableFuture<PushResult> future = new CompletableFuture<>();
        private long number;
        private long since;

        Pending(String topic, NewMessage message) {
            this.topic = topic;
            this.message = message;
        }

        long size() {
            return message.encoded.length + 1L;
        }

        void complete(PushResult result) {
            if (result.error() == null) {
                future.complete(result);
            } else {
                future.completeExceptionally(result.error());
            }
        }
    }

    /** The messages of a topic that wait. */
    private static final class Lane {
        private final Set<Pending> waiting = new LinkedHashSet<>();
        private long bytes;
        private int underWay;

        void add(Pending pending) {
            waiting.add(pending);
            bytes += pending.size();
        }

        boolean remove(Pending pending) {
            boolean isRemoved = waiting.remove(pending);
            bytes -= isRemoved ? pending.size() : 0;
            return isRemoved;
        }
    }

    /** Settings of a producer. */
    public static final class Builder {
        private final Client client;
        private String topic;
        private Duration linger = Duration.ZERO;
        private int batch = Batch.MESSAGES;
        private int buffer = 10_000;
        private long bufferBytes = 32 << 20;
        private int atOnce = 4;

        private Builder(Client client) {
            this.client = Objects.requireNonNull(client, "client");
        }

        /** The topic of {@link Producer#push(NewMessage)}. */
        public Builder topic(String topic) {
            this.topic = Checks.name("topic", topic);
            return this;
        }

        /**
         * How long a message waits for others while no batch of its topic is under way; with 0 it
         * is sent at once. Default 0.
         */
        public Builder linger(Duration linger) {
            this.linger = Checks.notNegative("linger", linger);
            return this;
        }

        /** Messages of a batch, 1 to 1,000. Default 1,000. A batch also has at most 7 MiB. */
        public Builder batch(int messages) {
            this.batch = Checks.between("batch", 1, Batch.MESSAGES, messages);
            return this;
        }

        /** Messages without an answer, at most: then a push waits. Default 10,000. */
        public Builder buffer(int messages) {
            this.buffer = Checks.between("buffer", 1, Integer.MAX_VALUE, messages);
            return this;
        }

        /** Bytes of messages without an answer, at most: then a push waits. Default 32 MiB. */
        public Builder bufferBytes(long bytes) {
            Checks.that(bytes >= 1, "bufferBytes is not positive");
            this.bufferBytes = bytes;
            return this;
        }

        /** Batches that are under way at once, at most. Default 4. */
        public Builder atOnce(int batches) {
            this.atOnce = Checks.between("atOnce", 1, 64, batches);
            return this;
        }

        /** Makes the producer. */
        public Producer build() {
            return new Producer(this);
        }
    }
}
