//! What a scenario must not contradict, whatever machine it runs on.

mod end;
mod network;
mod step;

use std::ops::Range;

use crate::model::{Bound, Scenario};
use crate::tree::{Wrong, nearest};

/// Whether the scenario makes sense in itself.
pub(crate) fn check(scenario: &Scenario) -> Result<(), Wrong> {
    check_guests(scenario)?;
    network::check(scenario)?;
    step::check(scenario)?;
    end::check(scenario)
}

fn check_guests(scenario: &Scenario) -> Result<(), Wrong> {
    if let Some(third) = scenario.guest.get(MOST_GUESTS) {
        return Err(Wrong::new(third.span(), "a scenario has at most two guests", "leave one out"));
    }
    if scenario.guest.len() < 2 {
        return Ok(());
    }
    for (index, guest) in scenario.guest.iter().enumerate() {
        let Some(name) = &guest.get_ref().name else {
            return Err(Wrong::new(guest.span(), "each of two guests needs a name", "add name = \"left\""));
        };
        if scenario.guest_index(Some(name.get_ref())) != Some(index) {
            return Err(Wrong::new(name.span(), "both guests have this name", "choose another one"));
        }
    }
    Ok(())
}

/// Whether a guest's name is that of a guest.
fn check_guest(scenario: &Scenario, name: Option<&toml::Spanned<String>>) -> Result<(), Wrong> {
    let Some(name) = name else { return Ok(()) };
    if scenario.guest_index(Some(name.get_ref())).is_some() {
        return Ok(());
    }
    let known: Vec<String> = (0..scenario.guest_count()).map(|index| scenario.guest_name(index)).collect();
    Err(unknown(name.span(), "guest", name.get_ref(), known.iter().map(String::as_str)))
}

/// Whether a bound can hold at all.
fn check_bound(span: Range<usize>, bound: &Bound) -> Result<(), Wrong> {
    match bound.is_possible() {
        true => Ok(()),
        false => Err(Wrong::new(span, format!("no number {bound}"), "swap or change the bounds")),
    }
}

/// `word` is not one of the `known` things of a kind.
pub(crate) fn unknown<'a>(
    span: Range<usize>,
    kind: &str,
    word: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Wrong {
    let help = match nearest(word, known.clone()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => match known.collect::<Vec<_>>() {
            none if none.is_empty() => "there is none".into(),
            all => format!("there are {}", all.join(", ")),
        },
    };
    Wrong::new(span, format!("there is no {kind} {word}"), help)
}

/// Names that go into the guest's shell.
fn check_word(span: Range<usize>, what: &str, word: &str, longest: usize) -> Result<(), Wrong> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !word.is_empty() && word.len() <= longest && word.chars().all(good) && !word.starts_with(['-', '.']) {
        return Ok(());
    }
    let help = format!("use letters, digits, - and _, {longest} at most");
    Err(Wrong::new(span, format!("{word:?} cannot be the name of {what}"), help))
}

/// The link of NICs that name none.
const DEFAULT_LINK: &str = "lan";
/// Linux: IFNAMSIZ without the final zero.
const LONGEST_INTERFACE: usize = 15;
const LONGEST_NAME: usize = 64;
const MOST_GUESTS: usize = 2;
