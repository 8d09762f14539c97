//! The errors: types of problems, codes of fields and refusals of receipts, from the code that answers them.

use dwell::api::http::problem_types;
use dwell::delivery::Verdict;
use dwell::model::error::Fault;

use super::table;

const HEAD: &str = "\
# Errors

This page lists every error that dwell answers, with what to do. Each is `application/problem+json`
([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)):

```json
{\"type\": \"urn:dwell:error:invalid\", \"title\": \"Invalid request\", \"status\": 422,
 \"detail\": \"`delay`: \\\"-5s\\\" is negative; expected a duration like \\\"30s\\\", \\\"1h30m\\\", \\\"30d\\\" or \\\"PT30M\\\"\",
 \"errors\": [{\"pointer\": \"/delay\", \"code\": \"format\", \"detail\": \"\\\"-5s\\\" is negative\"}],
 \"request_id\": \"01JH…\"}
```

Programs switch on `type`, which is stable. People read `detail`, which names the field and may change. `errors` lists everything
that is wrong with a body, at most 100 fields. `request_id` is the header `Dwell-Request-Id` of the answer, and the log of the
broker has it.

The HTTP parser answers two errors without a body: 400 for bytes that are not HTTP, and 431 for a header that is too large.

## Types

Each type begins with `urn:dwell:error:`. \"Applied\" says whether the request may have changed something.

";

const CODES: &str = "
## Codes of fields

`code` in `errors` is one of these. Beside it, `pointer` (a JSON pointer into the body), `parameter` or `header` names the place,
and `line` the line of an NDJSON body.

";

const RECEIPTS: &str = "
## Verdicts on receipts

`ack`, `nack`, `release` and `extend` answer one verdict for each receipt. A verdict that does not count has a `reason`. A request with one
receipt answers such a verdict as a problem; a request with several answers 200, so read the verdicts.

";

pub(super) fn page() -> String {
    let types = problem_types().into_iter().map(|problem| {
        let applied = if problem.perhaps_applied { "perhaps" } else { "no" };
        [format!("`{}`", problem.name), problem.statuses, applied.to_owned(), problem.remedy.to_owned()]
    });
    let types: Vec<_> = types.collect();
    let codes: Vec<_> = Fault::ALL.map(|fault| [format!("`{}`", fault.code()), fault.meaning().to_owned()]).into();
    let counted = [Verdict::Acked, Verdict::Nacked, Verdict::Released, Verdict::Buried, Verdict::Pending].into_iter();
    let verdicts = counted.chain(Verdict::REFUSALS).map(|verdict| {
        let reason = verdict.reason().map(|reason| format!("`{reason}`")).unwrap_or_default();
        [format!("`{}`", verdict.name()), reason, format!("{}.", capital(verdict.detail()))]
    });
    let verdicts: Vec<_> = verdicts.collect();
    let types = table(["type", "status", "applied", "what to do"], &types);
    let codes = table(["code", "meaning"], &codes);
    let verdicts = table(["status", "reason", "meaning"], &verdicts);
    format!("{HEAD}{types}{}{codes}{}{verdicts}", CODES.trim_start(), RECEIPTS.trim_start())
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
