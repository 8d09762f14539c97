//! Metrics of the process, of its HTTP requests and webhooks, and of exported spans.
//!
//! Processor time, memory and open files are read from `/proc` at each scrape, under the usual names. The collector of the
//! prometheus crate is not used: its CPU time counts whole seconds.

use std::time::Duration;

use prometheus::{Counter, Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::Maker;
use crate::model::error::Result;
use crate::platform::clock::{self, Clock};

#[derive(Debug)]
pub struct ProcessMetrics {
    /// Not a number when the file system cannot tell.
    pub data_dir_free: Gauge,
    pub cron_jobs_failed: IntGauge,
    pub brokers: IntGauge,
    /// One series for each certificate that clients are shown, named by its file.
    pub certificate_end: IntGaugeVec,
    cpu: Counter,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
    open_files: IntGauge,
    files_max: Gauge,
}

impl ProcessMetrics {
    pub(super) fn new(make: &Maker) -> Result<ProcessMetrics> {
        let info = make.gauges("dwell_build_info", &["version"], "always 1")?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let started = make.measure(
            "process_start_time_seconds",
            "when the process started, in seconds since 1970 on the local clock",
        )?;
        started.set(Clock::System.now().as_ms() as f64 / 1_000.0);
        Ok(ProcessMetrics {
            data_dir_free: make.measure(
                "dwell_data_dir_free_bytes",
                "bytes that are free on the disk of `data_dir`; below 64 MiB dwell stores no more pushes there",
            )?,
            cron_jobs_failed: make.gauge(
                "dwell_cron_jobs_failed",
                "cron jobs of all topics that have no next time, because this broker cannot read or compute them",
            )?,
            brokers: make.gauge(
                "dwell_brokers",
                "brokers that share the store, also those without consumers, as the store said within the last 15 s",
            )?,
            certificate_end: make.gauges(
                "dwell_certificate_end_timestamp_seconds",
                &["file"],
                "when the certificate of `tls.cert_file` ends, in seconds since 1970; of a chain the one that ends first",
            )?,
            cpu: make.seconds("process_cpu_seconds_total", "CPU time of the process, user and system")?,
            resident: make.gauge("process_resident_memory_bytes", "memory of the process in RAM. Linux only")?,
            virtual_memory: make.gauge("process_virtual_memory_bytes", "address space of the process. Linux only")?,
            threads: make.gauge("process_threads", "threads of the process. Linux only")?,
            open_files: make
                .gauge("process_open_fds", "files that the process has open, sockets among them. Linux only")?,
            files_max: make
                .measure("process_max_fds", "files that the process may have open; `+Inf` without a limit")?,
        })
    }

    /// How many of the files that it may have it has open, as it was observed last; `None` without a limit.
    pub fn open_files_percent(&self) -> Option<u64> {
        let (open, most) = (self.open_files.get(), self.files_max.get());
        (most.is_finite() && most >= 1.0).then(|| (open as f64 * 100.0 / most) as u64)
    }

    pub fn observe(&self) {
        self.cpu.inc_by((clock::cpu_time().as_secs_f64() - self.cpu.get()).max(0.0));
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.files_max.set(files.map_or(f64::INFINITY, |files| files as f64));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (gauge, name, unit) in [
            (&self.resident, "VmRSS:", 1_024),
            (&self.virtual_memory, "VmSize:", 1_024),
            (&self.threads, "Threads:", 1),
        ] {
            if let Some(number) = number_of(&status, name) {
                gauge.set(number.saturating_mul(unit));
            }
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the directory itself.
            let open = files.count().saturating_sub(1);
            self.open_files.set(i64::try_from(open).unwrap_or(i64::MAX));
        }
    }
}

fn number_of(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[derive(Debug)]
pub struct SpanMetrics {
    pub exported: IntCounter,
    pub failed: IntCounter,
    pub dropped: IntCounter,
}

impl SpanMetrics {
    pub(super) fn new(make: &Maker) -> Result<SpanMetrics> {
        let spans = make.counters(
            "dwell_spans_total",
            &["outcome"],
            "spans of traces: `exported`, `failed` (the receiver did not take them), `dropped` (too many waited)",
        )?;
        let outcome = |name| spans.with_label_values(&[name]);
        Ok(SpanMetrics { exported: outcome("exported"), failed: outcome("failed"), dropped: outcome("dropped") })
    }
}

/// Seconds: from an answer out of memory to the longest wait of a long poll, 60 s, with what it takes beside.
const REQUEST_BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 20.0, 30.0, 65.0];

/// Seconds: from a local answer to the longest sensible timeout.
const POST_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0];

#[derive(Debug)]
pub struct HttpMetrics {
    pub connections: IntGauge,
    requests: IntCounterVec,
    seconds: HistogramVec,
    posts: IntCounterVec,
    post_seconds: HistogramVec,
}

impl HttpMetrics {
    pub(super) fn new(make: &Maker) -> Result<HttpMetrics> {
        Ok(HttpMetrics {
            connections: make.gauge("dwell_http_connections", "open HTTP connections")?,
            requests: make.counters(
                "dwell_http_requests_total",
                &["route", "code"],
                "HTTP requests answered; `route` is a pattern, never a path. Each route has its successes, 500, 503 and 504 from \
                 the start",
            )?,
            seconds: make.histograms(
                "dwell_http_request_seconds",
                &["route"],
                &REQUEST_BUCKETS,
                "how long HTTP requests took; a long poll counts its wait",
            )?,
            posts: make.counters(
                "dwell_webhook_requests_total",
                &["topic", "group", "outcome"],
                "POSTs of webhooks, by how they ended: `ok`, `gone`, `refused`, `timed_out`, `failed`. No series without a \
                 webhook",
            )?,
            post_seconds: make.histograms(
                "dwell_webhook_request_seconds",
                &["topic", "group"],
                &POST_BUCKETS,
                "how long POSTs of webhooks took, to the end of the answer. No series without a webhook",
            )?,
        })
    }

    pub fn expect<'a>(&self, route: &str, codes: impl IntoIterator<Item = &'a str>) {
        for code in codes {
            self.requests.with_label_values(&[route, code]);
        }
        self.seconds.with_label_values(&[route]);
    }

    pub fn request(&self, route: &str, code: u16, took: Duration) {
        self.requests.with_label_values(&[route, &code.to_string()]).inc();
        self.seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    pub fn webhook(&self, topic: &str, group: &str, outcomes: &[&str]) -> WebhookMetrics {
        for outcome in outcomes {
            self.posts.with_label_values(&[topic, group, outcome]);
        }
        let posts = self.posts.clone();
        let seconds = self.post_seconds.with_label_values(&[topic, group]);
        WebhookMetrics { labels: [topic.to_owned(), group.to_owned()], posts, seconds }
    }
}

#[derive(Debug)]
pub struct WebhookMetrics {
    labels: [String; 2],
    posts: IntCounterVec,
    seconds: Histogram,
}

impl WebhookMetrics {
    pub fn post(&self, outcome: &str, took: Duration) {
        self.posts.with_label_values(&[self.labels[0].as_str(), &self.labels[1], outcome]).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_status_fields_are_read_by_name() {
        let status = "Name:\tdwell\nVmSize:\t  205032 kB\nVmRSS:\t   31204 kB\nThreads:\t7\n";
        assert_eq!(number_of(status, "VmRSS:"), Some(31_204));
        assert_eq!(number_of(status, "Threads:"), Some(7));
        assert_eq!(number_of(status, "VmSwap:"), None);
    }
}
