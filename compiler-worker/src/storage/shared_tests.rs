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
    // It is found by its owner, whose status may name another artifact later.
    assert_eq!(owned(&place, "two").unwrap(), ["a.hone"]);
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
}

/// Two compilations that are deleted together, the first of which names the second as its heir: whichever clean-up ends
/// first, nothing stays.
#[test]
fn who_has_given_it_up_inherits_from_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path());
    let heirs = ["two".to_owned()];
    let nothing_left = || {
        let left = ["a.hone", "a.hone.owners"].map(|name| folder.path().join(name).exists());
        assert_eq!(left, [false, false]);
    };
    // An owner, as after it was adopted, or one that only names it.
    for owns in [true, false] {
        store(&place, "one");
        if owns {
            enter(&place, "a.hone", "two").unwrap();
        }
        assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Kept);
        assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Deleted);
        nothing_left();
    }
    // An earlier try of the clean-up had made the entry of its heir, and came too late to make it an owner.
    store(&place, "one");
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Kept);
    place.overwrite(&entry("two", "a.hone"), b"").unwrap();
    assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Deleted);
    assert!(owned(&place, "two").unwrap().is_empty());
    nothing_left();
    // The artifact is gone with the last owner before the other, who never was one, names its heir.
    store(&place, "two");
    assert_eq!(give_up(&place, "a.hone", "two", &[]).unwrap(), GivenUp::Deleted);
    assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Deleted);
    nothing_left();
    // Nor does it take out who is about to store it.
    enter(&place, "a.hone", "three").unwrap();
    assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Kept);
    let (bytes, _) = place.versioned("a.hone.owners").unwrap().unwrap();
    assert_eq!(read("a.hone", &bytes).unwrap().owners, ["three"]);
    assert_eq!(give_up(&place, "a.hone", "three", &[]).unwrap(), GivenUp::Deleted);
    // Who comes back owns it, and can inherit it again.
    store(&place, "one");
    give_up(&place, "a.hone", "two", &[]).unwrap();
    enter(&place, "a.hone", "two").unwrap();
    assert_eq!(give_up(&place, "a.hone", "one", &heirs).unwrap(), GivenUp::Kept);
    assert_eq!(owned(&place, "two").unwrap(), ["a.hone"]);
}

#[test]
fn as_many_as_may_be_under_way_are_remembered() {
    let mut owners = Owners { owners: vec!["one".to_owned()], ..Owners::default() };
    for number in 0..=REMEMBERED {
        owners.hand_over(&format!("uid-{number}"), &[]);
    }
    assert_eq!(owners.gave_up.len(), REMEMBERED);
    owners.hand_over("one", &["uid-0".to_owned(), "uid-2".to_owned()]);
    assert_eq!(owners.owners, ["uid-0"]);
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
