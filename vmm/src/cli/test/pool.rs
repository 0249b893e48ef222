//! Independent work side by side, with its results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use super::super::failure::Failure;

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
    let memory = Memory::new(available_memory());
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

/// The host's memory, as far as it may be used.
struct Memory {
    free: Mutex<u64>,
    whole: u64,
    released: Condvar,
}

impl Memory {
    fn new(bytes: u64) -> Memory {
        Memory { free: Mutex::new(bytes), whole: bytes, released: Condvar::new() }
    }

    /// Waits until `bytes` are free. Who needs more than there is gets all, alone.
    fn hold(&self, bytes: u64) -> Held<'_> {
        let bytes = bytes.min(self.whole);
        let mut free = self.lock();
        while *free < bytes {
            free = self.released.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Held { memory: self, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Held<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.memory.lock() += self.bytes;
        self.memory.released.notify_all();
    }
}

/// Three quarters of what the host could give now (`MemAvailable` of /proc/meminfo, in KiB).
fn available_memory() -> u64 {
    let kibibytes = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    kibibytes.map_or(USUAL_MEMORY, |kibibytes| kibibytes * 1024 / 4 * 3)
}

const USUAL_MEMORY: u64 = 4 << 30;

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

    #[test]
    fn memory_is_never_overcommitted() {
        let memory = Memory::new(10);
        let most = Mutex::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _held = memory.hold(4);
                    {
                        let mut most = most.lock().unwrap();
                        most.0 += 1;
                        most.1 = most.1.max(most.0);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    most.lock().unwrap().0 -= 1;
                });
            }
        });
        assert!(most.lock().unwrap().1 <= 2);
        drop(memory.hold(1000));
        assert_eq!(*memory.lock(), 10);
    }
}
