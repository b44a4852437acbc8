//! The checker of histories is not one that accepts everything.

use std::time::Duration;

use super::history::{Asked, Operation, check};

fn operation(asked: Asked, called: u64, answered: Option<u64>) -> Operation {
    let at = Duration::from_millis;
    Operation { key: "k".to_owned(), asked, called: at(called), answered: answered.map(at) }
}

#[test]
fn a_history_with_one_lost_write_is_rejected() {
    let mut history = vec![
        operation(Asked::Write(1), 0, Some(5)),
        operation(Asked::Write(2), 6, Some(9)),
        operation(Asked::Read(Some(2)), 10, Some(12)),
    ];
    assert_eq!(check(&history), Ok(()));
    history[2].asked = Asked::Read(Some(1));
    assert!(check(&history).is_err(), "the second write was acknowledged, and is lost");
    // Nobody knows of the second write: it may have happened, or not.
    history[1].answered = None;
    assert_eq!(check(&history), Ok(()));
    history[2].asked = Asked::Read(Some(2));
    assert_eq!(check(&history), Ok(()));
    history.push(operation(Asked::Read(Some(1)), 13, Some(14)));
    assert!(check(&history).is_err(), "it was read, and is lost");
}

#[test]
fn a_long_history_that_is_right_is_accepted_and_one_with_a_single_lost_write_in_it_is_not() {
    let mut history = Vec::new();
    for turn in 0..500 {
        let mut write = operation(Asked::Write(turn + 1), turn * 10, Some(turn * 10 + 4));
        let mut read = operation(Asked::Read(Some(turn + 1)), turn * 10 + 5, Some(turn * 10 + 8));
        write.key = format!("k{}", turn / 4);
        read.key.clone_from(&write.key);
        history.extend([write, read]);
    }
    assert_eq!(check(&history), Ok(()));
    // The write before is lost: what was there before it is read.
    history[501].asked = Asked::Read(Some(250));
    assert!(check(&history).is_err());
}
