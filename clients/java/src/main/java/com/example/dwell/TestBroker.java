package com.example.dwell;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A broker for tests, whose time they move.
 *
 * <pre>{@code
 * try (TestBroker broker = new TestBroker()) {
 *     broker.client().push("reminders", NewMessage.text("renew").delay(Duration.ofDays(30)));
 *     broker.advance(Duration.ofDays(30));
 * }
 * }</pre>
 */
public final class TestBroker implements AutoCloseable {
    private static final long STOP_SECONDS = 30;
    /** Many cron jobs may fire before the answer. */
    private static final Duration MOVE_TIMEOUT = Duration.ofMinutes(5);

    private final Path directory;
    private final Process process;
    private final String server;
    private final Client client;

    /**
     * Runs {@code dwell serve --test-clock} on a free port with a temporary directory. {@code DWELL_BIN} names the program, and else it
     * is {@code dwell} in {@code PATH}. Throws {@link UncheckedIOException} if it does not start.
     */
    public TestBroker() {
        try {
            directory = Files.createTempDirectory("dwell-test-");
            ProcessBuilder command = new ProcessBuilder(Objects.requireNonNullElse(System.getenv("DWELL_BIN"), "dwell"), "serve",
                "--test-clock", "--listen", "127.0.0.1:0", "--data-dir", directory.toString(), "--log-level", "error");
            // Nothing from the environment may change what it does.
            command.environment().keySet().removeIf(name -> name.startsWith("DWELL_"));
            process = command.redirectError(ProcessBuilder.Redirect.INHERIT).start();
            server = address();
        } catch (IOException e) {
            throw new UncheckedIOException("DWELL_BIN may name the program", e);
        }
        client = new Client(server);
    }

    /** What it prints once it serves. */
    private String address() throws IOException {
        BufferedReader lines = process.inputReader(StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.strip().split("\\s+");
            if (words.length > 1 && words[0].equals("address")) {
                Transport.daemon("dwell-test-output", () -> {
                    try {
                        lines.transferTo(Writer.nullWriter());
                    } catch (IOException e) {
                        // It ends.
                    }
                }).start();
                return words[1];
            }
        }
        throw new IOException("dwell serve --test-clock ended before it served");
    }

    /** {@return its address} */
    public String server() { return server; }
    /** {@return a client of it} */
    public Client client() { return client; }
    /** {@return the time of messages} */
    public Instant now() { return new Moved(call("GET", "/v1/test/clock", null)).now(); }

    /** Moves time forward. What becomes due can be received once it returns. */
    public Moved advance(Duration by) {
        return move(Map.of("advance_ms", by.toMillis()));
    }

    /** Moves time forward to a time that is not past. */
    public Moved advanceTo(Instant to) {
        return move(Map.of("to", to));
    }

    /** Creates or changes a cron job, such as {@code Map.of("cron", "0 9 1 3 *", "payload", "report")}. */
    public void putCron(String topic, String name, Map<String, ?> job) {
        call("PUT", Client.path("topics", topic, "cron", name), Json.write(job));
    }

    /** Ends the broker, and removes its directory. */
    @Override
    public void close() {
        client.close();
        process.destroy();
        try (Stream<Path> files = Files.walk(directory)) {
            if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    private Moved move(Map<String, Object> to) {
        return new Moved(call("POST", "/v1/test/clock", Json.write(to)));
    }

    /** Never repeated: the clock would move again. */
    private Map<String, Object> call(String method, String path, String body) {
        Transport.Interrupt never = new Transport.Interrupt();
        return client.transport.call(new Transport.Call(method, path, body, Map.of(), MOVE_TIMEOUT, Duration.ZERO, never));
    }

    /** The outcome of a move of the clock. */
    public static final class Moved extends Answer {
        Moved(Map<String, Object> fields) {
            super(fields);
        }

        /** {@return the time of messages after the move} */
        public Instant now() { return time("now"); }
        /** {@return the groups in which messages became due, each with "topic", "group" and "messages"} */
        public List<Map<String, Object>> due() { return objects("due"); }
        /** {@return the cron jobs that fired, each with "topic", "name" and "times"} */
        public List<Map<String, Object>> fired() { return objects("fired"); }
        /** {@return deliveries whose visibility timeout passed} */
        public long timedOut() { return number("timed_out"); }
    }
}
