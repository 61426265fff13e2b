#![allow(clippy::unwrap_used)]
use std::path::Path;

use super::*;
use crate::storage::{Access, Destination, Guard, Places};

fn place(folder: &std::path::Path) -> Destination {
    let access = Access { places: Places::at(folder), guard: Guard::default(), limit: 1 << 20 };
    Destination::open(&format!("file://{}", folder.display()), None, &access).unwrap()
}

fn seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// What `uid` is entered for.
fn owned(place: &Destination, uid: &str) -> Vec<String> {
    place.list(&index(uid)).unwrap()
}

fn owners(place: &Destination) -> Vec<String> {
    let (bytes, _) = place.versioned("a.hone.owners").unwrap().unwrap();
    read("a.hone", &bytes).unwrap().owners
}

fn store(place: &Destination, uid: &str) {
    enter(place, "a.hone", uid).unwrap();
    // A source that is not there cannot get another name, so that the bytes are written.
    place.create("a.hone", Path::new("/nowhere"), b"code").unwrap();
}

/// B5: two compilations of equal work in one folder; the artifact goes with the last.
#[test]
fn an_artifact_goes_when_its_last_owner_goes() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    store(&place, "one");
    store(&place, "two");
    store(&place, "two");
    assert_eq!(owned(&place, "one"), ["a.hone"]);
    assert_eq!(give_up(&place, "a.hone", "one", &[]).unwrap(), GivenUp::Kept);
    assert!(folder.path().join("a.hone").exists() && owned(&place, "one").is_empty());
    // Who gives up what it does not own changes nothing.
    assert_eq!(give_up(&place, "a.hone", "three", &[]).unwrap(), GivenUp::Kept);
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
    assert!(!folder.path().join("a.hone").exists());
    assert!(!folder.path().join("a.hone.owners").exists());
    // Again, as after a pod that was killed at the end.
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
    assert!(!folder.path().join("a.hone.owners").exists());
}

#[test]
fn who_names_it_without_having_stored_it_inherits() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    store(&place, "one");
    let heirs = ["two".to_owned()];
    assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Kept);
    // It is found by its owner, whose status may name another artifact later.
    assert_eq!(owned(&place, "two"), ["a.hone"]);
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
}

/// A compilation that is another's heir, and is edited and deleted before that one's clean-up is carried out.
#[test]
fn who_has_gone_owns_nothing_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let heirs = ["two".to_owned(), "three".to_owned()];
    store(&place, "one");
    assert!(depart(&place, "two").unwrap().is_empty());
    assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Kept);
    assert_eq!(owners(&place), ["three"]);
    assert!(owned(&place, "two").is_empty());
    // Nor by a worker that was taken for dead.
    assert_eq!(enter(&place, "a.hone", "two").unwrap_err().reason, Reason::Terminated);
    assert!(owned(&place, "two").is_empty());
    assert_eq!(depart(&place, "three").unwrap(), ["a.hone"]);
    assert_eq!(give_up(&place, "a.hone", "three", &[]).unwrap(), GivenUp::Deleted);
    let left = ["a.hone", "a.hone.owners"].map(|name| folder.path().join(name).exists());
    assert_eq!(left, [false, false]);
    // What is gone has no heirs.
    let four = ["four".to_owned()];
    assert_eq!(give_up(&place, "a.hone", "one", &four).unwrap(), GivenUp::Deleted);
    assert!(!folder.path().join("a.hone.owners").exists() && owned(&place, "four").is_empty());
}

/// A worker that had entered its owner when the clean-up began, and stores the artifact when that is over.
#[test]
fn what_is_stored_for_one_that_has_gone_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    store(&place, "one");
    confirm(&place, "a.hone", "one").unwrap();
    assert_eq!(depart(&place, "one").unwrap(), ["a.hone"]);
    assert_eq!(give_up(&place, "a.hone", "one", &[]).unwrap(), GivenUp::Deleted);
    place.create("a.hone", Path::new("/nowhere"), b"code").unwrap();
    assert_eq!(confirm(&place, "a.hone", "one").unwrap_err().reason, Reason::Terminated);
    assert!(!folder.path().join("a.hone").exists());
}

/// Versions before `.owners/gone` wrote these objects, and artifacts before that had none.
#[test]
fn objects_of_earlier_versions_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let earlier = br#"{"owners":["one","two"],"gaveUp":["three"]}"#;
    assert!(place.swap("a.hone.owners", earlier, None).unwrap());
    place.overwrite(".owners/one/a.hone", b"").unwrap();
    place.create("a.hone", Path::new("/nowhere"), b"code").unwrap();
    enter(&place, "a.hone", "four").unwrap();
    assert_eq!(owners(&place), ["one", "two", "four"]);
    for uid in ["one", "four"] {
        assert_eq!(depart(&place, uid).unwrap(), ["a.hone"]);
        assert_eq!(give_up(&place, "a.hone", uid, &[]).unwrap(), GivenUp::Kept);
    }
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
    place.create("a.hone", Path::new("/nowhere"), b"code").unwrap();
    assert_eq!(give_up(&place, "a.hone", "five", &["six".to_owned()]).unwrap(), GivenUp::Kept);
    assert_eq!(owners(&place), ["six"]);
}

/// Two clean-ups at once: the second waits for the first, so that no artifact goes that was stored anew between them.
#[test]
fn one_deletes_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let until = seconds() + 1;
    let tombstone = Owners { deleting_until: Some(until), revision: 1, ..Owners::default() };
    assert!(place.swap("a.hone.owners", &text(&tombstone), None).unwrap());
    place.create("a.hone", Path::new("/nowhere"), b"code").unwrap();
    assert_eq!(give_up(&place, "a.hone", "one", &[]).unwrap(), GivenUp::Deleted);
    assert!(seconds() > until && !folder.path().join("a.hone").exists());
}

/// A worker that comes while the last owner deletes waits, and stores anew.
#[test]
fn a_tombstone_is_waited_for_until_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let tombstone = Owners { deleting_until: Some(seconds() + 1), ..Owners::default() };
    assert!(place.swap("a.hone.owners", &text(&tombstone), None).unwrap());
    store(&place, "new");
    assert!(seconds() > tombstone.deleting_until.unwrap());
    assert_eq!(owners(&place), ["new"]);
}

/// Many at once: at the end exactly those own it who did not give it up.
#[test]
fn owners_that_come_and_go_at_once_are_all_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = folder.path();
            scope.spawn(move || {
                let place = place(path);
                let uid = format!("uid-{number}");
                store(&place, &uid);
                if number % 2 == 0 {
                    give_up(&place, "a.hone", &uid, &[]).unwrap();
                    place.create("b.hone", Path::new("/nowhere"), b"x").unwrap();
                }
            });
        }
    });
    let place = place(folder.path());
    let mut owners = owners(&place);
    owners.sort();
    assert_eq!(owners, ["uid-1", "uid-3", "uid-5", "uid-7"]);
}
