import com.example.dwell.Bury;
import com.example.dwell.Client;
import com.example.dwell.DwellException;
import com.example.dwell.NewMessage;
import com.example.dwell.Worker;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Close unpaid orders: a customer has some time to pay, and then the shop closes the order. */
public class CloseUnpaidOrders {
    /** Stands for the database. */
    private final Map<Long, String> orders = new ConcurrentHashMap<>();

    private final Client dwell = new Client();
    private final Duration payWithin;

    CloseUnpaidOrders(Duration payWithin) {
        this.payWithin = payWithin;
    }

    /** UPDATE orders SET state = to WHERE id = order AND state = from. */
    boolean change(long order, String from, String to) {
        boolean isChanged = orders.replace(order, from, to);
        if (isChanged) {
            System.out.println(to + " order " + order);
        }
        return isChanged;
    }

    void checkout(long order) {
        orders.put(order, "unpaid");
        // The id and the key are made of the order, so a repeated checkout pushes nothing new.
        NewMessage message =
                NewMessage.json(order)
                        .id("close-" + order)
                        .key("order-" + order)
                        .delay(payWithin)
                        .build();
        dwell.push("orders", message);
    }

    void pay(long order) {
        if (!change(order, "unpaid", "paid")) {
            throw new IllegalStateException("order " + order + " cannot be paid");
        }
        try {
            dwell.cancel("orders", "close-" + order, "order-" + order);
        } catch (DwellException e) {
            // The message is being delivered: the handler finds that the order is paid.
            if (!e.type().equals("conflict") && !e.type().equals("not-found")) {
                throw e;
            }
        }
    }

    void work() {
        Worker worker = Worker.builder(dwell, "orders").concurrency(8).build();
        worker.run(
                delivery -> {
                    if (!(delivery.json() instanceof Long order)) {
                        throw new Bury("not the number of an order");
                    }
                    change(order, "unpaid", "closed");
                });
    }

    public static void main(String[] args) {
        String payWithin = System.getenv().getOrDefault("PAY_WITHIN", "30m");
        CloseUnpaidOrders shop = new CloseUnpaidOrders(Duration.parse("PT" + payWithin));
        shop.checkout(4711);
        shop.checkout(4712);
        shop.pay(4711);
        shop.work(); // until SIGTERM
    }
}
