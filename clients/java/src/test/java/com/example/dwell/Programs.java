package com.example.dwell;

import static com.example.dwell.Lab.check;
import static com.example.dwell.Lab.same;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The programs of examples/, and the snippets of the README. */
final class Programs {
    private static final String JAVA = System.getProperty("java.home") + "/bin/java";
    private static final Pattern BLOCK =
            Pattern.compile("^```(\\w+)\n(.*?)^```", Pattern.DOTALL | Pattern.MULTILINE);

    /** A program whose methods are the snippets. */
    private static final String AROUND =
            """
            import com.example.dwell.*;
            import java.time.Duration;
            import java.util.Map;
            import java.util.concurrent.*;

            public class Snippets {
                static final CountDownLatch HAS_CLOSED = new CountDownLatch(1);

                static boolean isBusy() {
                    return false;
                }

                static void closeOrder(String text) {
                    HAS_CLOSED.countDown();
                }

                static void assertEquals(long expected, long actual) {
                    if (expected != actual) {
                        throw new AssertionError(actual);
                    }
                }

                interface Snippet {
                    void play(Client dwell) throws Exception;
                }

                static void play(String name, Client dwell, Snippet snippet) throws Exception {
                    snippet.play(dwell);
                    Thread.interrupted();
                    System.out.println("played " + name);
                }

                // A worker works until its thread is interrupted.
                static void interruptWhenClosed(Thread playing) {
                    try {
                        HAS_CLOSED.await();
                        playing.interrupt();
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                }

                public static void main(String[] args) throws Exception {
                    Client dwell = new Client();
                    Thread playing = Thread.currentThread();
                    Thread watch = new Thread(() -> interruptWhenClosed(playing));
                    watch.setDaemon(true);
                    watch.start();
                    CALLS
                }
                METHODS
            }
            """;

    private Programs() {}

    private static void play(String name, String... lines) throws Exception {
        try (Lab.Story story = new Lab.Story("calm", 0)) {
            Map<String, String> env = Map.of("DWELL_SERVER", story.server);
            String output =
                    run(
                            env,
                            Path.of("."),
                            JAVA,
                            "-cp",
                            "target/classes",
                            "examples/" + name + ".java");
            same(List.of(lines), output.lines().sorted().toList());
        }
    }

    static void aThousandMessagesArePushed() throws Exception {
        play("PushThousand", "1000 messages are stored");
    }

    static void halfOfTheMessagesIsCancelled() throws Exception {
        play("CancelHalf", "50 messages are cancelled, 50 are left");
    }

    static void aWorkerFails() throws Exception {
        play(
                "FailingWorker",
                "1 message was sent",
                "broken: MAX_ATTEMPTS, java.lang.IllegalStateException, smtp: 451",
                "wrong: BURIED, no such address");
    }

    static void aWorkerStopsGracefully() throws Exception {
        play("GracefulStop", "1 is done, 9 wait without an attempt", "finished");
    }

    static void theClockIsMoved() throws Exception {
        play("ClockTest", "a month has passed");
    }

    static void theSnippetsOfTheReadmeDoWhatTheySay() throws Exception {
        List<String> snippets = blocks("java");
        check(snippets.size() >= 8, snippets.size() + " snippets");
        StringBuilder calls = new StringBuilder(), methods = new StringBuilder();
        // The first one is a whole program, which examples.py runs.
        for (int n = 1; n < snippets.size(); n++) {
            calls.append("play(\"%d\", dwell, Snippets::play%d);\n".formatted(n, n));
            String head = "static void play%d(Client dwell) throws Exception {\n".formatted(n);
            methods.append(head).append(snippets.get(n)).append("}\n");
        }
        String program = AROUND.replace("CALLS", calls).replace("METHODS", methods);
        Path directory = Files.createTempDirectory("dwell-snippets-");
        try (Lab.Story story = new Lab.Story("calm", 0)) {
            Path file = Files.writeString(directory.resolve("Snippets.java"), program);
            Map<String, String> env = Map.of("DWELL_SERVER", story.server);
            String output = run(env, Path.of("."), JAVA, "-cp", "target/classes", file.toString());
            check(output.endsWith("played " + (snippets.size() - 1) + "\n"), output);
        } finally {
            remove(directory);
        }
    }

    private static List<String> blocks(String language) throws IOException {
        return BLOCK.matcher(Files.readString(Path.of("README.md")))
                .results()
                .filter(block -> block.group(1).equals(language))
                .map(block -> block.group(2))
                .toList();
    }

    private static String run(Map<String, String> env, Path directory, String... command)
            throws Exception {
        ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile());
        builder.environment().putAll(env);
        Path output = Files.createTempFile("dwell-output-", ".txt");
        Path errors = Files.createTempFile("dwell-errors-", ".txt");
        try {
            builder.redirectOutput(output.toFile()).redirectError(errors.toFile());
            Process process = builder.start();
            boolean hasEnded = process.waitFor(2, TimeUnit.MINUTES);
            process.destroyForcibly().waitFor();
            String text = Files.readString(output);
            String all = String.join(" ", command) + ":\n" + text + Files.readString(errors);
            check(hasEnded && process.exitValue() == 0, all);
            return text;
        } finally {
            Files.delete(output);
            Files.delete(errors);
        }
    }

    private static void remove(Path directory) throws IOException {
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }
}
