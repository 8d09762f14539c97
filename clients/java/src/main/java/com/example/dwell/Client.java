package com.example.dwell;

import java.io.IOException;
import java.io.InputStream;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * A client of one broker, or of several behind one address. It may be used by many threads; set its options first.
 *
 * <pre>{@code
 * try (Client dwell = new Client("http://127.0.0.1:7373")) {
 *     dwell.push("orders", NewMessage.text("close order 4713").delay(Duration.ofMinutes(30)));
 * }
 * }</pre>
 *
 * <p>The client repeats a call after 408, 429, 503, 504 and a broken connection, with the same id, until {@link #retryFor} is over. Every
 * call throws a {@link DwellException} if the broker refuses it, and one that {@link DwellException#isUnavailable} if it has no final
 * answer by then, or if the thread is interrupted.
 */
public final class Client implements AutoCloseable {
    /** A batch has up to 1,000 messages and 8 MiB. */
    private static final int BATCH_MESSAGES = 1000;
    private static final int BATCH_BYTES = 7 << 20;

    final Transport transport;
    private Duration timeout = Duration.ofSeconds(30);
    private Duration retryFor = Duration.ofSeconds(60);
    private Supplier<Map<String, String>> trace = Map::of;

    /** A client of the server in {@code DWELL_SERVER}, or else of {@code http://127.0.0.1:7373}. */
    public Client() {
        this(Objects.requireNonNullElse(System.getenv("DWELL_SERVER"), "http://127.0.0.1:7373"));
    }

    /** A client of {@code http://HOST:PORT}, {@code https://HOST:PORT} or {@code unix:/PATH}. Throws IllegalArgumentException otherwise. */
    public Client(String server) {
        transport = new Transport(server);
        if (System.getenv("DWELL_TOKEN_FILE") != null) {
            tokenFile(Path.of(System.getenv("DWELL_TOKEN_FILE")));
        }
        if (System.getenv("DWELL_CA_FILE") != null) {
            caFile(Path.of(System.getenv("DWELL_CA_FILE")));
        }
    }

    /** The file of the token, which is read again when it changes. Default: {@code DWELL_TOKEN_FILE}. */
    public Client tokenFile(Path file) {
        transport.tokenFile(file);
        return this;
    }

    /**
     * Certificates that verify the broker, in PEM. Default: {@code DWELL_CA_FILE}, and else those of the JDK. Throws
     * IllegalArgumentException if the file has none.
     */
    public Client caFile(Path file) {
        try (InputStream pem = Files.newInputStream(file)) {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
                store.setCertificateEntry("ca-" + store.size(), certificate);
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            transport.tls = context.getSocketFactory();
            return this;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalArgumentException("CA file " + file + ": " + e, e);
        }
    }

    /** The time for one request. Default 30 s. */
    public Client timeout(Duration timeout) {
        this.timeout = timeout;
        return this;
    }

    /** The time for all repeats of a call. Default 60 s. */
    public Client retryFor(Duration retryFor) {
        this.retryFor = retryFor;
        return this;
    }

    /**
     * The trace context of each push: "traceparent" and "tracestate" of what the supplier returns on the thread that pushes. With
     * OpenTelemetry:
     *
     * <pre>{@code
     * client.trace(() -> {
     *     Map<String, String> carrier = new HashMap<>();
     *     openTelemetry.getPropagators().getTextMapPropagator().inject(Context.current(), carrier, Map::put);
     *     return carrier;
     * });
     * }</pre>
     */
    public Client trace(Supplier<Map<String, String>> trace) {
        this.trace = trace;
        return this;
    }

    /** Creates a topic, or changes the given settings of it, such as "max_attempts". Repeating it changes nothing. */
    public void createTopic(String topic, Map<String, ?> settings) {
        call("PUT", path("topics", topic), Json.write(settings), Map.of());
    }

    /** Pushes one message. It has an id before it is sent, so repeats store it once. */
    public PushResult push(String topic, NewMessage message) {
        return new PushResult(call("POST", path("topics", topic, "messages"), message.encoded(), traceHeaders()));
    }

    /**
     * Pushes messages in batches and repeats those that the broker could not store. Returns a result for each message, in order. Throws
     * {@link PushManyException} if any was not accepted. If the broker refuses a whole batch, the batches before it are stored.
     */
    public List<PushResult> pushMany(String topic, Iterable<NewMessage> messages) {
        String path = path("topics", topic, "messages", "batch");
        Map<String, String> headers = traceHeaders();
        List<PushResult> results = new ArrayList<>();
        List<String> batch = new ArrayList<>();
        long size = 0;
        for (NewMessage message : messages) {
            String encoded = message.encoded();
            int bytes = encoded.getBytes(StandardCharsets.UTF_8).length + 1;
            if (batch.size() == BATCH_MESSAGES || size + bytes > BATCH_BYTES) {
                results.addAll(pushBatch(path, batch, headers));
                batch.clear();
                size = 0;
            }
            batch.add(encoded);
            size += bytes;
        }
        if (!batch.isEmpty()) {
            results.addAll(pushBatch(path, batch, headers));
        }
        List<DwellException> failed = results.stream().map(PushResult::error).filter(Objects::nonNull).toList();
        if (!failed.isEmpty()) {
            throw PushManyException.of(failed, results);
        }
        return results;
    }

    private List<PushResult> pushBatch(String path, List<String> batch, Map<String, String> headers) {
        PushResult[] results = new PushResult[batch.size()];
        List<Integer> left = IntStream.range(0, batch.size()).boxed().toList();
        long until = System.nanoTime() + retryFor.toNanos();
        for (int tries = 0; ; tries++) {
            String body = "{\"messages\":[" + String.join(",", left.stream().map(batch::get).toList()) + "]}";
            List<Map<String, Object>> answers = Answer.objects(call("POST", path, body, headers), "results");
            for (int n = 0; n < left.size(); n++) {
                results[left.get(n)] = new PushResult(answers.get(n));
            }
            left = left.stream().filter(n -> results[n].error() != null && results[n].error().isUnavailable()).toList();
            long wait = Transport.backoff(tries, 50);
            if (left.isEmpty() || System.nanoTime() + wait - until > 0 || !Transport.sleep(wait)) {
                return Arrays.asList(results);
            }
        }
    }

    /** The same as {@link #cancel(String, String, String)} for a message that was pushed without a key. */
    public Control cancel(String topic, String id) {
        return cancel(topic, id, null);
    }

    /**
     * Cancels a message in every group in which it waits. Give the key that it was pushed with, or null. The type of the error is
     * "conflict" if a consumer has it.
     */
    public Control cancel(String topic, String id, String key) {
        return new Control(call("DELETE", message(topic, id, key, null), null, Map.of()));
    }

    /** Gives a message that waits another due time. The type of the error is "conflict" if a consumer has it. */
    public Control reschedule(String topic, String id, Reschedule to) {
        Map<String, String> headers = to.etag == null ? Map.of() : Map.of("If-Match", to.etag);
        return new Control(call("PATCH", message(topic, id, to.key, null), Json.write(to.fields), headers));
    }

    /** The same as {@link #get(String, String, String, String)} for a message without a key, in the group "default". */
    public Message get(String topic, String id) {
        return get(topic, id, null, null);
    }

    /** Gets a message with its state in a group. Give the key that it was pushed with, or null; the group null is "default". */
    public Message get(String topic, String id, String key, String group) {
        return new Message(call("GET", message(topic, id, key, group), null, Map.of()));
    }

    /** Closes the connections. */
    @Override
    public void close() {
        transport.close();
    }

    private Map<String, Object> call(String method, String path, String body, Map<String, String> headers) {
        return transport.call(new Transport.Call(method, path, body, headers, timeout, retryFor, new Transport.Interrupt()));
    }

    private Map<String, String> traceHeaders() {
        Map<String, String> headers = new TreeMap<>(trace.get());
        headers.keySet().retainAll(List.of("traceparent", "tracestate"));
        return headers;
    }

    static String path(String... parts) {
        StringBuilder path = new StringBuilder("/v1");
        for (String part : parts) {
            path.append('/').append(percent(part));
        }
        return path.toString();
    }

    private static String message(String topic, String id, String key, String group) {
        List<String> query = new ArrayList<>();
        if (key != null) {
            query.add("key=" + percent(key));
        }
        if (group != null) {
            query.add("group=" + percent(group));
        }
        return path("topics", topic, "messages", id) + (query.isEmpty() ? "" : "?" + String.join("&", query));
    }

    private static String percent(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
