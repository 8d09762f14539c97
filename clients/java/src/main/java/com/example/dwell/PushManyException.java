package com.example.dwell;

import java.util.List;

/**
 * Some messages of a {@link Client#pushMany} were not accepted. Its type and status are those of
 * the first of them, which is its cause.
 */
public final class PushManyException extends DwellException {
    private static final long serialVersionUID = 1;
    private final transient List<PushResult> results;

    PushManyException(List<DwellException> failed, List<PushResult> results) {
        super(
                "%d of %d messages were not accepted, the first with: %s"
                        .formatted(failed.size(), results.size(), failed.get(0).getMessage()),
                failed.get(0).status(),
                failed.get(0).problem(),
                failed.get(0));
        this.results = results;
    }

    /** {@return a result for each message, in order} */
    public List<PushResult> results() {
        return results;
    }
}
