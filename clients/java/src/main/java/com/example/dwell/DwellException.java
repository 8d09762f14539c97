package com.example.dwell;

import java.time.Duration;
import java.util.Map;
import java.util.Set;

/** A request that the broker refused, or did not answer. */
public class DwellException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final int status;
    private final transient Map<String, Object> problem;
    boolean isRepeated;
    boolean isUnavailable;
    Duration retryAfter = Duration.ZERO;

    DwellException(int status, Map<String, Object> problem) {
        super((status == 0 ? "" : status + " " + type(problem) + ": ") + problem.getOrDefault("detail", ""));
        this.status = status;
        this.problem = problem;
    }

    DwellException(String detail) {
        this(0, Map.of("detail", detail));
    }

    /** The error of one message of a batch. */
    static DwellException of(Map<String, Object> problem) {
        DwellException error = new DwellException(problem.get("status") instanceof Number status ? status.intValue() : 0, problem);
        error.isUnavailable = Set.of("full", "unavailable", "outcome-unknown").contains(error.type());
        return error;
    }

    private static String type(Map<String, Object> problem) {
        return problem.getOrDefault("type", "").toString().replace("urn:dwell:error:", "");
    }

    /** {@return the HTTP status, or 0 without an answer} */
    public int status() { return status; }
    /** {@return the type, which is stable, such as "not-found"} */
    public String type() { return type(problem); }
    /** {@return what went wrong} */
    public String detail() { return problem.getOrDefault("detail", "").toString(); }
    /** {@return the id of the request in the logs of the broker} */
    public String requestId() { return problem.getOrDefault("request_id", "").toString(); }
    /** {@return how long the broker asks to wait} */
    public Duration retryAfter() { return retryAfter; }
    /** {@return the whole answer, as in RFC 9457} */
    public Map<String, Object> problem() { return problem; }

    /**
     * {@return whether an earlier try had no answer and may have succeeded} Then the types "conflict" and "precondition-failed" may be
     * its doing.
     */
    public boolean isRepeated() { return isRepeated; }

    /**
     * {@return whether there was no answer, or none that is final, within {@link Client#retryFor}} A push may be stored: push again with
     * the same id and key.
     */
    public boolean isUnavailable() { return isUnavailable; }

    /** Whether the same request may succeed later. */
    boolean mayPass() {
        return Set.of(0, 408, 429, 503, 504).contains(status);
    }
}
