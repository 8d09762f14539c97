// POSTs over pooled connections of java.net.http and of HttpURLConnection, with silence before each. Every POST has to
// succeed. HttpURLConnection is told not to send a POST again by itself.

import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Idle {
    static final URI TARGET = URI.create(System.getenv("CONTRACT_URL") + "/v1/topics/idle/messages");
    static final String TOKEN = "Bearer " + System.getenv("CONTRACT_TOKEN");

    static int modern(HttpClient client) throws Exception {
        var request = HttpRequest.newBuilder(TARGET).version(HttpClient.Version.HTTP_1_1).header("Authorization", TOKEN)
            .POST(HttpRequest.BodyPublishers.ofString("java")).build();
        return client.send(request, HttpResponse.BodyHandlers.ofString()).statusCode();
    }

    static int classic() throws Exception {
        var connection = (HttpURLConnection) TARGET.toURL().openConnection();
        connection.setRequestMethod("POST");
        connection.setRequestProperty("Authorization", TOKEN);
        connection.setRequestProperty("Content-Type", "text/plain");
        connection.setDoOutput(true);
        connection.getOutputStream().write("java".getBytes());
        try (var body = connection.getInputStream()) {
            body.readAllBytes();
        }
        return connection.getResponseCode();
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("sun.net.http.retryPost", "false");
        var client = HttpClient.newHttpClient();
        var failed = 0;
        for (var pause : new int[] {0, 6, 30, 60}) {
            Thread.sleep(pause * 1000L);
            for (var name : new String[] {"java.net.http", "HttpURLConnection"}) {
                try {
                    var status = name.equals("java.net.http") ? modern(client) : classic();
                    failed += status == 201 ? 0 : 1;
                    System.out.printf("java, %s: after %d s: %d%n", name, pause, status);
                } catch (Exception error) {
                    failed += 1;
                    System.out.printf("java, %s: after %d s: %s%n", name, pause, error);
                }
            }
        }
        System.exit(failed > 0 ? 1 : 0);
    }
}
