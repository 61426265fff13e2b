//! Sessions that drift, that lie and that compute wrong, by what they answer.

#![allow(clippy::unwrap_used)]

use hone_driver::Prescription;
use hone_search::Class;

use super::trust::{Trust, Verdict};
use crate::tune::protocol::{Measured, Trials};

/// A round of two candidates of a program.
fn asked(program: &str) -> Trials {
    let candidate = Prescription { template: "plain".to_owned(), choices: Vec::new() };
    Trials {
        program: program.to_owned(),
        digest: program.to_owned(),
        candidates: vec![candidate; 2],
        seconds: 1.0,
        least: vec![100.0; 2],
    }
}

/// What a session answers on which the schedule without tuning takes so many nanoseconds.
fn took(untuned: f64) -> Vec<Measured> {
    let of = |ratio: f64| Measured {
        class: Class::Ok,
        nanoseconds: Some(untuned * ratio),
        ratio: Some((ratio, ratio, ratio)),
        cause: None,
    };
    vec![of(0.5), of(1.25)]
}

fn failed(class: Class) -> Vec<Measured> {
    vec![Measured::failed(class, ""); 2]
}

/// Judges an answer and takes it down, as a search does; whether it fitted.
fn fits(trust: &mut Trust, session: &str, asked: &Trials, found: &[Measured]) -> bool {
    let fits = trust.judge(session, asked, found) == Verdict::Fits;
    if fits {
        trust.fits(session, asked, found);
    }
    fits
}

#[test]
fn times_that_move_beyond_the_budget_are_not_used() {
    let mut trust = Trust::new(0.1);
    assert!(fits(&mut trust, "a", &asked("p"), &took(1000.0)));
    for time in [1090.0, 920.0] {
        assert!(fits(&mut trust, "a", &asked("p"), &took(time)), "{time}");
    }
    for time in [1150.0, 800.0, 90_000.0] {
        let verdict = trust.judge("a", &asked("p"), &took(time));
        assert!(matches!(&verdict, Verdict::Doubt(why) if why.contains("drift")), "{verdict:?}");
    }
    // One that comes back is believed; three doubts in a row are too many.
    assert!(!trust.doubt("a", "drift") && !trust.doubt("a", "drift"));
    assert!(fits(&mut trust, "a", &asked("p"), &took(1000.0)));
    assert!(!trust.doubt("a", "drift") && !trust.doubt("a", "drift") && trust.doubt("a", "drift"));
    assert_eq!(trust.aside("a"), Some("drift"));
    trust.forget("a");
    assert_eq!(trust.aside("a"), None);
}

#[test]
fn a_program_that_is_new_on_a_session_is_probed() {
    let mut trust = Trust::new(0.1);
    assert!(fits(&mut trust, "a", &asked("p"), &took(1000.0)));
    let Verdict::Probe(probe) = trust.judge("a", &asked("q"), &took(5000.0)) else {
        panic!("it is not probed");
    };
    assert_eq!((probe.digest.as_str(), probe.candidates.len(), probe.least.len()), ("p", 1, 1));
    assert!(probe.seconds < 1.0);
    // The session has drifted meanwhile, which the new program does not show and the probe does.
    let verdict = trust.judge("a", &probe, &took(3000.0)[..1]);
    assert!(matches!(verdict, Verdict::Doubt(_)), "{verdict:?}");
    assert_eq!(trust.judge("a", &probe, &took(1010.0)[..1]), Verdict::Fits);
}

#[test]
fn sessions_of_one_kind_agree() {
    let mut trust = Trust::new(0.1);
    assert!(fits(&mut trust, "a", &asked("p"), &took(1000.0)));
    assert!(fits(&mut trust, "b", &asked("p"), &took(1180.0)), "within twice the budget");
    let verdict = trust.judge("c", &asked("p"), &took(300.0));
    assert!(matches!(&verdict, Verdict::Doubt(why) if why.contains("others")), "{verdict:?}");
    // What one says that is set aside counts for nothing.
    trust.set_aside("a", "drift");
    trust.set_aside("b", "drift");
    assert!(fits(&mut trust, "c", &asked("p"), &took(300.0)));
}

#[test]
fn times_that_no_machine_has_are_not_used() {
    let trust = Trust::new(10.0);
    for time in [20.0, 0.0, -1.0, f64::NAN] {
        let verdict = trust.judge("a", &asked("p"), &took(time));
        assert!(matches!(&verdict, Verdict::Doubt(why) if why.contains("cannot be")), "{time}");
    }
    assert_eq!(trust.judge("a", &asked("p"), &took(60.0)), Verdict::Fits);
}

#[test]
fn wrong_answers_are_the_sessions_fault_where_a_probe_is_wrong_too() {
    let mut trust = Trust::new(0.1);
    // From the start: nothing is known.
    for class in [Class::WrongResult, Class::Timeout, Class::DeviceLost] {
        assert!(matches!(trust.judge("a", &asked("p"), &failed(class)), Verdict::Doubt(_)));
    }
    // Code that cannot be made is no session's fault.
    assert!(fits(&mut trust, "a", &asked("p"), &failed(Class::CompileError)));
    assert!(fits(&mut trust, "b", &asked("p"), &took(1000.0)));
    let verdict = trust.judge("a", &asked("q"), &failed(Class::WrongResult));
    let Verdict::Probe(probe) = verdict else { panic!("{verdict:?}") };
    let wrong = failed(Class::WrongResult);
    assert!(matches!(trust.judge("a", &probe, &wrong[..1]), Verdict::Doubt(_)));
    assert_eq!(trust.judge("a", &probe, &took(1000.0)[..1]), Verdict::Fits);
}
