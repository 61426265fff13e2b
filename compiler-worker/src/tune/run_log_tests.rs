#![allow(clippy::unwrap_used)]
use super::*;

/// A line of a trial, told apart by its time.
fn line(time: u64, class: &str) -> String {
    format!(
        "{{\"schema\":1,\"kind\":\"trial\",\"time\":{time},\"program\":\"p\",\"target\":\"t\",\"machine\":\"m\",\
         \"threads\":1,\"template\":\"rows\",\"decisions\":[],\"class\":\"{class}\"}}\n"
    )
}

/// A store, and the folder of a worker of its own each time.
struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn open(&self, worker: &str) -> Result<RunLog> {
        let place = Destination::Folder(self.0.path().join("log"));
        RunLog::open(place, &self.0.path().join(worker), "own.jsonl", 1 << 20)
    }

    fn measure(&self, worker: &str, lines: &str) {
        let path = self.0.path().join(worker).join("own.jsonl");
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
    }

    fn segment(&self, number: u64) -> String {
        let path = self.0.path().join("log").join(segment_name(number));
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

#[test]
fn whole_lines_become_segments_and_the_next_worker_has_them() {
    let store = Store::new();
    let log = store.open("one").unwrap();
    log.flush().unwrap();
    assert_eq!(log.report(), TuningReport::default(), "an empty log has no segment");
    let (first, second) = (line(1, "Ok"), line(2, "Timeout"));
    store.measure("one", &format!("{first}{second}{}", &first[..40]));
    log.flush().unwrap();
    assert_eq!(store.segment(1), format!("{first}{second}"), "half a line waits for its end");
    assert_eq!((log.report().measured, log.report().failed), (1, 1));
    store.measure("one", &first[40..]);
    log.flush().unwrap();
    assert_eq!(store.segment(2), first);
    assert_eq!(log.report().digest, Some(sha256(first.as_bytes())));

    let next = store.open("two").unwrap();
    assert_eq!(next.report().segment, Some(2));
    let (records, skipped) = read_folder(&store.0.path().join("two")).unwrap();
    assert!(records.len() == 3 && skipped.is_empty(), "{records:?}");
    store.measure("two", &line(4, "Ok"));
    next.flush().unwrap();
    assert_eq!(store.segment(3), line(4, "Ok"));
}

/// What both measured is in the log, and the one that came late is told.
#[test]
fn another_writer_is_noticed_and_nothing_is_lost() {
    let store = Store::new();
    let (one, two) = (store.open("one").unwrap(), store.open("two").unwrap());
    store.measure("one", &line(1, "Ok"));
    store.measure("two", &line(2, "Ok"));
    one.flush().unwrap();
    let refused = two.flush().unwrap_err();
    assert_eq!(refused.reason, Reason::StorageFault);
    assert!(refused.chain().contains("a log of its own"), "{}", refused.chain());
    assert_eq!((store.segment(1), store.segment(2)), (line(1, "Ok"), line(2, "Ok")));
    two.flush().unwrap();
    assert!(store.segment(3).is_empty(), "nothing is written twice");
}

/// As after a write whose answer was lost.
#[test]
fn a_segment_that_is_there_already_is_no_conflict() {
    let store = Store::new();
    let (one, two) = (store.open("one").unwrap(), store.open("two").unwrap());
    for (worker, log) in [("one", &one), ("two", &two)] {
        store.measure(worker, &line(1, "Ok"));
        log.flush().unwrap();
    }
    assert!(store.segment(2).is_empty());
}

#[test]
fn a_log_of_another_version_is_refused() {
    let store = Store::new();
    let folder = store.0.path().join("log/segments");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("00000001.jsonl"), "{\"schema\":0}\n").unwrap();
    let refused = store.open("one").unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidInput);
    assert!(refused.chain().contains("schema 0"), "{}", refused.chain());
}

#[test]
fn a_log_that_is_too_large_is_refused() {
    let store = Store::new();
    let log = store.open("one").unwrap();
    store.measure("one", &line(1, "Ok").repeat(10_000));
    log.flush().unwrap();
    let refused = store.open("two").unwrap_err();
    assert_eq!(refused.reason, Reason::TooLarge);
}

#[test]
fn what_is_kept_before_the_end_is_written_at_once() {
    use super::super::confirm::Verdict;
    let store = Store::new();
    let log = store.open("one").unwrap();
    let mut outcome = Outcome { trials: 16, ..Outcome::default() };
    store.measure("one", &line(1, "Ok").repeat(16));
    log.round(&outcome).unwrap();
    assert_eq!((log.report().measured, log.report().best), (16, None));
    // One more round would wait for others.
    store.measure("one", &line(2, "Ok"));
    outcome.trials = 17;
    log.round(&outcome).unwrap();
    assert_eq!(store.segment(2), "");
    let whole = Verdict {
        before: 1000,
        after: 900,
        ratio: 0.9,
        interval: (0.88, 0.92),
        runs: 9,
        tried: 0,
        lost: 0,
    };
    store.measure("one", &line(3, "Ok").replace("trial", "winner"));
    outcome = Outcome { whole: Some(whole), tuned: 1, revisions: 1, ..outcome };
    log.round(&outcome).unwrap();
    assert!(store.segment(2).contains("winner"), "{}", store.segment(2));
    let report = log.report();
    assert_eq!((report.best, report.untuned, report.winners), (Some(900), Some(1000), 1));
    assert_eq!((report.segment, report.ended), (Some(2), None));
    // The next worker, and whoever reads the store meanwhile, know it, too.
    assert_eq!(store.open("two").unwrap().report().best, Some(900));
}
