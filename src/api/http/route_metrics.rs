//! The series of routes, which are there before the first request.

use utoipa::openapi::OpenApi;

use crate::telemetry::metrics::HttpMetrics;

/// The route of paths that are none.
pub(super) const UNMATCHED: &str = "unmatched";

/// The codes of failures that alerts look for.
const FAILURES: [&str; 3] = ["500", "503", "504"];

/// Gives every route its series: its successes, as the document has them, and the failures that are no client's.
pub(super) fn expect(metrics: &HttpMetrics, document: &OpenApi) {
    for (route, item) in &document.paths.paths {
        let operations = [&item.get, &item.put, &item.post, &item.delete, &item.patch];
        let codes = operations.into_iter().flatten().flat_map(|operation| operation.responses.responses.keys());
        let successes = codes.map(String::as_str).filter(|code| code.starts_with('2'));
        metrics.expect(route, successes.chain(FAILURES));
    }
    metrics.expect(UNMATCHED, ["404"]);
}
