package com.example.dwell;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLSocketFactory;

/** Connections that are reused, requests that are repeated, and a token that is read again. */
final class Transport implements AutoCloseable {
    /** The broker closes idle connections after 75 seconds. */
    private static final long IDLE = TimeUnit.SECONDS.toNanos(50);

    static final ScheduledThreadPoolExecutor TIMER =
            new ScheduledThreadPoolExecutor(1, run -> daemon("dwell-timer", run));

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    /**
     * A request, whose body is JSON or null. It is repeated for this long. Unless it {@code
     * mayRepeat}, only after answers that say that nothing was changed. One that {@code isBounded}
     * has no answer later than its repeats.
     */
    record Call(
            String method,
            String path,
            byte[] body,
            Map<String, String> headers,
            Duration timeout,
            Duration retryFor,
            Interrupt interrupt,
            boolean mayRepeat,
            boolean isBounded) {

        /** A request of a worker, which is tried once. */
        static Call once(String path, Body body, Duration timeout, Interrupt interrupt) {
            return new Call(
                    "POST",
                    path,
                    body.json(),
                    Map.of(),
                    timeout,
                    Duration.ZERO,
                    interrupt,
                    true,
                    false);
        }

        Call within(Duration most) {
            return new Call(
                    method, path, body, headers, most, retryFor, interrupt, mayRepeat, isBounded);
        }
    }

    private final Connection.Address address;
    private final Token token;
    private final Deque<Connection> idle = new ArrayDeque<>();

    /** What verifies brokers, or null for the certificates of the JDK. */
    private final SSLSocketFactory tls;

    private Transport(Connection.Address address, Token token, SSLSocketFactory tls) {
        this.address = address;
        this.token = token;
        this.tls = tls;
    }

    Transport(String server, Path tokenFile, SSLSocketFactory tls) {
        this(Connection.Address.of(server), new Token(tokenFile), tls);
    }

    /**
     * The same with connections that nothing else uses: behind a load balancer they stay with one
     * broker.
     */
    Transport sibling() {
        return new Transport(address, token, tls);
    }

    static Thread daemon(String name, Runnable run) {
        Thread thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }

    /** How long to wait before try number tries + 1, in nanoseconds: exponential, with jitter. */
    static long backoff(int tries, long firstMs) {
        double most = Math.min(2000, firstMs * Math.pow(2, Math.min(tries, 16)));
        return (long) (most * ThreadLocalRandom.current().nextDouble(0.5, 1) * 1e6);
    }

    /**
     * Sends a request until its answer is final or its time is over. Returns null if a worker ended
     * it before an answer.
     */
    Fields call(Call call) {
        long began = System.nanoTime(), until = began + call.retryFor().toNanos();
        boolean isOpen = false;
        for (int tries = 1; ; tries++) {
            try {
                return once(call.isBounded() ? call.within(timeLeft(call, until)) : call);
            } catch (DwellException e) {
                isOpen |= e.isRepeated;
                e.isRepeated = isOpen;
                isOpen |= e.status() == 0 || e.status() == 504;
                if (!e.mayPass()) {
                    throw e;
                }
                // The last try is at the end of the time.
                long left = until - System.nanoTime();
                long wait =
                        Math.max(e.retryAfter.toNanos(), Math.min(left, backoff(tries - 1, 50)));
                if (left <= 0 || wait > left || !call.mayRepeat() && !e.isUnapplied()) {
                    throw unavailable(tries, began, e);
                }
                sleep(wait);
            }
        }
    }

    /**
     * A try that begins late has a second, since one that is too short only makes the outcome
     * unknown.
     */
    private static Duration timeLeft(Call call, long until) {
        if (call.retryFor().isZero()) {
            return call.timeout();
        }
        long left = Math.max(TimeUnit.SECONDS.toNanos(1), until - System.nanoTime());
        return Duration.ofNanos(Math.min(left, call.timeout().toNanos()));
    }

    private UnavailableException unavailable(int tries, long began, DwellException last) {
        double seconds = (System.nanoTime() - began) / 1e9;
        String why = last.status() == 0 ? last.detail() : server() + ": " + last.getMessage();
        String how =
                tries == 1
                        ? ""
                        : String.format(Locale.ROOT, " (%d tries in %.1f s)", tries, seconds);
        return new UnavailableException(why + how, last);
    }

    String server() {
        return address.name();
    }

    /** Throws CancellationException if the thread is interrupted, and leaves it so. */
    static void sleep(long nanos) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos);
        } catch (InterruptedException e) {
            throw interrupted(e);
        }
    }

    /** What a call throws whose thread was interrupted. */
    static CancellationException interrupted(InterruptedException cause) {
        Thread.currentThread().interrupt();
        CancellationException cancelled = new CancellationException("the thread was interrupted");
        cancelled.initCause(cause);
        return cancelled;
    }

    @Override
    public void close() {
        synchronized (idle) {
            idle.forEach(Connection::close);
            idle.clear();
        }
    }

    private Fields once(Call call) {
        String used = token.read(false);
        boolean isRepeated = false;
        while (true) {
            byte[] request = encoded(call, used);
            Connection connection = call.mayRepeat() ? take() : new Connection(address, tls);
            boolean isReused = connection.isConnected();
            long timeout = call.timeout().toNanos();
            Future<?> timer = TIMER.schedule(connection::close, timeout, TimeUnit.NANOSECONDS);
            try {
                Connection.Reply reply = exchange(connection, request, call.interrupt());
                String now = reply.status() == 401 ? token.read(true) : used;
                if (now.equals(used)) {
                    return decoded(reply, isRepeated);
                }
                used = now;
            } catch (IOException e) {
                connection.close();
                if (call.interrupt().isSet()) {
                    return null;
                }
                if (Thread.currentThread().isInterrupted()) {
                    InterruptedException interrupted = new InterruptedException("during a request");
                    interrupted.initCause(e);
                    throw interrupted(interrupted);
                }
                isRepeated |= isReused;
                if (!isReused || timer.isDone()) {
                    throw failed(why(e, timer.isDone(), call.timeout()), isRepeated, e);
                }
                // The broker closed it meanwhile, and probably the others, too.
                close();
            } finally {
                timer.cancel(false);
            }
        }
    }

    private static String why(IOException e, boolean isLate, Duration timeout) {
        if (isLate) {
            return "no answer within " + timeout.toMillis() + " ms";
        }
        return e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
    }

    private DwellException failed(String detail, boolean isRepeated, Throwable cause) {
        DwellException failed = new UnavailableException(server() + ": " + detail, cause);
        failed.isRepeated = isRepeated;
        return failed;
    }

    private Connection take() {
        synchronized (idle) {
            while (!idle.isEmpty()) {
                Connection connection = idle.pollLast();
                if (connection.isOpen() && System.nanoTime() - connection.idleSince < IDLE) {
                    return connection;
                }
                connection.close();
            }
        }
        return new Connection(address, tls);
    }

    private byte[] encoded(Call call, String token) {
        byte[] body = call.body() == null ? new byte[0] : call.body();
        Map<String, String> headers = new HashMap<>(call.headers());
        headers.put("Host", address.host() + (address.unix() == null ? ":" + address.port() : ""));
        headers.put("Content-Type", "application/json");
        headers.put("Content-Length", Integer.toString(body.length));
        if (!token.isEmpty()) {
            headers.put("Authorization", "Bearer " + token);
        }
        StringBuilder head = new StringBuilder(call.method() + " " + call.path() + " HTTP/1.1\r\n");
        headers.forEach(
                (name, value) -> {
                    if (!value.chars().allMatch(c -> c >= ' ' && c < 127)) {
                        throw new IllegalArgumentException(
                                "header " + name + ": expected ASCII without control characters");
                    }
                    head.append(name).append(": ").append(value).append("\r\n");
                });
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        request.writeBytes(head.append("\r\n").toString().getBytes(UTF_8));
        request.writeBytes(body);
        return request.toByteArray();
    }

    private Connection.Reply exchange(Connection connection, byte[] request, Interrupt interrupt)
            throws IOException {
        try {
            interrupt.watch(connection);
            Connection.Reply reply = connection.exchange(request);
            if (interrupt.isSet() || "close".equalsIgnoreCase(reply.headers().get("connection"))) {
                connection.close();
            } else {
                connection.idleSince = System.nanoTime();
                synchronized (idle) {
                    idle.add(connection);
                }
            }
            return reply;
        } finally {
            interrupt.watch(null);
        }
    }

    private Fields decoded(Connection.Reply reply, boolean isRepeated) {
        Fields answer;
        try {
            answer = reply.text().isEmpty() ? Fields.NONE : Fields.of(Json.read(reply.text()));
        } catch (IllegalArgumentException e) {
            if (reply.status() < 300) {
                throw failed(
                        "the answer is not what a broker writes: " + e.getMessage(), isRepeated, e);
            }
            String text = reply.text().substring(0, Math.min(200, reply.text().length()));
            answer = Fields.of(Map.of("detail", text));
        }
        // A problem with verdicts or results is an answer to read: only some of it failed.
        if (reply.status() < 300 || answer.has("results")) {
            return answer;
        }
        DwellException error = DwellException.of(reply.status(), answer);
        error.isRepeated = isRepeated;
        String after = reply.headers().getOrDefault("retry-after", "");
        error.retryAfter =
                Duration.ofSeconds(after.matches("\\d{1,9}") ? Long.parseLong(after) : 0);
        throw error;
    }

    static String path(String... parts) {
        StringBuilder path = new StringBuilder("/v1");
        for (String part : parts) {
            path.append('/').append(percent(part));
        }
        return path.toString();
    }

    static String percent(String text) {
        return URLEncoder.encode(text, UTF_8).replace("+", "%20").replace("*", "%2A");
    }

    /** Ends a request early. An answer that is already on its way is still read. */
    static final class Interrupt {
        private Connection connection;
        private boolean isSet;

        synchronized boolean isSet() {
            return isSet;
        }

        synchronized void watch(Connection connection) throws IOException {
            this.connection = connection;
            if (isSet && connection != null) {
                throw new IOException("interrupted");
            }
        }

        synchronized void set() {
            isSet = true;
            if (connection != null) {
                connection.interrupt();
            }
        }
    }

    /** The token in a file, read again when the file changes. */
    private static final class Token {
        /** Null for no token. */
        private final Path file;

        private String text = "";
        private Object seen;

        Token(Path file) {
            this.file = file;
        }

        synchronized String read(boolean again) {
            if (file == null) {
                return "";
            }
            try {
                BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class);
                Object now =
                        List.of(
                                found.lastModifiedTime(),
                                found.size(),
                                String.valueOf(found.fileKey()));
                if (again || !now.equals(seen)) {
                    text = Files.readString(file).strip();
                    seen = now;
                }
            } catch (IOException e) {
                // A file that is being replaced may be absent for a moment.
                if (text.isEmpty()) {
                    throw new UnavailableException("token file: " + e, e);
                }
            }
            return text;
        }
    }
}
