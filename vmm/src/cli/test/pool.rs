//! Independent work side by side, with its results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::super::failure::Failure;
use super::memory::Memory;

/// Work that takes memory.
pub(super) trait Weighty: Sync {
    /// How much, in bytes.
    fn memory(&self) -> u64;
}

/// Does all of `jobs`, at most `workers` at a time (as many as there are CPUs if `None`) and no more than fit
/// the host's memory, and hands the results to `take` in the order of the jobs, as soon as all before are there.
///
/// # Errors
/// The first error in the order of the jobs, or of `take`; no further job is begun after one.
pub(super) fn run<J: Weighty, R: Send>(
    jobs: &[J],
    workers: Option<usize>,
    interrupted: &AtomicBool,
    work: impl Fn(&J) -> Result<R, Failure> + Sync,
    take: &mut dyn FnMut(R) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.unwrap_or_else(cpus).clamp(1, jobs.len().max(1));
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let memory = Memory::of_host();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let sender = sender.clone();
            let (next, stop, memory, work) = (&next, &stop, &memory, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let _held = memory.hold(job.memory());
                    let result = work(job);
                    stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    if sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut turn = 0;
        let mut first_error = None;
        for (index, result) in receiver {
            waiting.insert(index, result);
            while let Some(result) = waiting.remove(&turn) {
                turn += 1;
                if let Err(error) = result.and_then(&mut *take) {
                    stop.store(true, Ordering::Relaxed);
                    first_error.get_or_insert(error);
                }
            }
        }
        // Behind a job that was never begun there may be some that were.
        for result in waiting.into_values() {
            if let Err(error) = result.and_then(&mut *take) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Sleep(u64);

    impl Weighty for Sleep {
        fn memory(&self) -> u64 {
            1
        }
    }

    fn numbers(jobs: &[Sleep], workers: usize, fail_at: Option<usize>) -> (Vec<u64>, bool) {
        let mut seen = Vec::new();
        let work = |job: &Sleep| {
            std::thread::sleep(Duration::from_millis(job.0));
            match fail_at.map(|index| std::ptr::eq(job, &jobs[index])) {
                Some(true) => Err(Failure::Usage("no".into(), String::new())),
                _ => Ok(job.0),
            }
        };
        let result = run(jobs, Some(workers), &AtomicBool::new(false), work, &mut |number| {
            seen.push(number);
            Ok(())
        });
        (seen, result.is_ok())
    }

    #[test]
    fn results_come_in_order_whoever_is_first() {
        let jobs = [Sleep(30), Sleep(1), Sleep(20), Sleep(2)];
        assert_eq!(numbers(&jobs, 4, None), (vec![30, 1, 20, 2], true));
        assert_eq!(numbers(&jobs, 1, None), (vec![30, 1, 20, 2], true));
        assert_eq!(numbers(&[], 3, None), (vec![], true));
    }

    #[test]
    fn an_error_ends_it_and_keeps_what_there_is() {
        let jobs = [Sleep(1), Sleep(2), Sleep(3)];
        assert_eq!(numbers(&jobs, 1, Some(1)), (vec![1], false));
    }
}
