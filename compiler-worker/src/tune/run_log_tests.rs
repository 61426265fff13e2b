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
