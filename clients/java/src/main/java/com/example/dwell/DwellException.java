package com.example.dwell;

import java.time.Duration;
import java.util.Map;
import java.util.Set;

/** A request that the broker refused, or did not answer. */
public class DwellException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final Set<String> PASSING = Set.of("full", "unavailable", "outcome-unknown");

    private final int status;
    private final transient Map<String, Object> problem;
    boolean isRepeated;
    Duration retryAfter = Duration.ZERO;

    DwellException(String message, int status, Map<String, Object> problem, Throwable cause) {
        super(message, cause);
        this.status = status;
        this.problem = problem;
    }

    /** The error that an answer tells. */
    static DwellException of(int status, Fields problem) {
        String message =
                status
                        + " "
                        + type(problem.map())
                        + ": "
                        + problem.map().getOrDefault("detail", "");
        return new DwellException(message, status, problem.map(), null);
    }

    /** The error of one message of a batch. */
    static DwellException of(Fields problem) {
        DwellException error = of(problem.count("status"), problem);
        return PASSING.contains(error.type())
                ? new UnavailableException(error.getMessage(), error)
                : error;
    }

    private static String type(Map<String, Object> problem) {
        return problem.getOrDefault("type", "").toString().replace("urn:dwell:error:", "");
    }

    /** {@return the HTTP status, or 0 without an answer} */
    public int status() {
        return status;
    }

    /** {@return the type, which is stable, such as "not-found"; empty without an answer} */
    public String type() {
        return type(problem());
    }

    /** {@return what went wrong, in the words of the broker} */
    public String detail() {
        return problem().getOrDefault("detail", "").toString();
    }

    /** {@return the id of the request in the logs of the broker} */
    public String requestId() {
        return problem().getOrDefault("request_id", "").toString();
    }

    /** {@return how long the broker asks to wait} */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** {@return the whole answer, as in RFC 9457} */
    public Map<String, Object> problem() {
        return problem == null ? Map.of() : problem;
    }

    /**
     * {@return whether an earlier try had no answer and may have succeeded} Then the types
     * "conflict" and "precondition-failed" may be its doing.
     */
    public boolean isRepeated() {
        return isRepeated;
    }

    /** Whether the same request may succeed later. */
    boolean mayPass() {
        return Set.of(0, 408, 429, 503, 504).contains(status);
    }

    /**
     * Whether a worker may repeat the request: also a new token, scope or topic ends some refusals.
     */
    boolean mayPassLater() {
        return mayPass() || Set.of(401, 403, 404, 500).contains(status);
    }

    /**
     * Whether the topic, the group or the receipt does not exist. A 404 without a type is not of a
     * broker.
     */
    boolean isGone() {
        return status == 404 && !type().isEmpty();
    }

    /** Whether the request certainly changed nothing. */
    boolean isUnapplied() {
        return Set.of(408, 429, 503).contains(status);
    }
}
