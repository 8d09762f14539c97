import com.example.dwell.Client;
import com.example.dwell.Event;
import com.example.dwell.Message;
import com.example.dwell.NewMessage;
import com.example.dwell.Worker;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;

/**
 * A worker stops while a handler runs: the handler ends its work. Messages that no handler has
 * begun wait for the next worker, with no attempt counted.
 */
public class GracefulStop {
    public static void main(String[] args) throws InterruptedException {
        try (Client dwell = new Client()) {
            for (int n = 0; n < 10; n++) {
                dwell.push("videos", NewMessage.text("video " + n).build());
            }
            CountDownLatch hasBegun = new CountDownLatch(1), isStopping = new CountDownLatch(1);
            Worker worker =
                    Worker.builder(dwell, "videos")
                            .concurrency(1)
                            .drain(Duration.ofSeconds(20))
                            .build();
            Thread running =
                    new Thread(
                            () ->
                                    worker.run(
                                            delivery -> {
                                                hasBegun.countDown();
                                                isStopping.await();
                                                System.out.println("finished");
                                            }));
            running.start();
            hasBegun.await();
            worker.stop();
            isStopping.countDown();
            running.join();
            long fresh =
                    dwell.list("videos").stream()
                            .filter(message -> message.attempts() == 0)
                            .map(Message::id)
                            .count();
            System.out.println(
                    worker.stats().count(Event.ACKED)
                            + " is done, "
                            + fresh
                            + " wait without an attempt");
        }
    }
}
