/** The context of the active span of OpenTelemetry, if that is installed. */

type Carrier = Record<string, string>;
type Telemetry = { context: { active(): unknown }; propagation: { inject(context: unknown, carrier: Carrier): void } };

let telemetry: Promise<Telemetry | undefined> | undefined;
let found: Telemetry | undefined;

/** `traceparent` and `tracestate` of the active span. */
export function trace(): Carrier {
  const carrier: Carrier = {};
  found?.propagation.inject(found.context.active(), carrier);
  return Object.fromEntries(Object.entries(carrier).filter(([key]) => key === "traceparent" || key === "tracestate"));
}

/** Resolves once it is known whether OpenTelemetry is installed. */
export function traceReady(): Promise<unknown> {
  const name = "@opentelemetry/api";
  telemetry ??= (import(name) as Promise<Telemetry>).then((api) => (found = api), () => undefined);
  return telemetry;
}
