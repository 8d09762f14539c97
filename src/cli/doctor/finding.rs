//! One line of a check-up.

use serde::Serialize;

use crate::cli::output;

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// Nothing to do.
    Ok,
    /// Not checked: it does not apply here, or could not be looked at.
    Skip,
    /// It works, and something of it can lose, delay or refuse messages one day.
    Warn,
    /// It loses, delays or refuses messages, or will when what it is for happens.
    Fail,
}

/// What was looked at, what was found and what to do. The names of the fields are the JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) status: Status,
    pub(super) found: String,
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, status: Status::Ok, found: found.into(), advice: None }
    }

    pub(super) fn skip(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, status: Status::Skip, found: found.into(), advice: None }
    }

    pub(super) fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, status: Status::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { check, status: Status::Fail, found: found.into(), advice: Some(advice.into()) }
    }

    /// The same, of one of several nodes.
    pub(super) fn at(self, location: &str) -> Finding {
        Finding { found: format!("{location}: {}", self.found), ..self }
    }
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Skip => "skip",
            Status::Warn => "warn",
            Status::Fail => "fail",
        }
    }
}

/// How many findings have a status.
pub(super) fn count(findings: &[Finding], status: Status) -> usize {
    findings.iter().filter(|finding| finding.status == status).count()
}

/// A line for each finding, one more for what to do, and a sum.
pub(super) fn shown(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        vec![format!("{:4}", finding.status.name()), finding.check.to_owned(), finding.found.clone()]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    let table = output::columns(&rows, &[]);
    let indent = " ".repeat(6 + findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0) + 2);
    let mut lines = Vec::new();
    for (line, finding) in table.lines().zip(findings) {
        lines.push(line.to_owned());
        lines.extend(finding.advice.iter().map(|advice| format!("{indent}→ {advice}")));
    }
    let sum = |status: Status| format!("{} {}", count(findings, status), status.name());
    lines.push([Status::Fail, Status::Warn, Status::Skip, Status::Ok].map(sum).join(", "));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_below_what_was_found() {
        let findings = [
            Finding::ok("a", "fine"),
            Finding::skip("b", "absent"),
            Finding::warn("longer", "so-so", "repair it").at("here:1"),
        ];
        let text = "ok    a       fine\nskip  b       absent\nwarn  longer  here:1: so-so\n              → repair it\n0 fail, 1 warn, 1 skip, 1 ok";
        assert_eq!(shown(&findings), text);
    }
}
