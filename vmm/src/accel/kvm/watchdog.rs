//! Noticing a guest that does nothing any more, from looks at its stopped CPUs.

use kvm_bindings::{KVM_MP_STATE_HALTED, KVM_MP_STATE_INIT_RECEIVED, KVM_MP_STATE_UNINITIALIZED};
use kvm_ioctls::VcpuFd;
use nicvisor_core::{Duration, Time};

use super::msr;
use crate::accel::{Patience, Stuck};

/// What a look at one CPU showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// It waits for its start-up IPI.
    offline: bool,
    halted: bool,
    interrupts_on: bool,
    /// An interrupt is waiting that the task priority lets through.
    pending: bool,
    /// The local timer will send one.
    timer: bool,
    /// Requested and in-service interrupts: if they change, some are taken.
    requests: [u32; 16],
}

/// What else there is to know at a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    pub(super) now: Time,
    /// Something will happen by itself, or can come from outside.
    pub(super) wakeable: bool,
    /// [`crate::machine::Machine::activity`].
    pub(super) activity: u64,
    pub(super) patience: Patience,
}

/// When each kind of progress was last seen.
#[derive(Debug)]
pub(super) struct Watchdog {
    next_look: Time,
    last_progress: Time,
    last_activity: u64,
    /// Since when each CPU has ignored the same interrupts, and at how many looks.
    blocked: Vec<Option<Blocked>>,
}

#[derive(Clone, Debug)]
struct Blocked {
    since: Time,
    looks: u32,
    requests: [u32; 16],
}

impl Sample {
    /// Looks at `vcpu`, which is stopped.
    pub(super) fn of(vcpu: &VcpuFd) -> Result<Sample, kvm_ioctls::Error> {
        let state = vcpu.get_mp_state()?.mp_state;
        let apic = vcpu.get_lapic()?;
        let register = |offset: usize| {
            let bytes = [0, 1, 2, 3].map(|byte| apic.regs[offset + byte] as u8);
            u32::from_le_bytes(bytes)
        };
        let mut requests = [0; 16];
        for (index, word) in requests.iter_mut().enumerate() {
            let base = if index < 8 { REQUESTED } else { IN_SERVICE };
            *word = register(base + 16 * (index % 8));
        }
        let highest = (0..8).rev().find(|&word| requests[word] != 0);
        let vector = highest.map_or(0, |word| 32 * word as u32 + 31 - requests[word].leading_zeros());
        let entry = register(TIMER_ENTRY);
        let armed = match entry >> 17 & 3 {
            2 => msr::read(vcpu, &[TSC_DEADLINE])?.first().is_some_and(|deadline| *deadline != 0),
            1 => register(INITIAL_COUNT) != 0,
            _ => register(CURRENT_COUNT) != 0,
        };
        Ok(Sample {
            offline: matches!(state, KVM_MP_STATE_UNINITIALIZED | KVM_MP_STATE_INIT_RECEIVED),
            halted: state == KVM_MP_STATE_HALTED,
            interrupts_on: vcpu.get_regs()?.rflags & INTERRUPT_FLAG != 0,
            pending: vector >> 4 > register(PROCESSOR_PRIORITY) >> 4 & 15,
            timer: armed && entry & MASKED == 0,
            requests,
        })
    }

    /// Halted, and nothing that the CPU has itself will wake it.
    fn sleeps_for_ever(&self) -> bool {
        self.halted && (!self.interrupts_on || !self.pending && !self.timer)
    }
}

impl Watchdog {
    pub(super) fn new(cpus: usize) -> Watchdog {
        Watchdog {
            next_look: Time::ZERO + INTERVAL,
            last_progress: Time::ZERO,
            last_activity: 0,
            blocked: vec![None; cpus],
        }
    }

    /// Whether it is time to look again.
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.next_look
    }

    /// Judges a look at all CPUs.
    pub(super) fn look(&mut self, samples: &[Sample], around: Surroundings) -> Option<Stuck> {
        let now = around.now;
        self.next_look = now + INTERVAL;
        let online = || samples.iter().filter(|sample| !sample.offline);
        let deaf = online().all(|sample| sample.halted && !sample.interrupts_on);
        if online().all(Sample::sleeps_for_ever) && (deaf || !around.wakeable) {
            return Some(Stuck::Dead);
        }
        if around.activity != self.last_activity || online().any(|sample| sample.halted) {
            self.last_activity = around.activity;
            self.last_progress = now;
        }
        for (cpu, sample) in samples.iter().enumerate() {
            let time = around.patience.interrupts_blocked;
            if self.has_ignored(cpu, sample, now).is_some_and(|ignored| ignored > time) {
                return Some(Stuck::InterruptsBlocked { cpu, time });
            }
        }
        let time = around.patience.no_progress;
        (now.since(self.last_progress) > time).then_some(Stuck::NoProgress { time })
    }

    /// For how long `cpu` has ignored the interrupts that wait for it, by enough looks to be sure.
    fn has_ignored(&mut self, cpu: usize, sample: &Sample, now: Time) -> Option<Duration> {
        let slot = &mut self.blocked[cpu];
        if !sample.pending || sample.interrupts_on || sample.offline {
            *slot = None;
            return None;
        }
        match slot {
            Some(blocked) if blocked.requests == sample.requests => blocked.looks += 1,
            _ => *slot = Some(Blocked { since: now, looks: 1, requests: sample.requests }),
        }
        let blocked = slot.as_ref()?;
        (blocked.looks >= ENOUGH_LOOKS).then(|| now.since(blocked.since))
    }
}

/// How often CPUs are looked at: each look stops them for some microseconds.
const INTERVAL: Duration = Duration::from_millis(250);
const ENOUGH_LOOKS: u32 = 4;
const INTERRUPT_FLAG: u64 = 1 << 9;
const TSC_DEADLINE: u32 = 0x6e0;
const MASKED: u32 = 1 << 16;
/// Registers of the local APIC (Intel SDM vol. 3, table 11-1).
const PROCESSOR_PRIORITY: usize = 0xa0;
const IN_SERVICE: usize = 0x100;
const REQUESTED: usize = 0x200;
const TIMER_ENTRY: usize = 0x320;
const INITIAL_COUNT: usize = 0x380;
const CURRENT_COUNT: usize = 0x390;

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { interrupts_blocked: Duration::from_secs(2), no_progress: Duration::from_secs(10) };

    fn look(watchdog: &mut Watchdog, seconds: u64, samples: &[Sample], wakeable: bool) -> Option<Stuck> {
        let now = Time::ZERO + Duration::from_secs(seconds);
        watchdog.look(samples, Surroundings { now, wakeable, activity: 0, patience: PATIENCE })
    }

    #[test]
    fn a_guest_is_dead_when_nothing_can_wake_any_cpu() {
        let halted = Sample { halted: true, interrupts_on: true, ..Sample::default() };
        let offline = Sample { offline: true, ..Sample::default() };
        let ticking = Sample { timer: true, ..halted.clone() };
        let deaf = Sample { interrupts_on: false, timer: true, pending: true, ..halted.clone() };
        let mut watchdog = Watchdog::new(2);
        assert_eq!(look(&mut watchdog, 1, &[halted.clone(), offline.clone()], true), None);
        assert_eq!(look(&mut watchdog, 1, &[ticking, halted.clone()], false), None);
        assert_eq!(look(&mut watchdog, 1, &[halted, offline.clone()], false), Some(Stuck::Dead));
        assert_eq!(look(&mut watchdog, 1, &[deaf, offline], true), Some(Stuck::Dead));
    }

    #[test]
    fn a_cpu_that_ignores_the_same_interrupt_is_found_but_not_one_that_is_busy_with_others() {
        let waiting = |requests| Sample { pending: true, requests: [requests; 16], ..Sample::default() };
        let mut watchdog = Watchdog::new(1);
        for second in 0..9 {
            assert_eq!(look(&mut watchdog, second, &[waiting(second as u32)], true), None);
        }
        let mut watchdog = Watchdog::new(1);
        let ends: Vec<_> = (1..6).map(|second| look(&mut watchdog, second, &[waiting(1)], true)).collect();
        let stuck = Some(Stuck::InterruptsBlocked { cpu: 0, time: PATIENCE.interrupts_blocked });
        assert_eq!(ends, [None, None, None, stuck, stuck]);
    }

    #[test]
    fn a_guest_that_is_never_idle_and_uses_nothing_makes_no_progress() {
        let busy = Sample { interrupts_on: true, ..Sample::default() };
        let idle = Sample { halted: true, ..busy.clone() };
        let mut watchdog = Watchdog::new(1);
        assert_eq!(look(&mut watchdog, 9, &[idle], true), None);
        assert_eq!(look(&mut watchdog, 19, std::slice::from_ref(&busy), true), None);
        assert_eq!(
            look(&mut watchdog, 20, &[busy], true),
            Some(Stuck::NoProgress { time: PATIENCE.no_progress })
        );
    }
}
