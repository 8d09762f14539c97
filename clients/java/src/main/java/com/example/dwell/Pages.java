package com.example.dwell;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A list that is fetched page by page while it is read. Each iteration begins at the first page.
 *
 * @param <T> the items
 */
public final class Pages<T> implements Iterable<T> {
    /** A page, and where the next one begins, or null at the end. */
    record Page<T>(List<T> items, String nextCursor) {}

    private final Function<String, Page<T>> fetch;

    Pages(Function<String, Page<T>> fetch) {
        this.fetch = fetch;
    }

    @Override
    public Iterator<T> iterator() {
        return new Iterator<>() {
            private Iterator<T> page = List.<T>of().iterator();
            private String cursor = "";

            @Override
            public boolean hasNext() {
                // A page may be empty, and still not the last one.
                while (!page.hasNext() && cursor != null) {
                    Page<T> next = fetch.apply(cursor.isEmpty() ? null : cursor);
                    page = next.items().iterator();
                    cursor = next.nextCursor();
                }
                return page.hasNext();
            }

            @Override
            public T next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                return page.next();
            }
        };
    }

    /** {@return the items as a stream, whose pages are fetched while it is read} */
    public Stream<T> stream() {
        int ordered = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(
                () ->
                        Objects.requireNonNull(
                                Spliterators.spliteratorUnknownSize(iterator(), ordered)),
                ordered,
                false);
    }
}
