/**
 * A client of dwell, a delay broker: push messages with a delay, and handle them when they are due.
 *
 * <p>{@link com.example.dwell.Client} pushes, {@link com.example.dwell.Worker} handles, and {@link
 * com.example.dwell.TestBroker} runs a broker for tests.
 */
package com.example.dwell;
