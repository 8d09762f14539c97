/** Signals of callers. One signal may be for any number of calls, so it has one listener for all of them. */

const listeners = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls a function once the signal is aborted. The answer takes the function back. */
export function onAbort(signal: AbortSignal | undefined, listener: () => void): () => void {
  if (!signal) return () => undefined;
  const of = listeners.get(signal) ?? listen(signal);
  of.add(listener);
  return () => void of.delete(listener);
}

function listen(signal: AbortSignal): Set<() => void> {
  const of = new Set<() => void>();
  listeners.set(signal, of);
  const abort = (): void => {
    for (const listener of [...of]) listener();
  };
  signal.addEventListener("abort", abort, { once: true });
  return of;
}
