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
 *     broker.client().push("reminders", NewMessage.text("renew").delay(Duration.ofDays(30)).build());
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
     * Runs {@code dwell serve --test-clock} on a free port with a temporary directory. {@code
     * DWELL_BIN} names the program, and else it is {@code dwell} in {@code PATH}. Throws {@link
     * UncheckedIOException} if it does not start.
     */
    public TestBroker() {
        try {
            directory = Files.createTempDirectory("dwell-test-");
            ProcessBuilder command =
                    new ProcessBuilder(
                            Objects.requireNonNullElse(System.getenv("DWELL_BIN"), "dwell"),
                            "serve",
                            "--test-clock",
                            "--listen",
                            "127.0.0.1:0",
                            "--data-dir",
                            directory.toString(),
                            "--log-level",
                            "error");
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
                Transport.daemon(
                                "dwell-test-output",
                                () -> {
                                    try {
                                        lines.transferTo(Writer.nullWriter());
                                    } catch (IOException e) {
                                        // It ends.
                                    }
                                })
                        .start();
                return words[1];
            }
        }
        throw new IOException("dwell serve --test-clock ended before it served");
    }

    /** {@return its address} */
    public String server() {
        return server;
    }

    /** {@return a client of it} */
    public Client client() {
        return client;
    }

    /** {@return the time of messages} */
    public Instant now() {
        return call("GET", null).time("now");
    }

    /** Moves time forward. What becomes due can be received once it returns. */
    public Moved advance(Duration by) {
        return move(new Body().with("advance", Checks.notNegative("by", by)));
    }

    /** Moves time forward to a time that is not past. */
    public Moved advanceTo(Instant to) {
        return move(new Body().with("to", Objects.requireNonNull(to, "to")));
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

    private Moved move(Body to) {
        return Moved.of(call("POST", to.json()));
    }

    /** Never repeated: the clock would move again. */
    private Fields call(String method, byte[] body) {
        return client.transport.call(
                new Transport.Call(
                        method,
                        "/v1/test/clock",
                        body,
                        Map.of(),
                        MOVE_TIMEOUT,
                        Duration.ZERO,
                        new Transport.Interrupt(),
                        false,
                        false));
    }

    /**
     * The outcome of a move of the clock.
     *
     * @param now the time of messages after the move
     * @param due the groups in which messages became due
     * @param fired the cron jobs that fired
     * @param timedOut deliveries whose visibility timeout passed
     */
    public record Moved(
            Instant now, List<DueMessages> due, List<FiredCronJob> fired, long timedOut) {
        static Moved of(Fields fields) {
            return new Moved(
                    fields.time("now"),
                    fields.objects("due", DueMessages::of),
                    fields.objects("fired", FiredCronJob::of),
                    fields.number("timed_out"));
        }
    }

    /**
     * Messages of a group that became due.
     *
     * @param topic the topic
     * @param group the group
     * @param messages how many, with those of cron jobs
     */
    public record DueMessages(String topic, String group, long messages) {
        static DueMessages of(Fields fields) {
            return new DueMessages(
                    fields.text("topic"), fields.text("group"), fields.number("messages"));
        }
    }

    /**
     * A cron job that fired.
     *
     * @param topic the topic
     * @param name its name
     * @param times how often it fired
     */
    public record FiredCronJob(String topic, String name, long times) {
        static FiredCronJob of(Fields fields) {
            return new FiredCronJob(
                    fields.text("topic"), fields.text("name"), fields.number("times"));
        }
    }
}
