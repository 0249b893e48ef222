//! A CPU's local APIC, in xAPIC or x2APIC mode (Intel SDM vol. 3, chapter 11).

use nicvisor_core::Time;
use serde::{Deserialize, Serialize};

use super::bits::Vectors;
use super::message::{Destination, Mode};
use super::registers::*;
use super::timer::{Timer, TimerMode};

/// The state of one local APIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalApic {
    id: u32,
    base: u64,
    task_priority: u8,
    logical_destination: u32,
    destination_format: u32,
    spurious: u32,
    in_service: Vectors,
    trigger_mode: Vectors,
    requested: Vectors,
    errors: u32,
    unreported_errors: u32,
    command: u64,
    lvt: [u32; 6],
    timer: Timer,
    /// The level of the 8259 pair's output at LINT0.
    external: bool,
    nmi: bool,
    init: bool,
    startup: Option<u8>,
    waiting_for_startup: bool,
    /// The vector that the CPU would get now, kept up to date so that asking is cheap.
    deliverable: Option<u8>,
}

/// What an interrupt message made of a CPU's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Startup {
    /// INIT: the CPU goes to its state after reset and waits for a start-up message.
    Init,
    /// Start-up: a waiting CPU begins in real mode at page `vector`.
    Begin(u8),
}

/// What a register write asks of the world outside this APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Nothing,
    /// Send an interrupt as this command says.
    Send(u64),
    /// The handler of this level-triggered vector is done.
    EndOfInterrupt(u8),
}

impl LocalApic {
    /// Power-on state. CPU 0 runs; the others wait for a start-up message.
    pub fn new(id: u32) -> LocalApic {
        let bootstrap = if id == 0 { BASE_BOOTSTRAP } else { 0 };
        LocalApic {
            id,
            base: super::LOCAL_APIC_BASE | BASE_ENABLE | bootstrap,
            task_priority: 0,
            logical_destination: 0,
            destination_format: FLAT_MODEL,
            spurious: 0xff,
            in_service: Vectors::default(),
            trigger_mode: Vectors::default(),
            requested: Vectors::default(),
            errors: 0,
            unreported_errors: 0,
            command: 0,
            lvt: [LVT_MASKED; 6],
            timer: Timer::default(),
            external: false,
            nmi: false,
            init: false,
            startup: None,
            waiting_for_startup: id != 0,
            deliverable: None,
        }
    }

    /// Whether the CPU has anything to take: an interrupt above its priority, an NMI, INIT or start-up.
    #[inline]
    pub fn pending(&self) -> bool {
        self.deliverable.is_some()
            || self.nmi
            || self.init
            || self.startup.is_some()
            || (self.external && self.accepts_external())
    }

    /// The vector that the CPU would get from this APIC now (not from the 8259 pair).
    pub fn pending_vector(&self) -> Option<u8> {
        self.deliverable
    }

    /// Whether the CPU waits for a start-up message and executes nothing.
    pub fn waiting_for_startup(&self) -> bool {
        self.waiting_for_startup
    }

    /// The task priority register's upper half, which is CR8.
    pub fn task_priority_class(&self) -> u8 {
        self.task_priority >> 4
    }

    /// A write to CR8.
    pub fn set_task_priority_class(&mut self, class: u8) {
        self.task_priority = class << 4;
        self.update();
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn enabled(&self) -> bool {
        self.base & BASE_ENABLE != 0
    }

    pub(super) fn x2apic(&self) -> bool {
        self.base & BASE_X2APIC != 0
    }

    /// A write to IA32_APIC_BASE; false if the CPU refuses it.
    pub(super) fn set_base(&mut self, value: u64) -> bool {
        let mode = |base: u64| (base & BASE_ENABLE != 0, base & BASE_X2APIC != 0);
        // x2APIC mode is entered from xAPIC mode only, and left only by disabling the APIC.
        let forbidden = matches!(
            (mode(self.base), mode(value)),
            (_, (false, true)) | ((true, true), (true, false)) | ((false, _), (true, true))
        );
        if forbidden || value & !BASE_WRITABLE != 0 {
            return false;
        }
        let was = mode(self.base);
        self.base = value & !BASE_BOOTSTRAP | self.base & BASE_BOOTSTRAP;
        if was.0 && !self.enabled() {
            self.clear_registers();
        }
        self.update();
        true
    }

    /// Takes the pending vector: it is now in service.
    pub(super) fn acknowledge(&mut self) -> Option<u8> {
        let vector = self.deliverable?;
        self.requested.set(vector, false);
        self.in_service.set(vector, true);
        self.update();
        Some(vector)
    }

    pub(super) fn take_nmi(&mut self) -> bool {
        std::mem::take(&mut self.nmi)
    }

    pub(super) fn take_startup(&mut self) -> Option<Startup> {
        if std::mem::take(&mut self.init) {
            return Some(Startup::Init);
        }
        self.startup.take().map(Startup::Begin)
    }

    /// Whether a message to `destination` is for this APIC, which belongs to CPU `cpu`.
    pub(super) fn matches(&self, destination: Destination, cpu: usize) -> bool {
        match destination {
            Destination::Only(index) => index == cpu,
            Destination::AllBut(index) => index != cpu,
            Destination::All => true,
            Destination::Physical(id) => id == self.id || self.is_broadcast(id),
            Destination::Logical(id) => self.enabled() && self.matches_logical(id),
        }
    }

    /// Processor priority: what an interrupt must exceed.
    pub(super) fn priority(&self) -> u8 {
        let service = self.in_service.highest().unwrap_or(0) & 0xf0;
        if self.task_priority & 0xf0 >= service { self.task_priority } else { service }
    }

    /// Whether fixed interrupts get through at all.
    pub(super) fn accepts_fixed(&self) -> bool {
        self.enabled() && self.spurious & SPURIOUS_ENABLE != 0
    }

    /// An interrupt message arrives.
    pub(super) fn accept(&mut self, mode: Mode, vector: u8, level: bool) {
        match mode {
            Mode::Fixed | Mode::LowestPriority => self.accept_fixed(vector, level),
            Mode::Nmi => self.nmi = true,
            Mode::Init => self.initialise(),
            Mode::Startup if self.waiting_for_startup => {
                self.startup = Some(vector);
                self.waiting_for_startup = false;
            }
            Mode::Startup | Mode::Other => {}
        }
    }

    /// The 8259 pair's output changes. It is wired to LINT0 of every CPU.
    pub(super) fn set_external(&mut self, level: bool) {
        let rises = level && !self.external;
        self.external = level;
        let entry = self.lvt[LVT_LINT0];
        if rises && self.enabled() && entry & LVT_MASKED == 0 {
            self.accept(Mode::from_bits(entry >> 8), entry as u8, false);
        }
    }

    /// Whether the 8259 pair may interrupt this CPU, and wants to.
    pub(super) fn external_pending(&self) -> bool {
        self.external && self.accepts_external()
    }

    /// Connects LINT0 to the 8259 pair and LINT1 to NMI, as firmware leaves the first CPU.
    pub(super) fn set_virtual_wire(&mut self) {
        self.spurious |= SPURIOUS_ENABLE;
        self.lvt[LVT_LINT0] = LVT_MODE_EXTERNAL << 8;
        self.lvt[LVT_LINT1] = 4 << 8;
    }

    pub(super) fn timer_expiry(&self) -> Option<Time> {
        self.timer.expiry()
    }

    /// Lets the timer expire if it is due.
    pub(super) fn expire_timer(&mut self, now: Time) {
        if self.timer.expire(now, self.timer_mode()) {
            self.fire(LVT_TIMER);
        }
    }

    pub(super) fn tsc_deadline(&self) -> u64 {
        self.timer.deadline()
    }

    /// A write to IA32_TSC_DEADLINE; `expiry` is when the counter has that value, if ever.
    pub(super) fn set_tsc_deadline(&mut self, now: Time, deadline: u64, expiry: Option<Time>) {
        self.timer.set_deadline(self.timer_mode(), deadline, expiry);
        self.expire_timer(now);
    }

    /// The value of a register; `None` if there is none or it cannot be read.
    pub(super) fn read(&self, register: u32, now: Time) -> Option<u64> {
        let value = match register {
            ID if self.x2apic() => self.id,
            ID => self.id << 24,
            VERSION => VERSION_VALUE,
            TASK_PRIORITY => self.task_priority.into(),
            ARBITRATION_PRIORITY if !self.x2apic() => self.priority().into(),
            PROCESSOR_PRIORITY => self.priority().into(),
            REMOTE_READ if !self.x2apic() => 0,
            LOGICAL_DESTINATION => self.logical_id(),
            DESTINATION_FORMAT if !self.x2apic() => self.destination_format,
            SPURIOUS => self.spurious,
            IN_SERVICE..=IN_SERVICE_LAST => self.in_service.word(register - IN_SERVICE),
            TRIGGER_MODE..=TRIGGER_MODE_LAST => self.trigger_mode.word(register - TRIGGER_MODE),
            REQUESTED..=REQUESTED_LAST => self.requested.word(register - REQUESTED),
            ERROR_STATUS => self.errors,
            COMMAND if self.x2apic() => return Some(self.command),
            COMMAND => self.command as u32,
            COMMAND_HIGH if !self.x2apic() => (self.command >> 32) as u32,
            LVT_FIRST..=LVT_LAST => self.lvt[(register - LVT_FIRST) as usize],
            INITIAL_COUNT => self.timer.initial(),
            CURRENT_COUNT => self.timer.current(now, self.timer_mode()),
            DIVIDE => self.timer.divide(),
            _ => return None,
        };
        Some(value.into())
    }

    /// A write to a register; `None` if there is none or it cannot be written.
    pub(super) fn write(&mut self, register: u32, value: u64, now: Time) -> Option<Request> {
        let word = value as u32;
        match register {
            TASK_PRIORITY => self.task_priority = word as u8,
            END_OF_INTERRUPT => return Some(self.end_of_interrupt()),
            LOGICAL_DESTINATION if !self.x2apic() => self.logical_destination = word & 0xff00_0000,
            DESTINATION_FORMAT if !self.x2apic() => self.destination_format = word | 0x0fff_ffff,
            SPURIOUS => self.set_spurious(word),
            ERROR_STATUS => self.errors = std::mem::take(&mut self.unreported_errors),
            COMMAND => return Some(self.send(value)),
            COMMAND_HIGH if !self.x2apic() => {
                self.command = self.command & 0xffff_ffff | u64::from(word) << 32
            }
            LVT_FIRST..=LVT_LAST => self.set_entry((register - LVT_FIRST) as usize, word),
            INITIAL_COUNT => self.timer.start(now, self.timer_mode(), word),
            DIVIDE => self.timer.set_divide(now, self.timer_mode(), word),
            SELF_INTERRUPT if self.x2apic() => self.accept_fixed(word as u8, false),
            // Read-only, but a write is no error.
            ID | VERSION if !self.x2apic() => {}
            _ => return None,
        }
        self.update();
        Some(Request::Nothing)
    }

    /// Records an access to a register that is not there.
    pub(super) fn illegal_register(&mut self) {
        self.error(ERROR_ILLEGAL_REGISTER);
    }

    fn send(&mut self, value: u64) -> Request {
        self.command = if self.x2apic() { value } else { self.command & !0xffff_ffff | value & 0xffff_ffff };
        // Delivery is immediate, so its status is always idle.
        self.command &= !(1 << 12);
        if Mode::from_bits((self.command >> 8) as u32) == Mode::Fixed
            && (self.command as u8) < FIRST_LEGAL_VECTOR
        {
            self.error(ERROR_SEND_ILLEGAL_VECTOR);
            return Request::Nothing;
        }
        Request::Send(self.command)
    }

    fn end_of_interrupt(&mut self) -> Request {
        let Some(vector) = self.in_service.highest() else { return Request::Nothing };
        self.in_service.set(vector, false);
        self.update();
        if self.trigger_mode.contains(vector) { Request::EndOfInterrupt(vector) } else { Request::Nothing }
    }

    fn set_spurious(&mut self, value: u32) {
        self.spurious = value & 0x3ff;
        if self.spurious & SPURIOUS_ENABLE == 0 {
            self.lvt.iter_mut().for_each(|entry| *entry |= LVT_MASKED);
        }
    }

    fn set_entry(&mut self, index: usize, value: u32) {
        let old = self.timer_mode();
        self.lvt[index] = value & LVT_WRITABLE[index];
        if self.spurious & SPURIOUS_ENABLE == 0 {
            self.lvt[index] |= LVT_MASKED;
        }
        if index == LVT_TIMER {
            self.timer.change_mode(old, self.timer_mode());
        }
    }

    /// A local source of interrupts fires.
    fn fire(&mut self, index: usize) {
        let entry = self.lvt[index];
        if entry & LVT_MASKED == 0 {
            self.accept_fixed(entry as u8, false);
        }
    }

    fn accept_fixed(&mut self, vector: u8, level: bool) {
        if vector < FIRST_LEGAL_VECTOR {
            return self.error(ERROR_RECEIVED_ILLEGAL_VECTOR);
        }
        if self.accepts_fixed() {
            self.requested.set(vector, true);
            self.trigger_mode.set(vector, level);
            self.update();
        }
    }

    fn error(&mut self, error: u32) {
        self.unreported_errors |= error;
        // An illegal vector here would report itself for ever.
        if self.lvt[LVT_ERROR] as u8 >= FIRST_LEGAL_VECTOR {
            self.fire(LVT_ERROR);
        }
    }

    /// INIT: registers as after reset; id, base address and mode stay.
    fn initialise(&mut self) {
        self.clear_registers();
        self.nmi = false;
        self.startup = None;
        self.init = true;
        self.waiting_for_startup = true;
    }

    fn clear_registers(&mut self) {
        *self = LocalApic {
            base: self.base,
            external: self.external,
            nmi: self.nmi,
            init: self.init,
            startup: self.startup,
            waiting_for_startup: self.waiting_for_startup,
            ..LocalApic::new(self.id)
        };
    }

    fn accepts_external(&self) -> bool {
        if !self.enabled() {
            return self.id == 0;
        }
        let entry = self.lvt[LVT_LINT0];
        entry & LVT_MASKED == 0 && entry >> 8 & 7 == LVT_MODE_EXTERNAL
    }

    fn is_broadcast(&self, id: u32) -> bool {
        // Messages from outside carry eight bits even in x2APIC mode, and ids end far below 255.
        id == 0xff || (self.x2apic() && id == u32::MAX)
    }

    fn logical_id(&self) -> u32 {
        if self.x2apic() { (self.id >> 4) << 16 | 1 << (self.id & 15) } else { self.logical_destination }
    }

    fn matches_logical(&self, id: u32) -> bool {
        let own = self.logical_id();
        if self.x2apic() {
            return id == u32::MAX || (id >> 16 == own >> 16 && id & own & 0xffff != 0);
        }
        if id & 0xff == 0xff {
            return true;
        }
        if self.destination_format >> 28 == 0xf {
            id & own >> 24 != 0
        } else {
            id >> 4 & 0xf == own >> 28 && id & own >> 24 & 0xf != 0
        }
    }

    fn timer_mode(&self) -> TimerMode {
        TimerMode::from_entry(self.lvt[LVT_TIMER])
    }

    fn update(&mut self) {
        let priority = self.priority();
        self.deliverable = self.requested.highest().filter(|vector| vector & 0xf0 > priority & 0xf0);
    }
}

const BASE_BOOTSTRAP: u64 = 1 << 8;
const BASE_X2APIC: u64 = 1 << 10;
const BASE_ENABLE: u64 = 1 << 11;
/// Bootstrap flag, mode bits and a page address of 40 bits, the baseline CPU's physical address width.
const BASE_WRITABLE: u64 = 0xff_ffff_f000 | BASE_BOOTSTRAP | BASE_X2APIC | BASE_ENABLE;
/// Vectors below are reserved for exceptions.
const FIRST_LEGAL_VECTOR: u8 = 16;

#[cfg(test)]
#[path = "local_apic_tests.rs"]
mod tests;
