package com.example.dwell;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** JSON of maps, lists, text, numbers, booleans and null. */
final class Json {
    /** How deep values may be nested, since reading is recursive. */
    private static final int DEPTH = 500;

    private static final Pattern NUMBER =
            Pattern.compile("-?(?:0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?");
    private static final String ESCAPES = "\"\\/bfnrt";
    private static final String ESCAPED = "\"\\/\b\f\n\r\t";

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        if (json.peek() != 0 || json.at < text.length()) {
            throw json.wrong();
        }
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private Object value(int depth) {
        if (depth > DEPTH) {
            throw wrong();
        }
        return switch (peek()) {
            case '{' -> object(depth + 1);
            case '[' -> array(depth + 1);
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> fields = new LinkedHashMap<>();
        at++;
        if (!is('}')) {
            do {
                String name = peek() == '"' ? string() : null;
                if (name == null || !is(':')) {
                    throw wrong();
                }
                fields.put(name, value(depth));
            } while (is(','));
            if (!is('}')) {
                throw wrong();
            }
        }
        return fields;
    }

    private List<Object> array(int depth) {
        List<Object> items = new ArrayList<>();
        at++;
        if (!is(']')) {
            do {
                items.add(value(depth));
            } while (is(','));
            if (!is(']')) {
                throw wrong();
            }
        }
        return items;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        for (at++; at < text.length() && text.charAt(at) >= ' '; at++) {
            char c = text.charAt(at);
            if (c == '"') {
                at++;
                return out.toString();
            }
            out.append(c == '\\' ? escaped() : c);
        }
        throw wrong();
    }

    private char escaped() {
        at++;
        if (text.startsWith("u", at) && at + 4 < text.length()) {
            at += 4;
            return (char) HexFormat.fromHexDigits(text, at - 3, at + 1);
        }
        int known = at < text.length() ? ESCAPES.indexOf(text.charAt(at)) : -1;
        if (known < 0) {
            throw wrong();
        }
        return ESCAPED.charAt(known);
    }

    private Object number() {
        Matcher number = NUMBER.matcher(text).region(at, text.length());
        if (!number.lookingAt()) {
            throw wrong();
        }
        at = number.end();
        if (number.group(1) != null || number.group(2) != null) {
            return Double.valueOf(number.group());
        }
        BigInteger whole = new BigInteger(number.group());
        return whole.bitLength() < Long.SIZE ? (Object) whole.longValue() : whole;
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong();
        }
        at += word.length();
        return value;
    }

    /** The next character that is not blank, or 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private boolean is(char expected) {
        boolean is = peek() == expected;
        at += is ? 1 : 0;
        return is;
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("not JSON at character " + at);
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> fields) {
            String separator = "{";
            for (Map.Entry<?, ?> field : fields.entrySet()) {
                quote(field.getKey().toString(), out.append(separator));
                write(field.getValue(), out.append(':'));
                separator = ",";
            }
            out.append(fields.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            int start = out.length();
            items.forEach(item -> write(item, out.append(out.length() > start ? "," : "")));
            out.append(']');
        } else if (value instanceof Object[] items) {
            write(Arrays.asList(items), out);
        } else if (value instanceof CharSequence
                || value instanceof Enum
                || value instanceof java.time.Instant) {
            quote(value.toString(), out);
        } else if (value == null
                || value instanceof Boolean
                || value instanceof Number number && Double.isFinite(number.doubleValue())) {
            out.append(value);
        } else {
            throw new IllegalArgumentException(
                    value.getClass().getName()
                            + " has no form in JSON: send the text of a JSON library");
        }
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int n = 0; n < text.length(); n++) {
            char c = text.charAt(n);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append("\\u").append(HexFormat.of().toHexDigits(c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
