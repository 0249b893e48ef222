//! All interrupt controllers of a machine and the wiring between them.

use nicvisor_core::{MsiMessage, MsrFault, Time};
use serde::{Deserialize, Serialize};

use super::local_apic::{Request, Startup};
use super::message::{MESSAGE_ADDRESS, MESSAGE_ADDRESS_MASK, Message, Mode};
use super::{IO_APIC_BASE, IoApic, LocalApic, PicPair};

/// Local APICs, I/O APIC and 8259 pair.
///
/// CPUs are named by index, which is also their APIC id. [`Self::pending`] is a look at a few fields and can
/// be asked at every block of instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptFabric {
    local: Vec<LocalApic>,
    io_apic: IoApic,
    pic: PicPair,
    tsc_hz: u64,
}

impl InterruptFabric {
    /// Power-on state for `cpus` CPUs (1 to 64) whose time-stamp counters run at `tsc_hz`.
    pub fn new(cpus: usize, tsc_hz: u64) -> InterruptFabric {
        InterruptFabric {
            local: (0..cpus as u32).map(LocalApic::new).collect(),
            io_apic: IoApic::new(),
            pic: PicPair::new(),
            tsc_hz: tsc_hz.max(1),
        }
    }

    /// Leaves the first CPU as firmware would: the 8259 pair reaches it through LINT0.
    pub fn set_virtual_wire(&mut self) {
        if let Some(first) = self.local.first_mut() {
            first.set_virtual_wire();
        }
    }

    /// The local APIC of `cpu`.
    pub fn local(&self, cpu: usize) -> Option<&LocalApic> {
        self.local.get(cpu)
    }

    /// The I/O APIC.
    pub fn io_apic(&self) -> &IoApic {
        &self.io_apic
    }

    /// Whether `cpu` has anything to take: interrupt, NMI, INIT or start-up.
    #[inline]
    pub fn pending(&self, cpu: usize) -> bool {
        self.local.get(cpu).is_some_and(LocalApic::pending)
    }

    /// Whether `cpu` has a maskable interrupt to take.
    #[inline]
    pub fn interrupt_pending(&self, cpu: usize) -> bool {
        let pending = |apic: &LocalApic| apic.pending_vector().is_some() || apic.external_pending();
        self.local.get(cpu).is_some_and(pending)
    }

    /// `cpu` takes its maskable interrupt: the vector, which is in service from now on.
    pub fn acknowledge(&mut self, cpu: usize) -> Option<u8> {
        let apic = self.local.get_mut(cpu)?;
        if !apic.external_pending() {
            return apic.acknowledge();
        }
        let vector = self.pic.acknowledge();
        self.update_external();
        Some(vector)
    }

    /// `cpu` takes its non-maskable interrupt, if it has one.
    pub fn take_nmi(&mut self, cpu: usize) -> bool {
        self.local.get_mut(cpu).is_some_and(LocalApic::take_nmi)
    }

    /// `cpu` takes an INIT or start-up message, if it has one. The machine resets or starts the CPU.
    pub fn take_startup(&mut self, cpu: usize) -> Option<Startup> {
        self.local.get_mut(cpu)?.take_startup()
    }

    /// Whether `cpu` waits for a start-up message and executes nothing.
    pub fn waiting_for_startup(&self, cpu: usize) -> bool {
        self.local.get(cpu).is_some_and(LocalApic::waiting_for_startup)
    }

    /// Sends `cpu` a non-maskable interrupt, as a panic button would.
    pub fn raise_nmi(&mut self, cpu: usize) {
        if let Some(apic) = self.local.get_mut(cpu) {
            apic.accept(Mode::Nmi, 0, false);
        }
    }

    /// Delivers a message-signalled interrupt. A write to any other address than the APICs' is no interrupt;
    /// returns whether it was one.
    pub fn deliver(&mut self, message: MsiMessage) -> bool {
        let is_interrupt =
            message.address & MESSAGE_ADDRESS_MASK == MESSAGE_ADDRESS && message.address >> 32 == 0;
        if is_interrupt {
            self.send(Message::from(message));
        }
        is_interrupt
    }

    /// A wired interrupt changes its level. `line` is a global system interrupt number.
    pub fn set_line(&mut self, line: u32, level: bool) {
        if let Some(message) = self.io_apic.set_level(line, level) {
            self.send(message);
        }
        match line {
            TIMER_LINE => self.pic.set_level(0, level),
            0 => {}
            _ => self.pic.set_level(line, level),
        }
        self.update_external();
    }

    /// CPU `cpu` reads memory at `address`. Returns whether a controller answers there.
    pub fn memory_read(&mut self, cpu: usize, now: Time, address: u64, data: &mut [u8]) -> bool {
        let register = address & 0xff0;
        let word = if self.is_local(cpu, address) {
            self.read_local(cpu, (register >> 4) as u32, now)
        } else if address & !0xfff == IO_APIC_BASE {
            self.io_apic.read(register)
        } else {
            return false;
        };
        crate::access::read_word(address & 0xf, data, word);
        true
    }

    /// CPU `cpu` writes memory at `address`. Returns whether a controller answers there.
    pub fn memory_write(&mut self, cpu: usize, now: Time, address: u64, data: &[u8]) -> bool {
        let register = address & 0xff0;
        let value = crate::access::value(data);
        // Registers are 32 bits at multiples of 16; anything else is undefined, and ignored here.
        let whole = address.is_multiple_of(16) && data.len() >= 4;
        if self.is_local(cpu, address) {
            if whole {
                self.write_local(cpu, (register >> 4) as u32, value & 0xffff_ffff, now);
            }
        } else if address & !0xfff == IO_APIC_BASE {
            if address.is_multiple_of(16) {
                let messages = self.io_apic.write(register, value as u32);
                messages.into_iter().for_each(|message| self.send(message));
            }
        } else {
            return false;
        }
        true
    }

    /// Whether `index` is one of the MSRs kept here: IA32_APIC_BASE, IA32_TSC_DEADLINE and the x2APIC's.
    pub fn has_msr(index: u32) -> bool {
        matches!(index, APIC_BASE | TSC_DEADLINE | X2APIC_FIRST..=X2APIC_LAST)
    }

    /// `RDMSR` on `cpu`.
    ///
    /// # Errors
    /// When there is no such register in the APIC's present mode.
    pub fn msr_read(&mut self, cpu: usize, now: Time, index: u32) -> Result<u64, MsrFault> {
        let apic = self.local.get(cpu).ok_or(MsrFault)?;
        match index {
            APIC_BASE => Ok(apic.base()),
            TSC_DEADLINE => Ok(apic.tsc_deadline()),
            X2APIC_FIRST..=X2APIC_LAST if apic.x2apic() => {
                apic.read(index - X2APIC_FIRST, now).ok_or(MsrFault)
            }
            _ => Err(MsrFault),
        }
    }

    /// `WRMSR` on `cpu`.
    ///
    /// # Errors
    /// When there is no such register in the APIC's present mode, or it does not take the value.
    pub fn msr_write(&mut self, cpu: usize, now: Time, index: u32, value: u64) -> Result<(), MsrFault> {
        let tsc_hz = self.tsc_hz;
        let apic = self.local.get_mut(cpu).ok_or(MsrFault)?;
        match index {
            APIC_BASE => apic.set_base(value).then_some(()).ok_or(MsrFault),
            TSC_DEADLINE => {
                apic.set_tsc_deadline(now, value, time_of_count(value, tsc_hz));
                Ok(())
            }
            X2APIC_FIRST..=X2APIC_LAST if apic.x2apic() => {
                let register = index - X2APIC_FIRST;
                let writable = super::registers::x2apic_writable(register).ok_or(MsrFault)?;
                if value & !writable != 0 {
                    return Err(MsrFault);
                }
                let request = apic.write(register, value, now).ok_or(MsrFault)?;
                self.carry_out(cpu, request);
                Ok(())
            }
            _ => Err(MsrFault),
        }
    }

    /// `CR8` of `cpu`.
    pub fn task_priority(&self, cpu: usize) -> u8 {
        self.local.get(cpu).map_or(0, LocalApic::task_priority_class)
    }

    /// A write of 0 to 15 to `CR8` of `cpu`.
    pub fn set_task_priority(&mut self, cpu: usize, class: u8) {
        if let Some(apic) = self.local.get_mut(cpu) {
            apic.set_task_priority_class(class);
        }
    }

    /// Reads a port of the 8259 pair.
    pub fn pic_read(&mut self, port: u16) -> u8 {
        let value = self.pic.read(port);
        self.update_external();
        value
    }

    /// Writes a port of the 8259 pair.
    pub fn pic_write(&mut self, port: u16, value: u8) {
        self.pic.write(port, value);
        self.update_external();
    }

    /// When the first local timer expires.
    pub fn next_deadline(&self) -> Option<Time> {
        self.local.iter().filter_map(LocalApic::timer_expiry).min()
    }

    /// Lets all local timers expire that are due.
    pub fn fire_timers(&mut self, now: Time) {
        self.local.iter_mut().for_each(|apic| apic.expire_timer(now));
    }

    fn is_local(&self, cpu: usize, address: u64) -> bool {
        let answers = |apic: &LocalApic| {
            apic.enabled() && !apic.x2apic() && address & !0xfff == apic.base() & 0xffff_ffff_ffff_f000
        };
        self.local.get(cpu).is_some_and(answers)
    }

    fn read_local(&mut self, cpu: usize, register: u32, now: Time) -> u32 {
        let Some(apic) = self.local.get_mut(cpu) else { return 0 };
        apic.read(register, now).unwrap_or_else(|| {
            apic.illegal_register();
            0
        }) as u32
    }

    fn write_local(&mut self, cpu: usize, register: u32, value: u64, now: Time) {
        let Some(apic) = self.local.get_mut(cpu) else { return };
        match apic.write(register, value, now) {
            Some(request) => self.carry_out(cpu, request),
            None => apic.illegal_register(),
        }
    }

    fn carry_out(&mut self, cpu: usize, request: Request) {
        match request {
            Request::Nothing => {}
            Request::Send(command) => {
                let x2apic = self.local.get(cpu).is_some_and(LocalApic::x2apic);
                if let Some(message) = Message::from_command(command, cpu, x2apic) {
                    self.send(message);
                }
            }
            Request::EndOfInterrupt(vector) => {
                let messages = self.io_apic.end_of_interrupt(vector);
                messages.into_iter().for_each(|message| self.send(message));
            }
        }
    }

    fn send(&mut self, message: Message) {
        let Message { destination, mode, vector, level } = message;
        let matches = |(cpu, apic): (usize, &LocalApic)| apic.matches(destination, cpu);
        if mode == Mode::LowestPriority {
            let candidates = self.local.iter().enumerate().filter(|&(cpu, apic)| matches((cpu, apic)));
            let able = candidates.filter(|(_, apic)| apic.accepts_fixed());
            let chosen = able.min_by_key(|(_, apic)| apic.priority()).map(|(cpu, _)| cpu);
            if let Some(apic) = chosen.and_then(|cpu| self.local.get_mut(cpu)) {
                apic.accept(mode, vector, level);
            }
            return;
        }
        for (cpu, apic) in self.local.iter_mut().enumerate() {
            if matches((cpu, apic)) {
                apic.accept(mode, vector, level);
            }
        }
    }

    fn update_external(&mut self) {
        let level = self.pic.output();
        self.local.iter_mut().for_each(|apic| apic.set_external(level));
    }
}

/// The first time at which a counter of `hz` that started at 0 is at least `count`; `None` for never. Centuries
/// are never: otherwise an idle guest could be taken to the end of time.
fn time_of_count(count: u64, hz: u64) -> Option<Time> {
    let nanoseconds = (u128::from(count) * 1_000_000_000).div_ceil(u128::from(hz));
    Some(Time::from_nanos(i64::try_from(nanoseconds).ok()?.unsigned_abs()))
}

/// Where a local APIC's registers are after power-on.
pub const LOCAL_APIC_BASE: u64 = 0xfee0_0000;
/// The interval timer's IRQ 0 arrives at input 2 of the I/O APIC, as the ACPI tables say.
const TIMER_LINE: u32 = 2;
const APIC_BASE: u32 = 0x1b;
const TSC_DEADLINE: u32 = 0x6e0;
const X2APIC_FIRST: u32 = 0x800;
const X2APIC_LAST: u32 = 0x83f;

#[cfg(test)]
#[path = "fabric_tests.rs"]
mod tests;
