/** Reports what failed, the figures of the stories, and one line at the end. */

export default async function* reporter(source) {
  const counts = { pass: 0, fail: 0 };
  for await (const { type, data } of source) {
    if (type === "test:stdout" || type === "test:stderr") yield data.message;
    // A file is reported as a test around those that it has.
    if (type === "test:pass" && data.nesting === 0 && !data.name.endsWith(".mjs")) counts.pass++;
    if (type === "test:fail") {
      counts.fail++;
      const { cause, message } = data.details.error;
      yield `FAIL ${data.name}: ${cause?.stack ?? cause ?? message}\n`;
    }
  }
  yield `${counts.pass} passed, ${counts.fail} failed\n`;
}
