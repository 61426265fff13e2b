//! The logs of other runs that a run starts from.

use std::collections::{BTreeMap, BTreeSet};

use hone_artifact::request::Destination;
use hone_crds::TuningRun;
use hone_crds::common::Log;
use hone_crds::tuning_run::WarmStart;

use crate::broker::pools::NamespaceView;
use crate::children::manifest::CREDENTIALS;
use crate::children::names::SHARE_RECORDS_LABEL;

/// Most logs that a run starts from: the latest.
const MOST: usize = 16;

/// Whether `object` may start from the log of `other`: one of its namespace, and with `Fleet` also one of a namespace that the
/// administrator shares.
pub fn is_readable(
    object: &TuningRun,
    other: &TuningRun,
    namespaces: &BTreeMap<String, NamespaceView>,
) -> bool {
    let shared = || {
        let view = other.metadata.namespace.as_ref().and_then(|name| namespaces.get(name));
        let label = view.and_then(|view| view.labels.get(SHARE_RECORDS_LABEL));
        label.is_some_and(|value| value == "true")
    };
    let same = object.metadata.namespace == other.metadata.namespace;
    match object.spec.search.warm_start {
        WarmStart::None => false,
        WarmStart::Namespace => same,
        WarmStart::Fleet => same || shared(),
    }
}

/// The logs of `others`, runs that may be learned from, that have begun to search for the platform of `object`.
pub fn logs<'a>(object: &TuningRun, others: impl Iterator<Item = &'a TuningRun>) -> Vec<Log> {
    let platform = |run: &TuningRun| (run.spec.target.os.clone(), run.spec.target.arch.clone());
    let started =
        |run: &TuningRun| run.status.as_ref().and_then(|status| status.start_time.clone());
    let mut runs: Vec<_> = others
        .filter(|run| run.metadata.uid != object.metadata.uid && platform(run) == platform(object))
        .filter_map(|run| Some((started(run)?, run)))
        .collect();
    let name = |run: &TuningRun| run.metadata.name.clone();
    runs.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| name(one).cmp(&name(other))));
    let mut seen = BTreeSet::from([object.spec.log.uri.trim_end_matches('/')]);
    let logs = runs.into_iter().map(|(_, run)| &run.spec.log);
    logs.filter(|log| seen.insert(log.uri.trim_end_matches('/'))).take(MOST).cloned().collect()
}

/// The Secrets of logs, each once: the folder's name and the Secret's.
pub fn secrets(logs: &[Log]) -> Vec<(String, String)> {
    let names: BTreeSet<&str> = logs.iter().filter_map(secret).collect();
    let number = |(index, name): (usize, &str)| (format!("earlier-{index}"), name.to_owned());
    names.into_iter().enumerate().map(number).collect()
}

/// Where a worker finds the logs.
pub fn destinations(logs: &[Log]) -> Vec<Destination> {
    let secrets = secrets(logs);
    let folder = |name: &str| {
        let (use_, _) = secrets.iter().find(|(_, secret)| secret == name)?;
        Some(format!("{CREDENTIALS}/{use_}"))
    };
    let destination =
        |log: &Log| Destination { uri: log.uri.clone(), credentials: secret(log).and_then(folder) };
    logs.iter().map(destination).collect()
}

fn secret(log: &Log) -> Option<&str> {
    log.credentials_secret_ref.as_ref().map(|secret| secret.name.as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A run that began `started` minutes after midnight, or did not, with its log.
    fn run(name: &str, arch: &str, started: Option<u32>, uri: &str) -> TuningRun {
        let start = started.map(|minute| format!("2026-01-01T00:{minute:02}:00Z"));
        let status = json!({"phase": "Running", "startTime": start});
        serde_json::from_value(json!({
            "apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun",
            "metadata": {"name": name, "namespace": "team", "uid": name},
            "spec": {
                "model": {"uri": "s3://m/x.onnx"}, "target": {"os": "linux", "arch": arch}, "pool": "cpus",
                "stop": {"maxTrials": 1}, "log": {"uri": uri, "credentialsSecretRef": {"name": name}},
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_latest_of_the_platform_come_first_and_each_log_once() {
        let this = run("this", "amd64", Some(9), "s3://log/this");
        let mut others = vec![
            this.clone(),
            run("early", "amd64", Some(1), "s3://log/early"),
            run("late", "amd64", Some(8), "s3://log/late"),
            run("other-platform", "arm64", Some(7), "s3://log/arm"),
            run("waits", "amd64", None, "s3://log/waits"),
            run("again", "amd64", Some(2), "s3://log/late/"),
            run("same-log", "amd64", Some(3), "s3://log/this"),
        ];
        let uris = |others: &[TuningRun]| {
            logs(&this, others.iter()).into_iter().map(|log| log.uri).collect::<Vec<_>>()
        };
        assert_eq!(uris(&others), ["s3://log/late", "s3://log/early"]);
        others.extend(
            (10..50).map(|m| run(&format!("r{m}"), "amd64", Some(m), &format!("s3://l/{m}"))),
        );
        let found = uris(&others);
        assert_eq!(
            (found.len(), found[0].as_str(), found[15].as_str()),
            (16, "s3://l/49", "s3://l/34")
        );
    }

    #[test]
    fn only_namespaces_that_the_administrator_shares_are_read() {
        let view = |value: Option<&str>| {
            let labels = value.map(|value| (SHARE_RECORDS_LABEL.to_owned(), value.to_owned()));
            NamespaceView { labels: labels.into_iter().collect(), terminating: false }
        };
        let namespaces = BTreeMap::from([
            ("team".to_owned(), view(None)),
            ("shared".to_owned(), view(Some("true"))),
            ("private".to_owned(), view(Some("false"))),
            ("plain".to_owned(), view(None)),
        ]);
        let readable = |warm_start| {
            let mut object = run("this", "amd64", Some(1), "s3://l/1");
            object.spec.search.warm_start = warm_start;
            let of = |namespace: &&str| {
                let mut other = run("other", "amd64", Some(1), "s3://l/2");
                other.metadata.namespace = Some((*namespace).to_owned());
                is_readable(&object, &other, &namespaces)
            };
            ["team", "shared", "private", "plain", "unknown"]
                .into_iter()
                .filter(of)
                .collect::<Vec<_>>()
        };
        assert_eq!(readable(WarmStart::None), [""; 0]);
        assert_eq!(readable(WarmStart::Namespace), ["team"]);
        assert_eq!(readable(WarmStart::Fleet), ["team", "shared"]);
    }

    #[test]
    fn logs_of_one_secret_share_a_folder() {
        let mut found = vec![run("b", "amd64", Some(1), "s3://l/1").spec.log];
        found.push(run("a", "amd64", Some(1), "s3://l/2").spec.log);
        found.push(run("b", "amd64", Some(1), "s3://l/3").spec.log);
        found.push(Log { uri: "file://./l".to_owned(), credentials_secret_ref: None });
        let pair = |use_: &str, name: &str| (use_.to_owned(), name.to_owned());
        assert_eq!(secrets(&found), [pair("earlier-0", "a"), pair("earlier-1", "b")]);
        let folders: Vec<_> = destinations(&found)
            .into_iter()
            .map(|own| own.credentials.unwrap_or_default())
            .collect();
        let folder = |use_: &str| format!("{CREDENTIALS}/{use_}");
        assert_eq!(
            folders,
            [folder("earlier-1"), folder("earlier-0"), folder("earlier-1"), String::new()]
        );
    }
}
