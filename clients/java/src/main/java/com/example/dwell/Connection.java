package com.example.dwell;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * A connection that speaks HTTP/1.1.
 *
 * <p>The HttpClient of the JDK knows no Unix sockets, and cannot end the output of a connection:
 * the answer of a poll that a worker ends would be lost, with deliveries in it.
 */
final class Connection {
    private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(10);
    private static final int LONGEST_LINE = 64 << 10;
    private static final Pattern URL =
            Pattern.compile("(https?)://(\\[[^]/]+]|[^/:@?#\\[\\]]+)(?::(\\d{1,5}))?/?");

    /** An answer, with the names of its headers in lower case. */
    record Reply(int status, Map<String, String> headers, String text) {}

    /** Where brokers are: at the path of a Unix socket, or, if that is null, at a host and port. */
    record Address(String unix, String host, int port, boolean isTls) {
        /** As users write it. */
        String name() {
            return unix != null
                    ? "unix:" + unix
                    : (isTls ? "https://" : "http://") + host + ":" + port;
        }

        static Address of(String server) {
            if (server.startsWith("unix:/")) {
                return new Address(server.substring("unix:".length()), "localhost", 0, false);
            }
            Matcher url = URL.matcher(server);
            if (!url.matches() || url.group(3) != null && Integer.parseInt(url.group(3)) > 0xffff) {
                throw new IllegalArgumentException(
                        "server \""
                                + server
                                + "\": expected http://HOST:PORT, https://HOST:PORT or unix:/PATH");
            }
            boolean isTls = url.group(1).equals("https");
            return new Address(
                    null,
                    url.group(2),
                    url.group(3) != null ? Integer.parseInt(url.group(3)) : isTls ? 443 : 7373,
                    isTls);
        }
    }

    private final Address address;
    private final SSLSocketFactory tls;
    private final SocketChannel channel;
    private InputStream in;
    private OutputStream out;

    /** Whether an answer may be on its way. */
    private volatile boolean isSent;

    /** Since when it is idle, by {@link System#nanoTime}. */
    long idleSince;

    Connection(Address address, SSLSocketFactory tls) {
        this.address = address;
        this.tls = tls;
        channel = open();
    }

    private SocketChannel open() {
        try {
            return address.unix() == null
                    ? SocketChannel.open()
                    : SocketChannel.open(StandardProtocolFamily.UNIX);
        } catch (IOException e) {
            throw new UnavailableException(address.name() + ": " + e, e);
        }
    }

    boolean isOpen() {
        return channel.isOpen();
    }

    boolean isConnected() {
        return channel.isConnected();
    }

    /** Sends a request, and reads its answer. */
    Reply exchange(byte[] request) throws IOException {
        connect();
        isSent = true;
        out.write(request);
        out.flush();
        Reply reply = receive();
        isSent = false;
        return reply;
    }

    private void connect() throws IOException {
        if (channel.isConnected()) {
            return;
        }
        Future<?> timer =
                Transport.TIMER.schedule(
                        this::close, CONNECT_TIMEOUT.toSeconds(), TimeUnit.SECONDS);
        channel.connect(
                address.unix() != null
                        ? UnixDomainSocketAddress.of(address.unix())
                        : new InetSocketAddress(
                                InetAddress.getByName(address.host()), address.port()));
        in = Channels.newInputStream(channel);
        out = Channels.newOutputStream(channel);
        if (address.unix() == null) {
            channel.socket().setTcpNoDelay(true);
        }
        if (address.isTls()) {
            SSLSocketFactory factory =
                    tls == null ? (SSLSocketFactory) SSLSocketFactory.getDefault() : tls;
            SSLSocket socket =
                    (SSLSocket)
                            factory.createSocket(
                                    channel.socket(), address.host(), address.port(), true);
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            in = socket.getInputStream();
            out = socket.getOutputStream();
        }
        in = new BufferedInputStream(in);
        timer.cancel(false);
    }

    private Reply receive() throws IOException {
        String status = line();
        if (!status.matches("HTTP/1\\.[01] \\d{3}( .*)?")) {
            throw new IOException("not HTTP/1: " + status);
        }
        Map<String, String> headers = new HashMap<>();
        for (String line = line(); !line.isEmpty(); line = line()) {
            String[] header = line.split(":", 2);
            headers.put(header[0].toLowerCase(Locale.ROOT), header[header.length - 1].strip());
        }
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        if ("chunked".equalsIgnoreCase(headers.get("transfer-encoding"))) {
            for (int size = chunk(); size > 0; size = chunk()) {
                read(size, body);
                line();
            }
            line();
        } else if (headers.containsKey("content-length")) {
            read(length(headers.get("content-length"), 10), body);
        } else if (!status.startsWith("204", 9)) {
            body.writeBytes(in.readAllBytes());
            headers.put("connection", "close");
        }
        return new Reply(Integer.parseInt(status.substring(9, 12)), headers, body.toString(UTF_8));
    }

    private int chunk() throws IOException {
        return length(line().split(";", 2)[0].strip(), 16);
    }

    private static int length(String text, int radix) throws IOException {
        try {
            return Objects.checkIndex(Integer.parseInt(text, radix), Integer.MAX_VALUE);
        } catch (IndexOutOfBoundsException | NumberFormatException e) {
            throw new IOException("not a length: " + text);
        }
    }

    private void read(int size, ByteArrayOutputStream body) throws IOException {
        byte[] read = in.readNBytes(size);
        if (read.length < size) {
            throw new EOFException("the answer is cut off");
        }
        body.writeBytes(read);
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            if (c < 0 || line.length() > LONGEST_LINE) {
                throw new EOFException(
                        c < 0 ? "the connection ended" : "a line of the answer is too long");
            }
            line.append((char) c);
        }
        return line.toString().strip();
    }

    /** Ends a request early. The broker does so, too, when the client can send nothing more. */
    void interrupt() {
        if (!isSent) {
            close();
            return;
        }
        Transport.TIMER.schedule(this::close, 1, TimeUnit.SECONDS);
        try {
            channel.shutdownOutput();
        } catch (IOException | RuntimeException e) {
            close();
        }
    }

    void close() {
        try {
            channel.close();
        } catch (IOException e) {
            // It is of no use anyway.
        }
    }
}
