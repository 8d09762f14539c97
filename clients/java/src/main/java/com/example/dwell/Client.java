package com.example.dwell;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Supplier;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

/**
 * A client of one broker, or of several behind one address. It may be used by many threads.
 *
 * <pre>{@code
 * try (Client dwell = new Client("http://127.0.0.1:7373")) {
 *     dwell.push("orders", NewMessage.text("close order 4713").delay(Duration.ofMinutes(30)).build());
 * }
 * }</pre>
 *
 * <p>The client repeats a call after 408, 429, 503, 504 and a broken connection, with the same id,
 * until {@link Builder#retryFor} is over. Every call throws
 *
 * <ul>
 *   <li>a {@link DwellException} if the broker refuses it,
 *   <li>an {@link UnavailableException} if it has no final answer by then,
 *   <li>an IllegalArgumentException, before a request, for an argument that no broker accepts,
 *   <li>a {@link java.util.concurrent.CancellationException} if the thread is interrupted, which it
 *       stays.
 * </ul>
 */
public final class Client extends Administration implements AutoCloseable {
    private static final String DEFAULT_SERVER = "http://127.0.0.1:7373";

    private final Supplier<Map<String, String>> trace;
    private final Async async;

    /** A client of the server in {@code DWELL_SERVER}, or else of {@code http://127.0.0.1:7373}. */
    public Client() {
        this(builder());
    }

    /**
     * A client of {@code http://HOST:PORT}, {@code https://HOST:PORT} or {@code unix:/PATH}. Throws
     * IllegalArgumentException otherwise.
     */
    public Client(String server) {
        this(builder().server(server));
    }

    private Client(Builder options) {
        super(options.transport(), options.timeout, options.retryFor);
        trace = options.trace;
        async = new Async(options.executor);
    }

    /** Begins a client with other settings. */
    public static Builder builder() {
        return new Builder();
    }

    /** {@return the address of the server} */
    public String server() {
        return transport.server();
    }

    // Push

    /** Pushes one message. It has an id before it is sent, so repeats store it once. */
    public PushResult push(String topic, NewMessage message) {
        return push(topicPath(topic, "messages"), message, traceHeaders());
    }

    private PushResult push(String path, NewMessage message, Map<String, String> headers) {
        return PushResult.of(send("POST", path, message.encoded, headers));
    }

    /**
     * Pushes messages in batches and repeats those that the broker could not store. Returns a
     * result for each message, in order. Throws {@link PushManyException} if any was not accepted.
     * If the broker refuses a whole batch, the batches before it are stored.
     */
    public List<PushResult> pushMany(String topic, Iterable<NewMessage> messages) {
        return pushMany(topicPath(topic, "messages", "batch"), messages, traceHeaders());
    }

    private List<PushResult> pushMany(
            String path, Iterable<NewMessage> messages, Map<String, String> headers) {
        List<PushResult> results = new ArrayList<>();
        Batch batch = new Batch();
        for (NewMessage message : messages) {
            if (!batch.takes(message)) {
                results.addAll(pushBatch(path, batch.messages(), headers));
                batch = new Batch();
            }
            batch.add(message);
        }
        if (!batch.messages().isEmpty()) {
            results.addAll(pushBatch(path, batch.messages(), headers));
        }
        List<DwellException> failed =
                results.stream().map(PushResult::error).filter(Objects::nonNull).toList();
        if (!failed.isEmpty()) {
            throw new PushManyException(failed, results);
        }
        return results;
    }

    /** Pushes one batch. A result has an error if its message was not accepted. */
    List<PushResult> pushBatch(
            String path, List<NewMessage> messages, Map<String, String> headers) {
        PushResult[] results = new PushResult[messages.size()];
        List<Integer> left = new ArrayList<>();
        for (int n = 0; n < results.length; n++) {
            left.add(n);
        }
        long until = System.nanoTime() + retryFor.toNanos();
        for (int tries = 0; ; tries++) {
            byte[] body = Batch.json(left.stream().map(messages::get).toList());
            long nanos = Math.max(1, until - System.nanoTime());
            Duration time = retryFor.isZero() ? retryFor : Duration.ofNanos(nanos);
            List<PushResult> answers;
            try {
                answers =
                        send("POST", path, body, headers, time).objects("results", PushResult::of);
            } catch (UnavailableException e) {
                if (tries == 0) {
                    throw e;
                }
                // The results of the tries before it count.
                return List.of(results);
            }
            if (answers.size() != left.size()) {
                throw new UnavailableException(
                        server() + ": results of another batch", (Throwable) null);
            }
            List<Integer> again = new ArrayList<>();
            for (int n = 0; n < left.size(); n++) {
                results[left.get(n)] = answers.get(n);
                if (answers.get(n).error() instanceof UnavailableException) {
                    again.add(left.get(n));
                }
            }
            left = again;
            long wait = Transport.backoff(tries, 50);
            if (left.isEmpty() || System.nanoTime() + wait - until > 0) {
                return List.of(results);
            }
            Transport.sleep(wait);
        }
    }

    // Cancel, reschedule, get

    /** Cancels a message that was pushed without a key, in every group in which it waits. */
    public Control cancel(String topic, String id) {
        return cancel(topic, id, null);
    }

    /**
     * Cancels a message in every group in which it waits. Give the key that it was pushed with, or
     * null. The type of the error is "conflict" if a consumer has it.
     */
    public Control cancel(String topic, String id, String key) {
        return Control.of(send("DELETE", messagePath(topic, id, key, null), null, Map.of()));
    }

    /** Cancels messages. Returns an outcome for each, in order. */
    public List<Outcome<Control>> cancelMany(String topic, Collection<MessageRef> messages) {
        return async.each(messages, message -> cancel(topic, message.id(), message.key()));
    }

    /**
     * Gives a message that waits another due time. The type of the error is "conflict" if a
     * consumer has it, and "precondition-failed" if it is not the version of the reschedule.
     */
    public Control reschedule(String topic, String id, Reschedule to) {
        Map<String, String> headers = to.etag() == null ? Map.of() : Map.of("If-Match", to.etag());
        return Control.of(
                send("PATCH", messagePath(topic, id, to.key(), null), to.body().json(), headers));
    }

    /** Gives messages that wait another due time. Returns an outcome for each, in order. */
    public List<Outcome<Control>> rescheduleMany(
            String topic, Collection<MessageRef> messages, Reschedule to) {
        return async.each(
                messages, message -> reschedule(topic, message.id(), to.key(message.key())));
    }

    /** Gets a message that was pushed without a key, with its state in the group "default". */
    public Message get(String topic, String id) {
        return get(topic, id, null, null);
    }

    /**
     * Gets a message with its state in a group. Give the key that it was pushed with, or null; the
     * group null is "default".
     */
    public Message get(String topic, String id, String key, String group) {
        return Message.of(send("GET", messagePath(topic, id, key, group), null, Map.of()));
    }

    /**
     * Gets messages, with their state in the group "default". Returns an outcome for each, in
     * order.
     */
    public List<Outcome<Message>> getMany(String topic, Collection<MessageRef> messages) {
        return getMany(topic, messages, null);
    }

    /**
     * Gets messages, with their state in a group; null is "default". Returns an outcome for each,
     * in order.
     */
    public List<Outcome<Message>> getMany(
            String topic, Collection<MessageRef> messages, String group) {
        return async.each(messages, message -> get(topic, message.id(), message.key(), group));
    }

    /** Explains why a message that was pushed without a key is not delivered yet. */
    public Explanation explain(String topic, String id) {
        return explain(topic, id, null);
    }

    /**
     * Explains why a message is not delivered yet. Give the key that it was pushed with, or null.
     */
    public Explanation explain(String topic, String id, String key) {
        String query = new Body().with("key", key == null ? null : Checks.name("key", key)).query();
        String path = topicPath(topic, "messages", Checks.id(id), "explain") + query;
        return Explanation.of(send("GET", path, null, Map.of()));
    }

    // Without waiting

    /**
     * As {@link #push}, on another thread. To cancel the future ends the call, and one that was not
     * sent is not sent. For many pushes at a time use a {@link Producer}.
     */
    public CompletableFuture<PushResult> pushAsync(String topic, NewMessage message) {
        String path = topicPath(topic, "messages");
        Map<String, String> headers = traceHeaders();
        return async.call(() -> push(path, message, headers));
    }

    /** As {@link #pushMany}, on another thread. To cancel the future ends the call. */
    public CompletableFuture<List<PushResult>> pushManyAsync(
            String topic, Iterable<NewMessage> messages) {
        String path = topicPath(topic, "messages", "batch");
        Map<String, String> headers = traceHeaders();
        return async.call(() -> pushMany(path, messages, headers));
    }

    /** As {@link #cancel}, on another thread. To cancel the future ends the call. */
    public CompletableFuture<Control> cancelAsync(String topic, String id, String key) {
        messagePath(topic, id, key, null);
        return async.call(() -> cancel(topic, id, key));
    }

    /** As {@link #reschedule}, on another thread. To cancel the future ends the call. */
    public CompletableFuture<Control> rescheduleAsync(String topic, String id, Reschedule to) {
        messagePath(topic, id, to.key(), null);
        return async.call(() -> reschedule(topic, id, to));
    }

    /** As {@link #get}, on another thread. To cancel the future ends the call. */
    public CompletableFuture<Message> getAsync(String topic, String id, String key, String group) {
        messagePath(topic, id, key, group);
        return async.call(() -> get(topic, id, key, group));
    }

    /** Closes the connections. Close its workers and producers first. */
    @Override
    public void close() {
        async.close();
        transport.close();
    }

    private Fields send(String method, String path, byte[] body, Map<String, String> headers) {
        return send(method, path, body, headers, retryFor);
    }

    private Fields send(
            String method, String path, byte[] body, Map<String, String> headers, Duration time) {
        Transport.Interrupt never = new Transport.Interrupt();
        return transport.call(
                new Transport.Call(method, path, body, headers, timeout, time, never, true, true));
    }

    /** The trace context of the thread. */
    Map<String, String> traceHeaders() {
        Map<String, String> headers = new TreeMap<>(trace.get());
        headers.keySet().retainAll(List.of("traceparent", "tracestate"));
        return headers;
    }

    private static String messagePath(String topic, String id, String key, String group) {
        Body query =
                new Body()
                        .with("key", key == null ? null : Checks.name("key", key))
                        .with("group", group == null ? null : Checks.name("group", group));
        return topicPath(topic, "messages", Checks.id(id)) + query.query();
    }

    /** Settings of a client. */
    public static final class Builder {
        private String server = environment("DWELL_SERVER", DEFAULT_SERVER);
        private Path tokenFile = file("DWELL_TOKEN_FILE");
        private Path caFile = file("DWELL_CA_FILE");
        private Duration timeout = Duration.ofSeconds(30);
        private Duration retryFor = Duration.ofSeconds(5);
        private Supplier<Map<String, String>> trace = Map::of;
        private Executor executor;

        private Builder() {}

        private static String environment(String name, String otherwise) {
            String value = System.getenv(name);
            return value == null || value.isEmpty() ? otherwise : value;
        }

        private static Path file(String name) {
            String path = environment(name, null);
            return path == null ? null : Path.of(path);
        }

        /**
         * {@code http://HOST:PORT}, {@code https://HOST:PORT} or {@code unix:/PATH}. Default:
         * {@code DWELL_SERVER}, and else {@code http://127.0.0.1:7373}.
         */
        public Builder server(String server) {
            this.server = Objects.requireNonNull(server, "server");
            return this;
        }

        /**
         * The file of the token, which is read again when it changes. Default: {@code
         * DWELL_TOKEN_FILE}.
         */
        public Builder tokenFile(Path file) {
            this.tokenFile = file;
            return this;
        }

        /**
         * Certificates that verify the broker, in PEM. Default: {@code DWELL_CA_FILE}, and else
         * those of the JDK.
         */
        public Builder caFile(Path file) {
            this.caFile = file;
            return this;
        }

        /** The time for one request. Default 30 s. */
        public Builder timeout(Duration timeout) {
            this.timeout = Checks.positive("timeout", timeout);
            return this;
        }

        /** The time for all tries of a call. Default 5 s; 0 is one try. */
        public Builder retryFor(Duration retryFor) {
            this.retryFor = Checks.notNegative("retryFor", retryFor);
            return this;
        }

        /**
         * The trace context of each push: "traceparent" and "tracestate" of what the supplier
         * returns on the thread that pushes. With OpenTelemetry:
         *
         * <pre>{@code
         * builder.trace(() -> {
         *     Map<String, String> carrier = new HashMap<>();
         *     openTelemetry.getPropagators().getTextMapPropagator().inject(Context.current(), carrier, Map::put);
         *     return carrier;
         * });
         * }</pre>
         */
        public Builder trace(Supplier<Map<String, String>> trace) {
            this.trace = Objects.requireNonNull(trace, "trace");
            return this;
        }

        /**
         * What runs the calls that return a future, such as {@code
         * Executors.newVirtualThreadPerTaskExecutor()}. Default: up to 32 daemon threads of the
         * client.
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "executor");
            return this;
        }

        /**
         * Makes the client. Throws IllegalArgumentException if the address or the file of
         * certificates is wrong.
         */
        public Client build() {
            return new Client(this);
        }

        private Transport transport() {
            return new Transport(server, tokenFile, caFile == null ? null : trusting(caFile));
        }

        private static SSLSocketFactory trusting(Path file) {
            try (InputStream pem = Files.newInputStream(file)) {
                KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
                store.load(null, null);
                for (Certificate certificate :
                        CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
                    store.setCertificateEntry("ca-" + store.size(), certificate);
                }
                TrustManagerFactory trust =
                        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
                trust.init(store);
                SSLContext context = SSLContext.getInstance("TLS");
                context.init(null, trust.getTrustManagers(), null);
                return context.getSocketFactory();
            } catch (GeneralSecurityException | IOException e) {
                throw new IllegalArgumentException("CA file " + file + ": " + e, e);
            }
        }
    }
}
