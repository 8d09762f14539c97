package com.example.dwell;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Some messages of a {@link Client#pushMany} were not accepted. It is an exception of the first of them. */
public final class PushManyException extends DwellException {
    private static final long serialVersionUID = 1;
    private final transient List<PushResult> results;

    private PushManyException(DwellException first, Map<String, Object> problem, List<PushResult> results) {
        super(first.status(), problem);
        this.isUnavailable = first.isUnavailable;
        this.results = results;
    }

    static PushManyException of(List<DwellException> failed, List<PushResult> results) {
        Map<String, Object> problem = new LinkedHashMap<>(failed.get(0).problem());
        problem.put("detail", "%d of %d messages were not accepted, the first with: %s"
            .formatted(failed.size(), results.size(), failed.get(0).detail()));
        return new PushManyException(failed.get(0), problem, results);
    }

    /** {@return a result for each message, in order} */
    public List<PushResult> results() { return results; }
}
