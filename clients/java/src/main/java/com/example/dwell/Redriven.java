package com.example.dwell;

/**
 * The outcome of a redrive.
 *
 * @param redriven dead letters that are ready again
 * @param matching how many would be; 0 unless it was a dry run
 */
public record Redriven(long redriven, long matching) {}
