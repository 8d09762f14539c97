import com.example.dwell.Backoff;
import com.example.dwell.Bury;
import com.example.dwell.Client;
import com.example.dwell.Event;
import com.example.dwell.LastError;
import com.example.dwell.Message;
import com.example.dwell.NewMessage;
import com.example.dwell.TopicSettings;
import com.example.dwell.Worker;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;

/**
 * Handlers fail: one message has success at its third attempt, the other ones become dead letters.
 */
public class FailingWorker {
    public static void main(String[] args) throws InterruptedException {
        try (Client dwell = new Client()) {
            Backoff backoff = Backoff.ladder(Duration.ofMillis(10));
            dwell.createTopic(
                    "mail", TopicSettings.builder().maxAttempts(3).backoff(backoff).build());
            for (String name : new String[] {"flaky", "broken", "wrong"}) {
                dwell.push("mail", NewMessage.text(name).id(name).build());
            }
            CountDownLatch ended = new CountDownLatch(3);
            Worker worker =
                    Worker.builder(dwell, "mail")
                            .onEvent(
                                    (event, delivery) -> {
                                        if (event == Event.ACKED || event == Event.BURIED) {
                                            ended.countDown();
                                        }
                                    })
                            .build();
            Thread running = new Thread(() -> worker.run(d -> send(d.text(), d.attempt())));
            running.start();
            ended.await();
            worker.close();
            for (Message dead : dwell.deadLetters("mail", "default")) {
                LastError error = dead.lastError();
                String name = error.className() == null ? "" : error.className() + ", ";
                System.out.println(
                        dead.id() + ": " + dead.reason() + ", " + name + error.message());
            }
            System.out.println(worker.stats().count(Event.ACKED) + " message was sent");
        }
    }

    private static void send(String name, int attempt) {
        if (name.equals("wrong")) {
            throw new Bury("no such address");
        }
        if (name.equals("broken") || attempt < 3) {
            throw new IllegalStateException("smtp: 451");
        }
    }
}
