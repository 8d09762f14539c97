import com.example.dwell.Client;
import com.example.dwell.MessageQuery;
import com.example.dwell.NewMessage;
import com.example.dwell.Producer;

import java.time.Duration;

/** Pushes 1,000 messages that travel in batches, and counts what is stored. */
public class PushThousand {
    public static void main(String[] args) {
        try (Client dwell = new Client()) {
            try (Producer producer = Producer.builder(dwell).topic("reminders").build()) {
                for (int n = 0; n < 1000; n++) {
                    Duration delay = Duration.ofHours(1);
                    producer.push(
                                    NewMessage.text("reminder " + n)
                                            .id("r-" + n)
                                            .delay(delay)
                                            .build())
                            .whenComplete(PushThousand::report);
                }
            } // close() waits for the answers
            long stored = dwell.list("reminders", MessageQuery.ALL.limit(1000)).stream().count();
            System.out.println(stored + " messages are stored");
        }
    }

    private static void report(Object result, Throwable error) {
        if (error != null) {
            System.out.println(error.getMessage());
        }
    }
}
