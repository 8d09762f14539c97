//! The alert rules: Prometheus takes them, each has a runbook and stories in which it fires and does not, and no metric
//! was forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use dwell::broker::{CAUSES, ConcernKind, WITHOUT_ALERT};
use dwell::model::error::Result;

use super::{boards, grafana, queries, read};
use crate::support::failed;

const RUNBOOKS: &str = include_str!("../../../../docs/operate/runbooks.md");
const MONITOR: &str = include_str!("../../../../docs/how-to/monitor.md");
const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
const RULES: &str = include_str!("../../../../grafana/prometheus/rules.yml");
const STORIES: &str = concat!(
    include_str!("../../../../grafana/prometheus/rules_test.yml"),
    include_str!("../../../../grafana/prometheus/rules_test_hours.yml")
);

/// Metrics that neither a panel nor a rule uses, on purpose.
const UNUSED: [(&str, &str); 5] = [
    ("dwell_brokers", "how many there should be differs from fleet to fleet: a panel would only draw a line"),
    ("dwell_restore_seconds", "losses are rare: one figure for each stands in the log of the day"),
    ("dwell_spans_total", "only with trace.otlp_endpoint; the log says when the receiver does not take spans"),
    ("process_threads", "a matter of the runtime; their number says nothing of health"),
    ("process_virtual_memory_bytes", "address space costs nothing; what does is process_resident_memory_bytes"),
];

/// The incidents that `make incidents` plays.
const INCIDENTS: [&str; 6] = [
    include_str!("incidents/brokers.rs"),
    include_str!("incidents/consumers.rs"),
    include_str!("incidents/cron.rs"),
    include_str!("incidents/losses.rs"),
    include_str!("incidents/redis.rs"),
    include_str!("incidents/topics.rs"),
];

/// Alerts that no incident plays on real processes, each with the reason. Their stories are for promtool.
const NOT_PLAYED: [(&str, &str); 5] = [
    ("DwellDiskFailed", "a disk that fails needs a file system of its own; the suite plays it by a full one"),
    ("DwellDiskLow", "a disk with less than 512 MiB needs a file system of its own"),
    (
        "DwellWalOldRecords",
        "records have to be 5 minutes old by the clock of the broker, which an incident does not wait for",
    ),
    ("DwellWalDamaged", "the suite damages logs; a broker counts a damage only in the second in which it starts"),
    ("DwellNoStatsCollector", "a broker that is scraped counts, so no real fleet is without a count"),
];

/// Programs whose commands the runbooks have.
const PROGRAMS: [&str; 11] = [
    "chronyc",
    "df",
    "dmesg",
    "dwell",
    "journalctl",
    "kubectl",
    "openssl",
    "redis-cli",
    "systemctl",
    "timedatectl",
    "ulimit",
];

/// Commands that no incident types, each with the reason.
const NOT_TYPED: [(&str, &str); 8] = [
    ("chronyc tracking", "it asks the service of the machine that sets its clock"),
    ("df", "it is about the machine"),
    ("dmesg", "it is about the machine"),
    ("dwell serve --adopt", "it does not end; the suite plays it where a log belongs to another Redis"),
    ("journalctl -u dwell", "it asks the systemd of the machine"),
    ("kubectl logs --previous", "it asks a cluster"),
    ("systemctl status dwell", "it asks the systemd of the machine"),
    ("timedatectl", "it asks the systemd of the machine"),
];

/// The commands that the runbooks have: the heading under which each stands, and the command in one line.
pub(super) fn commands() -> Vec<(&'static str, String)> {
    let (mut heading, mut commands, mut prose) = ("", Vec::new(), String::new());
    let mut add = |heading: &'static str, prose: &str| {
        for span in prose.split('`').skip(1).step_by(2) {
            let words: Vec<&str> = span.split_whitespace().collect();
            let is_command = words.len() > 1 || words.first().is_some_and(|word| *word != "dwell");
            if is_command && words.first().is_some_and(|word| PROGRAMS.contains(word)) {
                commands.push((heading, words.join(" ")));
            }
        }
    };
    let mut is_block = false;
    for line in RUNBOOKS.lines() {
        is_block ^= line.starts_with("```");
        if let Some(next) = line.strip_prefix('#').filter(|_| !is_block) {
            add(heading, &prose);
            (heading, prose) = (next.trim_start_matches('#').trim(), String::new());
        } else if !is_block && !line.starts_with("```") {
            prose = prose + line + "\n";
        }
    }
    add(heading, &prose);
    commands
}

/// A source without what rustfmt may change.
fn dense(source: &str) -> String {
    source.split_whitespace().collect::<String>().replace(",)", ")")
}

/// Each command of a runbook is typed in an incident, so that it does what the page says. [`commands`] tells an incident
/// that types something else.
#[test]
fn every_command_of_a_runbook_is_typed_in_an_incident() {
    let incidents = INCIDENTS.map(dense).concat();
    let commands = commands();
    assert!(commands.len() > 50, "{commands:?}");
    let is_typed = |(runbook, command): &&(&str, String)| {
        let typed = dense(&format!("\"{runbook}\", \"{command}\""));
        incidents.contains(&typed)
    };
    let exempt = |command: &str| NOT_TYPED.iter().any(|(not, reason)| *not == command && !reason.is_empty());
    let is_played = |runbook: &str| NOT_PLAYED.iter().all(|(alert, _)| *alert != runbook);
    let missing: Vec<_> =
        commands.iter().filter(|command| is_played(command.0) && !is_typed(command) && !exempt(&command.1)).collect();
    assert!(missing.is_empty(), "no incident types {missing:#?}");
    let needless: Vec<_> = NOT_TYPED.iter().filter(|(not, _)| commands.iter().all(|(_, it)| it != not)).collect();
    assert!(needless.is_empty(), "no runbook has {needless:?}");
}

/// Each alert is fired by an incident on real processes, or there is a reason.
#[test]
fn every_alert_is_played_or_has_a_reason() {
    let incidents = INCIDENTS.map(dense).concat();
    let lists = incidents.split(".fires(&[").skip(1).filter_map(|rest| rest.split(']').next());
    let played: BTreeSet<&str> = lists.flat_map(|list| list.split('"').skip(1).step_by(2)).collect();
    let names: BTreeSet<&str> = alerts().iter().map(|alert| alert.name).collect();
    assert!(played.is_subset(&names), "{:?}", played.difference(&names));
    let not_played: BTreeSet<&str> = NOT_PLAYED.iter().map(|(alert, _)| *alert).collect();
    assert_eq!(names.difference(&played).copied().collect::<BTreeSet<_>>(), not_played);
    assert!(NOT_PLAYED.iter().all(|(_, reason)| !reason.is_empty()));
}

/// An alert as it stands in the rules.
struct Alert {
    name: &'static str,
    /// All of it.
    text: &'static str,
}

fn alerts() -> Vec<Alert> {
    let parts = RULES.split("- alert: ").skip(1);
    parts.filter_map(|text| Some(Alert { name: text.lines().next()?, text })).collect()
}

/// What promtool says to this, and that it has nothing against it.
fn promtool(arguments: &[&str], file: &str) -> Result<String> {
    let mut command = Command::new("promtool");
    command.args(arguments).arg(grafana(file)).current_dir(grafana("prometheus"));
    let output =
        command.output().map_err(failed("promtool, of Debian's package prometheus; `make tools` installs it"))?;
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "promtool {arguments:?} {file}: {said}");
    Ok(said)
}

#[test]
fn promtool_accepts_rules_and_configuration() -> Result<()> {
    let said = promtool(&["check", "rules"], "prometheus/rules.yml")?;
    let count = RULES.matches("- alert: ").count() + RULES.matches("- record: ").count();
    assert!(said.contains(&format!("{count} rules found")), "{said}");
    promtool(&["check", "config"], "prometheus/prometheus.yml")?;
    Ok(())
}

#[test]
fn alert_unit_tests_pass() -> Result<()> {
    promtool(&["test", "rules"], "prometheus/rules_test.yml")?;
    promtool(&["test", "rules"], "prometheus/rules_test_hours.yml").map(drop)
}

/// A story that expects nothing of an alert would pass without the alert.
#[test]
fn every_alert_has_a_firing_and_a_silent_test() {
    let mut told: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (_, rest) in STORIES.match_indices("alertname: ").map(|(at, found)| (at, &STORIES[at + found.len()..])) {
        let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let (silent, fires) = told.entry(name).or_default();
        match rest[name.len()..].trim_start_matches([',', '\n', ' ']) {
            expected if expected.starts_with("exp_alerts: []") => *silent += 1,
            expected => *fires += usize::from(expected.starts_with("exp_alerts:\n")),
        }
    }
    let names: BTreeSet<&str> = alerts().iter().map(|alert| alert.name).collect();
    assert_eq!(told.keys().copied().collect::<BTreeSet<_>>(), names);
    let half: Vec<_> = told.iter().filter(|(_, (silent, fires))| *silent == 0 || *fires == 0).collect();
    assert!(half.is_empty(), "silent, fires: {half:?}");
}

#[test]
fn every_alert_has_a_summary_and_a_runbook() {
    let chapter =
        RUNBOOKS.split("\n## Alerts\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    let runbooks: BTreeMap<&str, &str> =
        chapter.split("\n### ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let alerts = alerts();
    assert_eq!(alerts.iter().map(|alert| alert.name).collect::<BTreeSet<_>>(), runbooks.keys().copied().collect());
    for Alert { name, text } in alerts {
        let field = |field: &str| text.lines().find_map(|line| line.trim().strip_prefix(field));
        assert!(matches!(field("severity: "), Some("critical" | "warning")), "{name}");
        assert!(field("summary: ").is_some() && field("description: ").is_some(), "{name}");
        let base = "{{ with $externalLabels.runbook_page }}{{ . }}{{ else }}";
        let page = format!("'{base}{}{{{{ end }}}}#{}'", boards::RUNBOOKS, name.to_lowercase());
        assert_eq!(field("runbook_url: "), Some(page.as_str()), "{name}");
        for part in ["**Means**: ", "**Check**: ", "**Do**: "] {
            assert!(runbooks[name].contains(part), "the runbook of {name} has no {part}");
        }
    }
}

/// The example for Alertmanager names alerts that there are. `make incidents` asks amtool about the rest of it.
#[test]
fn alertmanager_example_names_existing_alerts() -> Result<()> {
    let example = read(&grafana("prometheus/alertmanager.yml"))?;
    let names: BTreeSet<&str> = alerts().iter().map(|alert| alert.name).collect();
    let code = example.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
    let named: BTreeSet<&str> = words.filter(|word| word.starts_with("Dwell")).collect();
    assert!(named.len() > 10 && named.is_subset(&names), "{:?}", named.difference(&names));
    Ok(())
}

/// Alerts and `dwell attention` have one list of causes, which has all of both.
#[test]
fn alerts_and_attention_have_one_list_of_causes() {
    let listed: BTreeMap<&str, &str> = CAUSES.iter().map(|cause| (cause.alert, cause.severity.name())).collect();
    assert_eq!(listed.len(), CAUSES.len());
    let mut fired: BTreeMap<&str, &str> = BTreeMap::new();
    for Alert { name, text } in alerts() {
        let severity = text.lines().find_map(|line| line.trim().strip_prefix("severity: ")).unwrap_or_default();
        // The critical one comes first.
        fired.entry(name).or_insert(severity);
    }
    assert_eq!(listed, fired);
    for kind in ConcernKind::ALL {
        let reason = WITHOUT_ALERT.iter().find(|(without, _)| *without == kind);
        assert_eq!(kind.alert().is_none(), reason.is_some_and(|(_, reason)| !reason.is_empty()), "{}", kind.name());
    }
}

/// Tests that make a broker need attention.
const ATTENTION: [&str; 8] = [
    include_str!("incidents/brokers.rs"),
    include_str!("incidents/consumers.rs"),
    include_str!("incidents/cron.rs"),
    include_str!("incidents/losses.rs"),
    include_str!("incidents/redis.rs"),
    include_str!("incidents/topics.rs"),
    include_str!("../overview.rs"),
    include_str!("../../../../src/broker/attention.rs"),
];

/// Each kind of concern is that of a test, which names it as clients see it.
#[test]
fn every_kind_of_concern_has_a_test() {
    // The names themselves stand before the tests.
    let tests = ATTENTION.map(|source| source.split_once("\nmod tests {").map_or(source, |(_, tests)| tests)).concat();
    let names = ConcernKind::ALL.map(ConcernKind::name);
    let missing: Vec<_> = names.into_iter().filter(|name| !tests.contains(&format!("\"{name}\""))).collect();
    assert!(missing.is_empty(), "no test makes a broker need attention for {missing:?}");
}

/// What is promised is the same in the rules, in the panels and on the page.
#[test]
fn slo_thresholds_agree_in_rules_panels_and_docs() {
    let bucket = format!("dwell_lateness_asked_seconds_bucket{{le=\"{}\"}}", boards::ON_TIME_SECONDS);
    assert_eq!(RULES.matches("- record: group:dwell_late").count(), RULES.matches(&bucket).count());
    let promises = [("group:dwell_late", boards::LATE_PART), ("instance:dwell_pushes_failed", boards::FAILED_PART)];
    for (ratio, budget) in promises {
        for (burn, long, short) in boards::BURN_RATES {
            let limit = f64::round(burn * budget * 1e6) / 1e6;
            let of = |window: &str| format!("{ratio}:ratio_rate{window} > {limit}");
            let condition = format!("({} and {})\n", of(long), of(short));
            assert_eq!(RULES.matches(&condition).count(), 1, "{condition}");
        }
    }
    let ms = boards::ON_TIME_SECONDS * 1e3;
    for page in [RUNBOOKS, RULES] {
        assert!(page.contains(&format!("99 of 100 come within {ms} ms")) && page.contains("999 of 1,000 are accepted"));
    }
}

/// Whether an expression uses a metric, or the parts of a histogram.
fn uses(expression: &str, metric: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut words = expression.split(|c: char| !part(c));
    words.any(|word| word.strip_prefix(metric).is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end)))
}

#[test]
fn every_metric_is_on_a_dashboard_or_exempt() -> Result<()> {
    let row = |line: &'static str| line.strip_prefix("| `")?.split('`').next();
    let names = METRICS.lines().filter_map(row);
    let metrics: BTreeSet<_> =
        names.filter(|name| name.starts_with("dwell_") || name.starts_with("process_")).collect();
    assert!(metrics.len() > 30, "{metrics:?}");
    let words = ["#", "summary:", "description:"];
    let rules = RULES.lines().filter(|line| !words.iter().any(|word| line.trim().starts_with(word)));
    let panels = queries::all()?.into_iter().map(|query| query.expression);
    let expressions: Vec<String> = panels.chain(rules.map(str::to_owned)).collect();
    let unused: BTreeSet<_> =
        metrics.into_iter().filter(|metric| !expressions.iter().any(|expression| uses(expression, metric))).collect();
    assert_eq!(unused, UNUSED.iter().map(|(metric, _)| *metric).collect());
    assert!(UNUSED.iter().all(|(_, reason)| !reason.is_empty()));
    Ok(())
}

/// What Grafana is told to read is where the page says it is.
#[test]
fn grafana_provisioning_paths_exist() -> Result<()> {
    let source = read(&grafana("provisioning/datasources/dwell.yml"))?;
    let folder = read(&grafana("provisioning/dashboards/dwell.yml"))?;
    assert!(source.contains("type: prometheus") && source.contains("url: $PROMETHEUS_URL"));
    let path = folder.lines().find_map(|line| line.trim().strip_prefix("path: ")).unwrap_or_default();
    assert!(path.starts_with('/') && MONITOR.contains(&format!("`{path}`")), "{path}");
    assert!(MONITOR.contains("`PROMETHEUS_URL`"));
    Ok(())
}
