//! The page `docs/kubernetes/reasons.md`.

use std::fmt::Write;

use hone_artifact::exit_code::{self, ErrorClass};

use super::{Class, Ending, EventType, Row, TABLE};

/// The page of all reasons, as Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "# Reasons\n\nGenerated from the operator's table: `HONE_UPDATE_EXPECT=1 cargo test -p hone-operator --test reasons`.\n\n\
        The words in `status.conditions[].reason`, `status.targets[].failure.reason`, a tuning run's `status.failure.reason` and events.\n\n\
        ## Of the operator\n\n\
        | reason | who acts | condition | event | what follows | meaning |\n|---|---|---|---|---|---|\n",
    );
    for Row(reason, class, condition, event, ending, meaning) in TABLE {
        let class = match class {
            Class::Nobody => "nobody",
            Class::User => "user",
            Class::Administrator => "administrator",
            Class::Project => "project: report a bug",
        };
        let event = match event {
            EventType::None => "",
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let ending = match ending {
            Ending::None => "–".to_owned(),
            Ending::Waits => "waits up to `limits.pendingDeadline`".to_owned(),
            Ending::Fails => "fails at once".to_owned(),
            Ending::FailsAfter(starts) => format!("fails after {starts} starts"),
        };
        let _ = writeln!(
            page,
            "| `{reason}` | {class} | {condition} | {event} | {ending} | {meaning} |"
        );
    }
    page.push_str(
        "\n## Of the workers\n\nA worker's reason stands in the condition `Stalled` and in an event of type Warning.\n\n\
        | reason | who acts | what follows |\n|---|---|---|\n",
    );
    for reason in exit_code::Reason::all() {
        let (class, ending) = match reason.class() {
            None => continue,
            Some(ErrorClass::User) => ("user", "fails at once"),
            Some(ErrorClass::Transient) => ("nobody", "fails after `limits.retries` retries"),
            Some(ErrorClass::Bug) => ("project: report a bug", "fails at once"),
        };
        let _ = writeln!(page, "| `{reason}` | {class} | {ending} |");
    }
    page
}
