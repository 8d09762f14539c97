package com.example.dwell;

import java.io.PrintWriter;
import java.io.StringWriter;

/** Stack traces as text. */
final class Stacks {
    private Stacks() {}

    /**
     * The stack trace of an error. If it is too long, that of its first cause alone, whose
     * beginning is where the error arose.
     */
    static String text(Throwable thrown, int bytes) {
        String whole = printed(thrown);
        return fits(whole, bytes) ? whole : Decision.cut(printed(root(thrown)), bytes);
    }

    private static boolean fits(String text, int bytes) {
        return Decision.cut(text, bytes).length() == text.length();
    }

    private static Throwable root(Throwable thrown) {
        Throwable root = thrown;
        // Causes may form a circle.
        for (int depth = 0; depth < 10_000 && root.getCause() != null; depth++) {
            root = root.getCause();
        }
        return root;
    }

    private static String printed(Throwable thrown) {
        StringWriter text = new StringWriter();
        thrown.printStackTrace(new PrintWriter(text, true));
        return text.toString();
    }
}
