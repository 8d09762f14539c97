//! Queries in the language of Prometheus. Each is narrowed to what is chosen at the top of its dashboard.

/// What the series of a metric are told apart by.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    /// All processes.
    Fleet,
    /// The process alone.
    Process,
    /// The process and a topic.
    Topic,
    /// The process, a topic and a group.
    Group,
}

impl Of {
    fn labels(self) -> &'static str {
        match self {
            Of::Fleet => r#"job=~"$job""#,
            Of::Process => r#"job=~"$job",instance=~"$instance""#,
            Of::Topic => r#"job=~"$job",instance=~"$instance",topic=~"$topic""#,
            Of::Group => r#"job=~"$job",instance=~"$instance",topic=~"$topic",group=~"$group""#,
        }
    }
}

/// The chosen series of a metric. A metric with labels in braces is narrowed to those besides.
pub(crate) fn chosen(metric: &str, of: Of) -> String {
    match metric.strip_suffix('}').and_then(|metric| metric.split_once('{')) {
        Some((metric, labels)) => format!("{metric}{{{},{labels}}}", of.labels()),
        None => format!("{metric}{{{}}}", of.labels()),
    }
}

/// The sum of a gauge, for each value of these labels; of everything if there are none.
pub(crate) fn sum(by: &str, metric: &str, of: Of) -> String {
    over("sum", by, &chosen(metric, of))
}

/// The same of another aggregation, as in `max`.
pub(crate) fn over(aggregation: &str, by: &str, expression: &str) -> String {
    match by {
        "" => format!("{aggregation}({expression})"),
        by => format!("{aggregation} by ({by}) ({expression})"),
    }
}

/// How fast a counter grows, each second.
pub(crate) fn rate(by: &str, metric: &str, of: Of) -> String {
    over("sum", by, &format!("rate({}[$__rate_interval])", chosen(metric, of)))
}

/// How much a counter has grown, for what is so seldom that a rate says nothing.
pub(crate) fn grown(by: &str, metric: &str, of: Of) -> String {
    over("sum", by, &format!("increase({}[$__rate_interval])", chosen(metric, of)))
}

/// A quantile of a histogram.
pub(crate) fn quantile(q: f64, by: &str, metric: &str, of: Of) -> String {
    let by = if by.is_empty() { "le".to_owned() } else { format!("le, {by}") };
    let (name, labels) = metric.find('{').map_or((metric, ""), |at| metric.split_at(at));
    format!("histogram_quantile({q}, {})", rate(&by, &format!("{name}_bucket{labels}"), of))
}

/// A gauge of the store stats, which one broker collects for all: two may export it while one follows the other, and it is still
/// counted once. `own` is the label that the metric has besides topic and group, if any.
pub(crate) fn store_stats(aggregation: &str, by: &str, metric: &str, own: &str) -> String {
    let once = format!("job, topic, group{}{own}", if own.is_empty() { "" } else { ", " });
    let (name, labels) = metric.split_once('{').unwrap_or((metric, "}"));
    let labels = if labels == "}" { labels.to_owned() } else { format!(",{labels}") };
    let chosen = format!(r#"{name}{{job=~"$job",topic=~"$topic",group=~"$group"{labels}"#);
    over(aggregation, by, &over("max", &once, &chosen))
}
