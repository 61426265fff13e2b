//! Every alert can fire, by `promtool test rules`, and has its section in the runbook.
//!
//! Without promtool the first is left out and says so; `HONE_PROMTOOL=required` makes that a failure, another value is
//! the program's path.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_yaml::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The rules as Prometheus gets them: braces that Helm hands on are strings inside of Helm's own braces.
fn rules() -> String {
    let text = std::fs::read_to_string(root().join("charts/hone/files/alerts.yaml")).unwrap();
    let plain = text.replace("{{ \"{{", "{{").replace("}}\" }}", "}}");
    assert!(!plain.contains("\"{{") && !plain.contains("{{ \""), "{plain}");
    plain
}

fn alerts() -> Vec<String> {
    let groups: Value = serde_yaml::from_str(&rules()).unwrap();
    let rules = groups
        .as_sequence()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_sequence().unwrap());
    rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

fn cases() -> String {
    std::fs::read_to_string(root().join("tests/alerts/alerts.test.yaml")).unwrap()
}

#[test]
fn every_alert_has_a_case_in_which_it_fires_and_a_section_in_the_runbook() {
    let cases: Value = serde_yaml::from_str(&cases()).unwrap();
    let tests = cases["tests"].as_sequence().unwrap().iter();
    let asserted = tests.flat_map(|test| test["alert_rule_test"].as_sequence().unwrap());
    let fires = |case: &&Value| !case["exp_alerts"].as_sequence().unwrap().is_empty();
    let fired: Vec<&str> =
        asserted.filter(fires).map(|case| case["alertname"].as_str().unwrap()).collect();
    let runbook = std::fs::read_to_string(root().join("docs/kubernetes/runbook.md")).unwrap();
    let sections: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts = alerts();
    assert!(alerts.len() > 8, "{alerts:?}");
    for alert in &alerts {
        assert!(fired.contains(&alert.as_str()), "no case of tests/alerts makes {alert} fire");
        assert!(
            sections.contains(&alert.as_str()),
            "docs/kubernetes/runbook.md has no section {alert}"
        );
    }
    for section in sections {
        assert!(
            alerts.iter().any(|alert| alert == section),
            "the runbook has {section}, which is no alert"
        );
    }
}

/// The program, where there is one.
fn promtool() -> Option<PathBuf> {
    let given = std::env::var("HONE_PROMTOOL").ok().filter(|word| word != "required");
    let path = given.map_or_else(|| PathBuf::from("/usr/bin/promtool"), PathBuf::from);
    path.exists().then_some(path)
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let Some(promtool) = promtool() else {
        let required = std::env::var("HONE_PROMTOOL").is_ok_and(|word| word == "required");
        assert!(!required, "there is no promtool: cargo xtask setup --tests installs it");
        eprintln!("left out: there is no promtool (cargo xtask setup --tests installs it)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let groups: String = rules().lines().map(|line| format!("  {line}\n")).collect();
    std::fs::write(folder.path().join("rules.yaml"), format!("groups:\n{groups}")).unwrap();
    // What the annotations say is for people: only labels are compared, so the cases get the rules without them.
    let mut stripped: Value = serde_yaml::from_str(&format!("groups:\n{groups}")).unwrap();
    for group in stripped["groups"].as_sequence_mut().unwrap() {
        for rule in group["rules"].as_sequence_mut().unwrap() {
            rule.as_mapping_mut().unwrap().remove("annotations").unwrap();
        }
    }
    std::fs::write(folder.path().join("cases.yaml"), cases()).unwrap();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&promtool).args(arguments).current_dir(folder.path()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    };
    run(&["check", "rules", "rules.yaml"]);
    std::fs::write(folder.path().join("rules.yaml"), serde_yaml::to_string(&stripped).unwrap())
        .unwrap();
    run(&["test", "rules", "cases.yaml"]);
}
