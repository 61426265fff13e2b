#![allow(clippy::unwrap_used)]
use std::path::Path;

use super::*;
use crate::storage::{Access, Guard, Places};

fn place(folder: &std::path::Path) -> Destination {
    let access = Access { places: Places::at(folder), guard: Guard::default(), limit: 1 << 20 };
    Destination::open(&format!("file://{}", folder.display()), None, &access).unwrap()
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
    assert_eq!(owned(&place, "one").unwrap(), ["a.hone"]);
    assert_eq!(give_up(&place, "a.hone", "one", &[]).unwrap(), GivenUp::Kept);
    assert!(folder.path().join("a.hone").exists() && owned(&place, "one").unwrap().is_empty());
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
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
}

/// A worker that comes while the last owner deletes waits, and stores anew.
#[test]
fn a_tombstone_is_waited_for_until_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let tombstone = Owners { owners: vec![], deleting_until: Some(seconds() + 1) };
    assert!(place.swap("a.hone.owners", &text(&tombstone), None).unwrap());
    store(&place, "new");
    assert!(seconds() > tombstone.deleting_until.unwrap());
    let (bytes, _) = place.versioned("a.hone.owners").unwrap().unwrap();
    assert_eq!(read("a.hone", &bytes).unwrap().owners, ["new"]);
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
    let (bytes, _) = place.versioned("a.hone.owners").unwrap().unwrap();
    let mut owners = read("a.hone", &bytes).unwrap().owners;
    owners.sort();
    assert_eq!(owners, ["uid-1", "uid-3", "uid-5", "uid-7"]);
}
