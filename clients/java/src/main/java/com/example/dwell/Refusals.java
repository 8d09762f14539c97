package com.example.dwell;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Which messages of a batch the broker refused, by the error of the whole batch. */
final class Refusals {
    private static final Pattern POINTER = Pattern.compile("/messages/(\\d{1,6})(/.*)?");

    private Refusals() {}

    /** The error of each message that the answer names, by its place in the batch. */
    static Map<Integer, DwellException> of(DwellException batch) {
        Map<Integer, List<Map<String, Object>>> faults = new TreeMap<>();
        for (Fields fault : new Fields(batch.problem()).objects("errors")) {
            Matcher pointer = POINTER.matcher(String.valueOf(fault.text("pointer")));
            if (pointer.matches()) {
                Map<String, Object> own = new LinkedHashMap<>(fault.map());
                own.put("pointer", pointer.group(2) == null ? "" : pointer.group(2));
                faults.computeIfAbsent(Integer.valueOf(pointer.group(1)), n -> new ArrayList<>())
                        .add(own);
            }
        }
        Map<Integer, DwellException> errors = new TreeMap<>();
        faults.forEach((place, own) -> errors.put(place, error(batch, own)));
        return errors;
    }

    /** As the broker would refuse the message alone. */
    private static DwellException error(DwellException batch, List<Map<String, Object>> faults) {
        Map<String, Object> problem = new LinkedHashMap<>(batch.problem());
        Fields first = new Fields(faults.get(0));
        String pointer = first.text("pointer");
        String field =
                pointer.isEmpty() ? "" : "`" + pointer.substring(1).replace('/', '.') + "`: ";
        problem.put("detail", field + first.text("detail"));
        problem.put("errors", faults);
        problem.remove("more_errors");
        return DwellException.of(batch.status(), new Fields(problem));
    }
}
