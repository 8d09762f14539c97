//! Every cause for an operator to act: the alert that Prometheus fires for it, and the kind of concern that `dwell attention`
//! has for it. A test compares the list with grafana/prometheus/rules.yml.

use Severity::{Critical, Warning};

use super::attention::ConcernKind;
use crate::model::spelling::names;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Somebody has to act now: messages are lost, refused or not delivered.
    Critical,
    Warning,
}

names! { Severity::name: Critical => "critical", Warning => "warning" }

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenBy {
    /// Also a broker by itself, which has this concern.
    Broker(ConcernKind),
    /// Only Prometheus, for this reason.
    Prometheus(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The alert, and the heading of its runbook.
    pub alert: &'static str,
    /// The highest severity of the alert.
    pub severity: Severity,
    pub seen_by: SeenBy,
}

const fn here(alert: &'static str, severity: Severity, kind: ConcernKind) -> Cause {
    Cause { alert, severity, seen_by: SeenBy::Broker(kind) }
}

const fn elsewhere(alert: &'static str, severity: Severity, reason: &'static str) -> Cause {
    Cause { alert, severity, seen_by: SeenBy::Prometheus(reason) }
}

const PAST: &str =
    "it is about what was counted before, which a broker does not keep; the message or the log has the reason";

/// All alerts. Of several for one concern the most usual comes first: `dwell attention` names that.
pub const CAUSES: [Cause; 36] = [
    here("DwellDown", Critical, ConcernKind::BrokerGone),
    elsewhere("DwellCrashLoop", Critical, "a broker does not know of its starts before"),
    elsewhere("DwellBrokerLost", Critical, "nobody else knows what is on the disk of a broker that is gone"),
    here("DwellRedisDown", Critical, ConcernKind::Degraded),
    here("DwellRedisRefuses", Critical, ConcernKind::Degraded),
    here("DwellRedisEvicts", Critical, ConcernKind::Evicting),
    here("DwellRedisMemory", Warning, ConcernKind::MemoryFilling),
    elsewhere("DwellRedisLosses", Critical, PAST),
    here("DwellRestoring", Critical, ConcernKind::Restoring),
    elsewhere("DwellRepairs", Critical, PAST),
    here("DwellPushesFail", Critical, ConcernKind::NotReady),
    here("DwellDiskFailed", Critical, ConcernKind::NotReady),
    here("DwellLate", Critical, ConcernKind::Late),
    elsewhere("DwellUnasked", Warning, "it is about messages that were delivered"),
    here("DwellBacklogGrows", Warning, ConcernKind::NoConsumer),
    here("DwellBlocked", Warning, ConcernKind::Blocked),
    here("DwellPaused", Warning, ConcernKind::Paused),
    here("DwellDeadLetters", Warning, ConcernKind::DeadLetters),
    elsewhere("DwellDeadLettersDropped", Warning, PAST),
    here("DwellExpired", Warning, ConcernKind::Expired),
    here("DwellRetryStorm", Warning, ConcernKind::RetryStorm),
    here("DwellWebhookFails", Warning, ConcernKind::RetryStorm),
    elsewhere("DwellTimedOut", Warning, PAST),
    elsewhere("DwellSettleRefused", Warning, PAST),
    elsewhere("DwellRemoteFails", Warning, PAST),
    here("DwellCronFailed", Warning, ConcernKind::CronFailed),
    elsewhere("DwellCronMissed", Warning, PAST),
    here("DwellWalFilling", Warning, ConcernKind::WalFilling),
    here("DwellWalOldRecords", Warning, ConcernKind::Degraded),
    elsewhere("DwellWalDamaged", Critical, PAST),
    here("DwellDiskLow", Critical, ConcernKind::DiskLow),
    elsewhere("DwellLeasesLost", Warning, PAST),
    here("DwellClockOffset", Warning, ConcernKind::ClockOffset),
    here("DwellOpenFiles", Warning, ConcernKind::OpenFiles),
    elsewhere("DwellNoStatsCollector", Warning, "the counts are for Prometheus"),
    elsewhere("DwellCertificateEnds", Warning, "`dwell doctor` and the log of the start say it"),
];

/// Concerns without an alert, each with the reason.
pub const WITHOUT_ALERT: [(ConcernKind, &str); 1] =
    [(ConcernKind::Unreadable, "no metric names a topic whose keys are damaged; the log does")];

impl ConcernKind {
    /// The alert for this concern, and the heading of its runbook.
    pub fn alert(self) -> Option<&'static str> {
        CAUSES.iter().find(|cause| cause.seen_by == SeenBy::Broker(self)).map(|cause| cause.alert)
    }
}
