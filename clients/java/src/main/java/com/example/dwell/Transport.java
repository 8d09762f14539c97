package com.example.dwell;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLSocketFactory;

/** Connections that are reused, requests that are repeated, and a token that is read again. */
final class Transport implements AutoCloseable {
    /** The broker closes idle connections after 75 seconds. */
    private static final long IDLE = TimeUnit.SECONDS.toNanos(50);
    static final ScheduledThreadPoolExecutor TIMER = new ScheduledThreadPoolExecutor(1, run -> daemon("dwell-timer", run));

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    /** A request. Its body is JSON, or null. */
    record Call(String method, String path, String body, Map<String, String> headers, Duration timeout, Duration retryFor,
        Interrupt interrupt) {}

    private final Connection.Address address;
    private final Token token;
    private final Deque<Connection> idle = new ArrayDeque<>();
    /** What verifies brokers, or null for the certificates of the JDK. */
    SSLSocketFactory tls;

    private Transport(Connection.Address address, Token token, SSLSocketFactory tls) {
        this.address = address;
        this.token = token;
        this.tls = tls;
    }

    Transport(String server) {
        this(Connection.Address.of(server), new Token(), null);
    }

    /** The same with connections that nothing else uses: behind a load balancer they stay with one broker. */
    Transport sibling() {
        return new Transport(address, token, tls);
    }

    void tokenFile(Path file) {
        token.file = file;
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

    /** Sends a request until its answer is final or its time is over. Returns null if it was interrupted before an answer. */
    Map<String, Object> call(Call call) {
        long until = System.nanoTime() + call.retryFor().toNanos();
        boolean isOpen = false;
        for (int tries = 0; ; tries++) {
            try {
                return once(call);
            } catch (DwellException e) {
                isOpen |= e.isRepeated;
                e.isRepeated = isOpen;
                isOpen |= e.status() == 0 || e.status() == 504;
                if (!e.mayPass()) {
                    throw e;
                }
                long wait = Math.max(e.retryAfter.toNanos(), backoff(tries, 50));
                if (System.nanoTime() + wait - until > 0 || !sleep(wait)) {
                    e.isUnavailable = true;
                    throw e;
                }
            }
        }
    }

    /** Returns whether the thread was not interrupted. */
    static boolean sleep(long nanos) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos);
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    @Override
    public void close() {
        synchronized (idle) {
            idle.forEach(Connection::close);
            idle.clear();
        }
    }

    private Map<String, Object> once(Call call) {
        String used = token.read(false);
        boolean isRepeated = false;
        while (true) {
            byte[] request = encoded(call, used);
            Connection connection = take();
            boolean isReused = connection.isConnected();
            Future<?> timer = TIMER.schedule(connection::close, call.timeout().toNanos(), TimeUnit.NANOSECONDS);
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
                isRepeated |= isReused;
                if (!isReused || timer.isDone()) {
                    throw failed(timer.isDone() ? "no answer within " + call.timeout() : e.toString(), isRepeated);
                }
                // The broker closed it meanwhile, and probably the others, too.
                close();
            } finally {
                timer.cancel(false);
            }
        }
    }

    private static DwellException failed(String detail, boolean isRepeated) {
        DwellException failed = new DwellException(detail);
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
        byte[] body = call.body() == null ? new byte[0] : call.body().getBytes(UTF_8);
        Map<String, String> headers = new HashMap<>(call.headers());
        headers.put("Host", address.host() + (address.unix() == null ? ":" + address.port() : ""));
        headers.put("Content-Type", "application/json");
        headers.put("Content-Length", Integer.toString(body.length));
        if (!token.isEmpty()) {
            headers.put("Authorization", "Bearer " + token);
        }
        StringBuilder head = new StringBuilder(call.method() + " " + call.path() + " HTTP/1.1\r\n");
        headers.forEach((name, value) -> {
            if (!value.chars().allMatch(c -> c >= ' ' && c < 127)) {
                throw new IllegalArgumentException("header " + name + ": expected ASCII without control characters");
            }
            head.append(name).append(": ").append(value).append("\r\n");
        });
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        request.writeBytes(head.append("\r\n").toString().getBytes(UTF_8));
        request.writeBytes(body);
        return request.toByteArray();
    }

    private Connection.Reply exchange(Connection connection, byte[] request, Interrupt interrupt) throws IOException {
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

    private static Map<String, Object> decoded(Connection.Reply reply, boolean isRepeated) {
        Map<String, Object> answer;
        try {
            answer = Answer.object(Json.read(reply.text()));
        } catch (IllegalArgumentException e) {
            if (reply.status() < 300) {
                throw failed("the answer is not what a broker writes: " + e.getMessage(), isRepeated);
            }
            answer = Map.of("detail", reply.text().substring(0, Math.min(200, reply.text().length())));
        }
        // A problem with verdicts or results is an answer to read: only some of it failed.
        if (reply.status() < 300 || answer.containsKey("results")) {
            return answer;
        }
        DwellException error = new DwellException(reply.status(), answer);
        error.isRepeated = isRepeated;
        String after = reply.headers().getOrDefault("retry-after", "");
        error.retryAfter = Duration.ofSeconds(after.matches("\\d{1,9}") ? Long.parseLong(after) : 0);
        throw error;
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
        private volatile Path file;
        private String text = "";
        private Object seen;

        synchronized String read(boolean again) {
            if (file == null) {
                return "";
            }
            try {
                BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class);
                Object now = List.of(found.lastModifiedTime(), found.size(), String.valueOf(found.fileKey()));
                if (again || !now.equals(seen)) {
                    text = Files.readString(file).strip();
                    seen = now;
                }
            } catch (IOException e) {
                // A file that is being replaced may be absent for a moment.
                if (text.isEmpty()) {
                    throw new DwellException("token file: " + e);
                }
            }
            return text;
        }
    }
}
