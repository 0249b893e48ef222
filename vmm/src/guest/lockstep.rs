//! Several guests on one clock.
//!
//! Each guest has a clock of its own that only its instructions and its sleep move. Here they go forward
//! together, one after the other, each by at most [`STEP`] before the next has its turn: so a frame that one
//! sends reaches another at most a step later than the link alone would have it, and a run depends on nothing
//! but the guests and their input. While all of them sleep, time jumps to the first event of any.

use nicvisor_core::{Duration, Time};

/// Something that runs by its own clock, up to a given time.
pub trait Clocked {
    /// Why it cannot go on.
    type Ending;

    /// Its time.
    fn now(&self) -> Time;

    /// Runs until `until`, or until there is something to tell before.
    ///
    /// # Errors
    /// When it has come to its end.
    fn run_until(&mut self, until: Time) -> Result<Turn, Self::Ending>;

    /// When something happens to it next while it sleeps.
    fn next_event(&self) -> Option<Time>;

    /// Lets time pass while it sleeps, at most up to its next event.
    fn skip_to(&mut self, time: Time);
}

/// Why [`Clocked::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is something to tell.
    News,
    /// It sleeps until its next event, or until something comes from outside if there is none.
    Asleep,
    /// The time has come.
    Reached,
}

/// Lets time pass for all of `guests`, until one has something to tell or all have reached `until`. Returns
/// whether somebody has something to tell.
///
/// # Errors
/// The index of the guest that has ended, and how.
pub fn advance<G: Clocked>(guests: &mut [G], until: Time) -> Result<bool, (usize, G::Ending)> {
    let alone = guests.len() == 1;
    loop {
        let Some(now) = guests.iter().map(Clocked::now).min() else { return Ok(false) };
        if now >= until {
            return Ok(false);
        }
        let end = if alone { until } else { until.min(now + STEP) };
        let mut news = false;
        let mut all_asleep = true;
        for (index, guest) in guests.iter_mut().enumerate() {
            match run_to(guest, end).map_err(|ending| (index, ending))? {
                Rest::News => news = true,
                Rest::Busy => all_asleep = false,
                Rest::Asleep => {}
            }
        }
        if news {
            return Ok(true);
        }
        if all_asleep {
            // Asked only now: what one sent in this step may wake another.
            let first_event = guests.iter().filter_map(Clocked::next_event).fold(until, Time::min);
            guests.iter_mut().for_each(|guest| guest.skip_to(first_event));
        }
    }
}

/// How a guest ended its step.
enum Rest {
    News,
    Busy,
    Asleep,
}

/// Gives `guest` its step. One that has something to tell ends it early, and catches up next time.
fn run_to<G: Clocked>(guest: &mut G, end: Time) -> Result<Rest, G::Ending> {
    while guest.now() < end {
        match guest.run_until(end)? {
            Turn::News => return Ok(Rest::News),
            Turn::Reached => return Ok(Rest::Busy),
            Turn::Asleep => match guest.next_event() {
                Some(next) if next <= end => guest.skip_to(next),
                _ => {
                    guest.skip_to(end);
                    return Ok(Rest::Asleep);
                }
            },
        }
    }
    Ok(Rest::Busy)
}

/// How far one guest may be ahead of another.
pub const STEP: Duration = Duration::from_micros(10);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    /// When each guest of a group is woken from outside.
    type Mail = Rc<RefCell<BTreeMap<(usize, Time), usize>>>;

    /// A guest that sleeps, except for the moments at which it writes to the other one.
    struct Paper {
        index: usize,
        now: Time,
        writes: Vec<Time>,
        mail: Mail,
        seen: Vec<(Time, usize)>,
    }

    impl Clocked for Paper {
        type Ending = String;

        fn now(&self) -> Time {
            self.now
        }

        fn run_until(&mut self, until: Time) -> Result<Turn, String> {
            if self.now.as_nanos() == 1_000_000_000 {
                return Err("the end".into());
            }
            let Some(next) = self.next_event().filter(|next| *next <= self.now) else {
                return Ok(if self.now >= until { Turn::Reached } else { Turn::Asleep });
            };
            if self.writes.first() == Some(&next) {
                self.writes.remove(0);
                self.mail.borrow_mut().insert((1 - self.index, self.now + DELAY), self.index);
                return Ok(Turn::Asleep);
            }
            let from = self.mail.borrow_mut().remove(&(self.index, next));
            self.seen.push((self.now, from.unwrap()));
            Ok(Turn::News)
        }

        fn next_event(&self) -> Option<Time> {
            let mail = self.mail.borrow();
            let letter = mail.keys().find(|(to, _)| *to == self.index).map(|(_, due)| *due);
            letter.into_iter().chain(self.writes.first().copied()).min()
        }

        fn skip_to(&mut self, time: Time) {
            self.now = self.now.max(time);
        }
    }

    fn pair(writes: [Vec<u64>; 2]) -> Vec<Paper> {
        let mail = Mail::default();
        let paper = |(index, mut writes): (usize, Vec<u64>)| {
            writes.sort_unstable();
            writes.dedup();
            let writes = writes.into_iter().map(Time::from_nanos).collect();
            Paper { index, now: Time::ZERO, writes, mail: mail.clone(), seen: Vec::new() }
        };
        writes.into_iter().enumerate().map(paper).collect()
    }

    fn run(guests: &mut [Paper], until: Time) -> usize {
        let mut news = 0;
        while advance(guests, until).unwrap() {
            news += 1;
        }
        news
    }

    #[test]
    fn sleep_is_skipped_and_the_end_of_one_names_it() {
        let mut guests = pair([vec![], vec![]]);
        assert_eq!(run(&mut guests, Time::from_nanos(999_000_000)), 0);
        assert_eq!(guests[0].now, guests[1].now);
        guests[1].now = Time::from_nanos(1_000_000_000);
        guests[0].now = Time::from_nanos(999_999_999);
        let ending = advance(&mut guests, Time::from_nanos(2_000_000_000)).unwrap_err();
        assert_eq!(ending, (1, "the end".to_owned()));
    }

    proptest! {
        #[test]
        fn every_letter_arrives_within_a_step_and_the_same_way_each_time(
            first in proptest::collection::vec(0u64..500_000, 0..20),
            second in proptest::collection::vec(0u64..500_000, 0..20),
        ) {
            let once = || {
                let mut guests = pair([first.clone(), second.clone()]);
                let letters: usize = guests.iter().map(|guest| guest.writes.len()).sum();
                let written: Vec<Vec<Time>> = guests.iter().map(|guest| guest.writes.clone()).collect();
                run(&mut guests, Time::from_nanos(900_000_000));
                let seen: Vec<Vec<(Time, usize)>> = guests.iter().map(|guest| guest.seen.clone()).collect();
                (letters, written, seen)
            };
            let (letters, written, seen) = once();
            prop_assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), letters);
            for (reader, seen) in seen.iter().enumerate() {
                for ((at, _), sent) in seen.iter().zip(&written[1 - reader]) {
                    let due = *sent + DELAY;
                    prop_assert!(*at >= due && *at <= due + STEP, "{at:?} for {due:?}");
                }
            }
            prop_assert_eq!(once().2, seen);
        }
    }

    const DELAY: Duration = Duration::from_micros(2);
}
